# SPDX-License-Identifier: Apache-2.0
"""A deterministic training job of real processes whose last weights can be compared bit by bit.

Three probe workers push gradients that depend on worker, step, tensor and place alone, through Adam, so
that an update lost or counted twice, or a moment that did not travel, changes the weights.
"""
import contextlib
import hashlib
import pathlib
import re
import sys
import tempfile
from typing import Any, Iterator, NamedTuple, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/process"))

import job  # noqa: E402

WORKERS = 3
# 48 chunks of 256 KiB, a number that 1, 2, 3 and 4 servers share evenly: then the least that a resize must
# move is what the servers hold more of afterwards. With Adam's two moments three times as much.
TENSORS, VALUES = 4, 786_432
STATE_COPIES = 3  # value and both moments
END_SECONDS = 120.0
_LONGEST = re.compile(r"worker-\d+ \| longest step ([\d.]+) s")


class Outcome(NamedTuple):
    weights: str  # digest of the last weights
    pause_seconds: float  # the longest time between two completed steps that a worker saw
    report: dict[str, Any]


class Training:
    """One such job, from its start on. With `holds_worker` the last worker waits until `let_worker_start`, and
    nobody waits for the first step here."""

    def __init__(self, jobs: job.Jobs, steps: int, servers: int, replication: int, *, values: int = VALUES,
                 peer_timeout: Optional[int] = None, holds_worker: bool = False) -> None:
        self._weights = jobs.folder / "weights"
        self._may_end = jobs.folder / "may-end"
        self._may_start = jobs.folder / "may-start"
        spec = jobs.spec("--steps", steps, "--tensors", TENSORS, "--values", values,
                         "--optimizer", "adam", "--step-milliseconds", 5,
                         "--weights", self._weights,
                         # However fast the machine is, no fault comes after the end.
                         "--stall-worker", 0, "--stall-at-step", steps - 1, "--stall-until", self._may_end,
                         servers=servers, workers=WORKERS,
                         sync={"deterministic": True},
                         restart={"backoffLimit": 20, "initialDelaySeconds": 0,
                                  # Nobody is to be found silent where nobody is stopped.
                                  "peerTimeoutSeconds": peer_timeout or (1 if replication else 20)})
        spec["servers"]["replication"] = replication
        if holds_worker:
            hold = (f'while [ $PUSHPULL_INDEX = {WORKERS - 1} -a ! -e {self._may_start} ]; do sleep 0.02; done; '
                    'exec "$@"')
            spec["command"] = ["sh", "-c", hold, "sh", *spec["command"]]
        self.job = jobs.run_job(spec)
        if not holds_worker:
            self.job.wait_for_step(1)

    def let_worker_start(self) -> None:
        self._may_start.touch()

    def pids(self, role: str, count: int) -> list[int]:
        entries = [self.job.endpoint(role, index) for index in range(count)]
        return [entry["pid"] for entry in entries if entry is not None]

    def finish(self) -> Outcome:
        """Lets the job end, and waits for that; AssertionError with its output when it failed."""
        self._may_end.touch()
        code = self.job.launcher.wait(END_SECONDS)
        output = self.job.launcher.output
        assert code == 0, f"exit code {code}, of:\n{output}"
        pauses = [float(seconds) for seconds in _LONGEST.findall(output)]
        assert len(pauses) == WORKERS, output
        return Outcome(digest(self._weights), max(pauses), self.job.report())


def digest(weights: pathlib.Path) -> str:
    return hashlib.sha256(weights.read_bytes()).hexdigest()


@contextlib.contextmanager
def kept_logs(jobs: job.Jobs) -> Iterator[None]:
    """What the job's processes have printed is kept where something fails in here; the error names the file."""
    try:
        yield
    except AssertionError as failed:
        with tempfile.NamedTemporaryFile("w", prefix="pushpull-chaos-", suffix=".log", delete=False) as log:
            log.write(jobs.output())
        why = re.search(r"pushpull: job \S+ failed: .*", jobs.output())
        raise AssertionError(f"{str(failed).splitlines()[0]}\n{why[0] if why else 'The job has not failed.'}\n"
                             f"the job's output: {log.name}") from failed


def members(tag: str) -> dict[tuple[str, int], int]:
    """Pids of the job's members that are there, by role and index, ready or not."""
    found = {}
    for pid, command in job.tagged_processes(tag).items():
        words = command.split()
        if "coordinator" in words[1:2]:
            found[("coordinator", 0)] = pid
        elif "server" in words[1:2]:
            found[("server", int(words[words.index("--index") + 1]))] = pid
        elif words and words[0] != "sleep":  # a held worker waits
            index = worker_index(pid)
            found.update({("worker", index): pid} if index is not None else {})
    return found


def worker_index(pid: int) -> Optional[int]:
    """None: it is no worker, or not there any more."""
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    if b"PUSHPULL_ROLE=worker" not in variables:
        return None
    return next((int(v.partition(b"=")[2]) for v in variables if v.startswith(b"PUSHPULL_INDEX=")), None)


def undisturbed(steps: int, servers: int) -> Outcome:
    """What the weights must be; they depend neither on servers nor on replication."""
    with job.Jobs() as jobs:
        return Training(jobs, steps, servers, 0).finish()


def pauses_line(pauses: list[float]) -> str:
    """Quantiles by nearest rank."""
    ranked = sorted(pauses)

    def at(share: float) -> float:
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]

    return f"p50 {at(0.5):.3f} s, p99 {at(0.99):.3f} s, max {ranked[-1]:.3f} s"
