# SPDX-License-Identifier: Apache-2.0
"""A peer that breaks every rule, against a job that must not notice: `python3 tests/hostile --seconds 30 --seed 7`, from
the root. PUSHPULL_BIN and PROBE_WORKER name the programs, those of the release build unless set; README.md has more.

Exit code 1: a process ended, hung, grew or answered otherwise than the table says, or the weights differ from those of
an undisturbed job.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import ssl
import sys
import tempfile
import time
from typing import Any, NamedTuple, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/process"))

import job  # noqa: E402

import channel_attacks  # noqa: E402
import checkpoint_attacks  # noqa: E402
import control_attacks  # noqa: E402
import frame_attacks  # noqa: E402
import honest  # noqa: E402
import http_attacks  # noqa: E402
import memory_attacks  # noqa: E402
import operator_attacks  # noqa: E402
import tls_test  # noqa: E402  beside job.py
from rules import CLOSED, ROLES, Rule, Target  # noqa: E402

RULES: list[Rule] = [*http_attacks.RULES, *control_attacks.RULES, *checkpoint_attacks.RULES, *operator_attacks.RULES]
# How a server's data port is spoken to.
CHANNEL_RULES: dict[str, list[Rule]] = {
    "auto": [*frame_attacks.RULES, *memory_attacks.RULES], "grpc": channel_attacks.RULES}
_MEBIBYTE_KIB = 1024
# Two thousand calls that are there at once take 40 MiB, and gRPC has no bound on them; 57 in ten minutes.
_GRPC_KIB = 80 * _MEBIBYTE_KIB
# An answer of the API server is in memory while it is read.
_OPERATOR_KIB = 32 * _MEBIBYTE_KIB


class Played(NamedTuple):
    """Of one rule."""
    times: int
    longest: float  # seconds
    answers: collections.Counter[str]


class Attacks:
    """Plays rules in an order by seed, and looks at the honest job between them."""

    def __init__(self, target: Target, started: honest.Honest, seed: int, memory_mib: float,
                 serve_grpc: tuple[str, ...]) -> None:
        self._target = target
        self._honest = started
        self._chance = random.Random(seed)
        self._limit_kib = memory_mib * _MEBIBYTE_KIB
        self._serve_grpc = serve_grpc
        self._played: dict[str, Played] = {}
        self._before: dict[str, int] = {}
        self._grown: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []

    def play_all(self, rules: list[Rule], seconds: float) -> None:
        """Each rule at least once, however long that takes; slow ones once in ten rounds."""
        deadline = time.monotonic() + seconds
        self._before = self._honest.memory()
        for number in range(sys.maxsize):
            chosen = [rule for rule in rules if number % 10 == 0 or not rule.is_slow]
            self._chance.shuffle(chosen)
            for rule in chosen:
                if number > 0 and time.monotonic() >= deadline:
                    return
                self.play(rule)
                self._check_memory(rule)
            self._honest.check_goes_on()

    def play(self, rule: Rule) -> None:
        """One attack; a fault is noted, and ends this program only where the job has ended."""
        detail = ""
        begin = time.monotonic()
        try:
            answer = rule.attack(self._target, self._chance)
        except TimeoutError:
            answer = "neither a connection nor its refusal"
        except OSError as error:  # a peer that does not want the connection
            answer, detail = CLOSED, f" ({error!r})"
        except AssertionError as late:
            answer = str(late)
        expected = (CLOSED,) if self._is_kept_out(rule) else rule.answers
        if answer not in expected:
            self._note(f"{rule.role}: {rule.name}: {answer}{detail}, expected {' or '.join(expected)}")
        played = self._played.setdefault(rule.name, Played(0, 0.0, collections.Counter()))
        played.answers[answer] += 1
        longest = max(played.longest, time.monotonic() - begin)
        self._played[rule.name] = played._replace(times=played.times + 1, longest=longest)
        try:
            self._honest.check_alive()
        except AssertionError as ended:
            raise AssertionError(f"after \"{rule.name}\": {ended}") from None

    def _is_kept_out(self, rule: Rule) -> bool:
        """A stranger: under TLS out of both ports, else only out of what needs the job's name."""
        is_under_tls = self._target.tls is not None and rule.role in ("coordinator", "server")
        return not self._target.is_member and (rule.needs_member or is_under_tls)

    def _check_memory(self, rule: Rule) -> None:
        for name, now in self._honest.memory().items():
            grown = now - self._before[name]
            self._grown[name] = max(self._grown[name], grown)
            if self._limit_kib > 0 and grown > max(self._limit_kib, self._allowance_kib(name)):
                self._note(f"{name} has grown by {grown} KiB, by \"{rule.name}\" or before it")
                self._before[name] = now

    def _allowance_kib(self, name: str) -> int:
        """What README.md says that a process may grow beyond the limit of all."""
        if name == "operator":
            return _OPERATOR_KIB
        return _GRPC_KIB if name.startswith(self._serve_grpc) else 0

    def _note(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)
            print(f"FAULT {fault}", flush=True)

    def print_table(self) -> None:
        print(f"{'times':>6} {'longest':>9}  {'rule':<60}  answers")
        for name, played in self._played.items():
            answers = ", ".join(f"{answer} {times}" for answer, times in played.answers.items())
            print(f"{played.times:>6} {played.longest:>7.2f} s  {name:<60}  {answers}")
        grown = ", ".join(f"{name} {kib} KiB" for name, kib in sorted(self._grown.items()))
        print(f"attacks {sum(played.times for played in self._played.values())}, most that each has grown: {grown}")


def attacker_tls(folder: pathlib.Path, member: Optional[pathlib.Path], is_member: bool) -> Optional[ssl.SSLContext]:
    """With the job's certificate, or as a stranger with one of another authority."""
    if member is None:
        return None
    own = member
    if not is_member:
        own = folder / "stranger"
        tls_test.Authority(folder / "strangers").issue(own, days=1)
    context = ssl.create_default_context(cafile=str(member / "ca.crt"))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(own / "tls.crt", own / "tls.key")
    return context


def target_of(started: honest.Honest, jobs: job.Jobs, is_member: bool, tls: Optional[ssl.SSLContext]) -> Target:
    entries = {name: [started.entry(name, index) for index in range(count)] for name, count in
               (("server", honest.SERVERS), ("worker", honest.WORKERS), ("coordinator", 1))}
    every = [entry for of_role in entries.values() for entry in of_role]
    return Target(job=jobs.job_name, servers=[entry["data"].removeprefix("grpc://") for entry in entries["server"]],
                  server_pids=[entry["pid"] for entry in entries["server"]],
                  coordinator=entries["coordinator"][0]["control"], metrics=[entry["metrics"] for entry in every],
                  is_member=is_member, tls=tls, chunk_bytes=4 * honest.VALUES, folder=jobs.folder)


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> list[str]:
    """The faults."""
    member = None
    if arguments.tls:
        member = folder / "member"
        tls_test.Authority(folder / "authority").issue(member, days=1)
        job.Jobs.variables["PUSHPULL_TLS_DIR"] = os.environ["PUSHPULL_TLS_DIR"] = str(member)
    is_member = arguments.played_as == "worker"
    job.Jobs.variables["PUSHPULL_CHANNEL"] = arguments.channel
    rules = [rule for rule in [*CHANNEL_RULES[arguments.channel], *RULES] if rule.role in (arguments.role or ROLES)]
    steps = honest.steps_for(arguments.seconds)
    expected = honest.undisturbed(steps)
    with job.Jobs() as jobs:
        started = honest.Honest(jobs, steps)
        target = target_of(started, jobs, is_member, attacker_tls(folder, member, is_member))
        serve_grpc = ("coordinator", "server") if arguments.channel == "grpc" else ("coordinator",)
        attacks = Attacks(target, started, arguments.seed, arguments.memory_mib, serve_grpc)
        with contextlib.ExitStack() as stack:
            if any(rule.role == "operator" for rule in rules):
                started.watch("operator", stack.enter_context(operator_attacks.operating(jobs)))
            attacks.play_all(rules, arguments.seconds)
            started.unwatch("operator")
        started.check_goes_on()
        weights = started.finish()
        attacks.print_table()
        if weights != expected:
            attacks.faults.append(f"the weights are {weights}, of an undisturbed job {expected}")
    return attacks.faults


def parse(words: Optional[list[str]] = None) -> argparse.Namespace:
    parser: Any = argparse.ArgumentParser(prog="tests/hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="default 30; every rule is played once at least")
    parser.add_argument("--seed", type=int, default=None, help="default: another each time")
    parser.add_argument("--role", choices=ROLES, nargs="+", default=None,
                        help="whose rules are broken; default: all")
    parser.add_argument("--as", dest="played_as", choices=("stranger", "worker"), default="worker",
                        help="worker: knows the job's name, and has a certificate of it under --tls; default worker")
    parser.add_argument("--tls", action="store_true", help="members know each other by certificates")
    parser.add_argument("--channel", choices=CHANNEL_RULES, default="auto",
                        help="of the job's members; default auto, frames over tcp and shared memory here")
    parser.add_argument("--memory-mib", type=float, default=16, help="what a process may grow; 0: is not judged")
    return parser.parse_args(words)


def main() -> int:
    arguments = parse()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(2**32)
    what = f"hostile --as {arguments.played_as} --role {' '.join(arguments.role or ['all'])} --seed {arguments.seed}"
    print(what + (" --tls" if arguments.tls else ""), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="pushpull-test-") as folder:
            faults = run(arguments, pathlib.Path(folder))
    except AssertionError as failed:
        faults = [str(failed)]
    for fault in faults:
        print(f"{what}: {fault}", file=sys.stderr)
    print(f"{what}: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
