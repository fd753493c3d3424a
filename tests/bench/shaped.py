#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synchronisation over links of a known speed: each host is a network namespace with a link that token buckets (tbf)
shape in both directions, to a bridge in a namespace of its own. Needs root, and a release build with its tests.

    python3 tests/bench/shaped.py [scaling|gigabit|spread|workers|traces]... [--rounds 5] [--steps 3] [--results FILE]

    scaling   64 MB, one worker on an unshaped link, 1, 2, 4 and 8 servers behind 100 Mb/s: t(n) n / t(1)
    gigabit   1 GiB pushed and pulled between a worker and a server with 1 Gb/s each, against a raw pair of sockets
              that sends as much in both directions at once in the same namespaces
    spread    64 MB, four workers with 200 Mb/s each, against 2 n (n-1) M / ((n^2 + k n - 2 k) B), the least time that
              n workers and k more hosts of servers need (Jiang et al., OSDI 2020, section 4.1): a server on each
              worker's host; the same and two hosts more, by weight; four hosts more and none on the workers'
    workers   8 MB and compute that sleeps five times as long as one worker's synchronisation would take on its link alone;
              8 servers and 1, 2, 4 and 8 workers with 100 Mb/s each: a step with one worker over a step with n, which is
              samples a second over what n times as many workers should give

    traces    ResNet-50 and VGG-19, two workers and two servers with 1 Gb/s each, compute that sleeps as long as a raw link
              needs for the gradients: one priority for all chunks, and whole tensors one after the other, over the order
              of first use (trace_worker.cc; a step is a backward pass and the forward pass that follows)

Rounds are interleaved; printed are medians, and the lowest and the highest. A step counts from a worker's first push to
its last value (of `workers` and `traces`: to the last value of the next step), after one step that does not count. Exit codes: 0 measured, 1 a job failed, 130 stopped.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Callable, Iterator, Optional

import models

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUSHPULL = ROOT / "build/release/pushpull"
PROBE = ROOT / "build/release/tests/probe_worker"
TRACE_WORKER = ROOT / "build/release/tests/trace_worker"
JOB = "shaped"
TENSOR_BYTES = 1 << 20  # of float32, so that every server gets its share
MEGABIT = 1_000_000 / 8  # bytes a second
METRICS_PORT = 9464
WAIT_SECONDS = 300.0


class Failed(Exception):
    pass


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def congestion_control() -> str:
    """One by losses, as Linux has it unless told otherwise. BBR takes a sender that waits for its peers, as a server does
    for contributions, for a slow link, and sends at that pace."""
    allowed = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text(encoding="utf-8").split()
    return "cubic" if "cubic" in allowed else "reno"


class Hosts:
    """Namespaces on one bridge; gone with the object, and all that runs in them before."""

    def __init__(self, tag: str) -> None:
        self._tag = f"pp-{tag}-{os.getpid()}"
        self._names = [f"{self._tag}-switch"]
        run("ip", "netns", "add", self._names[0])
        self._switch("ip", "link", "add", "br0", "type", "bridge")
        self._switch("ip", "link", "set", "br0", "up")

    def _switch(self, *words: object) -> None:
        run("ip", "netns", "exec", self._names[0], *words)

    def add(self, megabits: Optional[int]) -> Host:
        index = len(self._names)
        name, inner, outer = f"{self._tag}-{index}", f"up{index}", f"down{index}"
        run("ip", "netns", "add", name)
        self._names.append(name)
        run("ip", "-n", self._names[0], "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        self._switch("ip", "link", "set", outer, "master", "br0", "up")
        host = Host(name, f"10.77.0.{index}")
        for words in (["link", "set", "lo", "up"], ["address", "add", f"{host.address}/24", "dev", inner], ["link", "set", inner, "up"]):
            run("ip", "-n", name, *words)
        run(*host.command("sh", "-c", f"echo {congestion_control()} > /proc/sys/net/ipv4/tcp_congestion_control"))
        if megabits is not None:
            # The buckets' rate is that of frames on the wire, as a link's is.
            for words in ([name, inner], [self._names[0], outer]):
                run("tc", "-n", words[0], "qdisc", "add", "dev", words[1], "root", "tbf", "rate", f"{megabits}mbit",
                    "burst", "128k", "latency", "20ms")
        return host

    def close(self) -> None:
        for name in reversed(self._names):
            subprocess.run(["ip", "netns", "delete", name], check=False)


@dataclasses.dataclass(frozen=True)
class Host:
    namespace: str
    address: str

    def command(self, *words: object) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *(str(word) for word in words)]


@dataclasses.dataclass(frozen=True)
class Member:
    host: Host
    weight: float = 1


class Work:
    """Of a worker, each step."""

    def has_compute(self) -> bool:
        """Then a step is measured whole, without: its synchronisation."""
        raise NotImplementedError

    def program(self, folder: pathlib.Path) -> list[object]:
        """The worker's command; files of it go to `folder`."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Tensors(Work):
    num_bytes: int
    tensor_bytes: int = TENSOR_BYTES
    compute_seconds: float = 0  # asleep

    def has_compute(self) -> bool:
        return self.compute_seconds > 0

    def program(self, folder: pathlib.Path) -> list[object]:
        return [PROBE, "--optimizer", "sum", "--steps", 1_000_000, "--tensors", self.num_bytes // self.tensor_bytes,
                "--values", self.tensor_bytes // 4, "--step-milliseconds", round(1e3 * self.compute_seconds)]


@dataclasses.dataclass(frozen=True)
class Trace(Work):
    model: list[models.Tensor]
    order: str  # of trace_worker
    compute_seconds: float

    def has_compute(self) -> bool:
        return True

    def program(self, folder: pathlib.Path) -> list[object]:
        """Compute by the multiplications of each layer, the backward pass twice the forward pass."""
        trace = folder / "trace"
        second = self.compute_seconds / 3 / sum(tensor.multiplications for tensor in self.model)
        trace.write_text("".join(f"{tensor.name} {tensor.values} {second * tensor.multiplications} {2 * second * tensor.multiplications}\n"
                                 for tensor in self.model), encoding="utf-8")
        return [TRACE_WORKER, trace, self.order]


class Job:
    """Members by hand, each on its host, as docs/by-hand.md describes it."""

    def __init__(self, folder: pathlib.Path, boss: Host, servers: list[Member], workers: list[Host], work: Work) -> None:
        self._folder = folder
        self._metric = "step" if work.has_compute() else "sync"
        program = work.program(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers = workers
        manifest = folder / "job.yaml"
        manifest.write_text(json.dumps({
            "apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": JOB},
            "spec": {"image": "none", "command": ["probe_worker"], "servers": {"replicas": len(servers)},
                     "workers": {"replicas": len(workers)}}}), encoding="utf-8")
        # Every process is on this machine: without this, the hosts would share memory.
        self._environment = {**os.environ, "PUSHPULL_CHANNEL": "tcp", "PUSHPULL_JOB": JOB, "PUSHPULL_LOG_LEVEL": "warning",
                             "PUSHPULL_COORDINATOR": f"{boss.address}:7170", "PUSHPULL_METRICS_PORT": str(METRICS_PORT)}
        self._start("coordinator", boss, {}, PUSHPULL, "coordinator", "--manifest", manifest, "--listen", f"{boss.address}:7170")
        self._await(lambda: "listening" in (folder / "coordinator.log").read_text(encoding="utf-8"), "the coordinator listens")
        for index, server in enumerate(servers):
            self._start(f"server-{index}", server.host, {}, PUSHPULL, "server", "--job", JOB, "--index", index, "--coordinator",
                        f"{boss.address}:7170", "--listen", f"{server.host.address}:7171", "--metrics", f"{server.host.address}:9465",
                        "--weight", server.weight)
        for index, worker in enumerate(workers):
            self._start(f"worker-{index}", worker, {"PUSHPULL_INDEX": str(index)}, *program)

    def _start(self, name: str, host: Host, more: dict[str, str], *words: object) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(host.command(*words), env={**self._environment, **more}, stdout=log, stderr=log))

    def _totals(self, worker: Host) -> tuple[float, int]:
        """Seconds of all steps of a worker, and their number."""
        asked = subprocess.run(worker.command("curl", "-s", "-m", "5", f"http://127.0.0.1:{METRICS_PORT}/metrics"),
                               capture_output=True, text=True, check=False).stdout
        found = [re.search(rf"^pushpull_{self._metric}_seconds_{what}(?:{{[^}}]*}})? (\S+)$", asked, re.MULTILINE) for what in ("sum", "count")]
        return (float(found[0][1]), int(float(found[1][1]))) if all(found) else (0.0, 0)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        pause = threading.Event()
        while not condition():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                logs = "\n".join(f"{log.name}: {log.read_text()[-500:]}" for log in sorted(self._folder.glob("*.log")))
                raise Failed(f"a member has ended, or not within {WAIT_SECONDS} s: {what}\n{logs}")
            pause.wait(0.2)

    def _await_steps(self, steps: int) -> list[tuple[float, int]]:
        totals: list[tuple[float, int]] = []

        def are_done() -> bool:
            totals[:] = [self._totals(worker) for worker in self._workers]
            return all(count >= steps for _, count in totals)
        self._await(are_done, f"{steps} steps")
        return totals

    def step_seconds(self, steps: int) -> float:
        """Mean of the workers and of so many steps, at least."""
        first = self._await_steps(1)
        last = self._await_steps(steps + first[0][1])
        return statistics.mean((end[0] - begin[0]) / (end[1] - begin[1]) for begin, end in zip(first, last))

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()


def measure(servers: list[tuple[Optional[int], float]], workers: Optional[int], count: int, with_server: Optional[float],
            work: Work, steps: int) -> float:
    """Seconds of a step of `count` workers on links of `workers` Mb/s (none: unshaped) with one server for each of `servers`
    (Mb/s, weight), and one of weight `with_server` on each worker's host."""
    with contextlib.closing(Hosts("job")) as hosts, tempfile.TemporaryDirectory(prefix="pushpull-bench-") as folder:
        boss = hosts.add(None)
        worker_hosts = [hosts.add(workers) for _ in range(count)]
        members = [Member(hosts.add(megabits), weight) for megabits, weight in servers]
        if with_server is not None:
            members += [Member(host, with_server) for host in worker_hosts]
        with contextlib.closing(Job(pathlib.Path(folder), boss, members, worker_hosts, work)) as job:
            return job.step_seconds(steps)


# Both ends of the raw pair: sends and receives as many bytes at once, and prints the seconds of that.
_RAW = """
import socket, sys, threading, time
role, address, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "listen":
    with socket.create_server((address, 7300)) as listener:
        peer = listener.accept()[0]
else:
    for attempt in range(200):
        try:
            peer = socket.create_connection((address, 7300), timeout=60)
            break
        except ConnectionRefusedError:
            threading.Event().wait(0.05)
block = bytes(256 * 1024)
def send():
    for _ in range(total // len(block)):
        peer.sendall(block)
begin = time.monotonic()
sender = threading.Thread(target=send)
sender.start()
space, left = bytearray(len(block)), total
while left > 0:
    left -= peer.recv_into(space, min(left, len(space)))
sender.join()
print(time.monotonic() - begin)
"""


def measure_raw(megabits: int, num_bytes: int) -> float:
    with contextlib.closing(Hosts("raw")) as hosts:
        ends = [hosts.add(megabits), hosts.add(megabits)]
        pair = [subprocess.Popen(end.command(sys.executable, "-c", _RAW, role, ends[0].address, num_bytes), stdout=subprocess.PIPE, text=True)
                for end, role in zip(ends, ("listen", "connect"))]
        return max(float(process.communicate(timeout=WAIT_SECONDS)[0]) for process in pair)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    measure: Callable[[int], float]  # of so many steps, in seconds
    reference: str = ""              # the case of the same round that it is compared with
    factor: float = 1                # of the ratio
    bound: Optional[float] = None    # seconds to compare with instead
    is_inverse: bool = False         # the reference's seconds over the case's


MEGABYTES_64 = 64 * 1024 * 1024
WORK_64 = Tensors(MEGABYTES_64)


def scaling() -> Iterator[Case]:
    for count in (1, 2, 4, 8):
        yield Case(f"{count} servers of 100 Mb/s", lambda steps, count=count: measure([(100, 1)] * count, None, 1, None, WORK_64, steps),
                   reference="1 servers of 100 Mb/s", factor=count)


def gigabit() -> Iterator[Case]:
    yield Case("raw, 1 Gb/s", lambda steps: measure_raw(1000, 1 << 30))
    yield Case("pushed and pulled, 1 Gb/s", lambda steps: measure([(1000, 1)], 1000, 1, None, Tensors(1 << 30), 1), reference="raw, 1 Gb/s")


def spread() -> Iterator[Case]:
    def least(workers: int, more: int) -> float:
        return (2 * workers * (workers - 1) * MEGABYTES_64
                / ((workers * workers + more * workers - 2 * more) * 200 * MEGABIT))
    yield Case("(4,0)", lambda steps: measure([], 200, 4, 1, WORK_64, steps), bound=least(4, 0))
    # Shares 2 (n-1) and n-2 of the same whole.
    yield Case("(4,2)", lambda steps: measure([(200, 3)] * 2, 200, 4, 1, WORK_64, steps), bound=least(4, 2))
    yield Case("(4,4), none on the workers' hosts", lambda steps: measure([(200, 1)] * 4, 200, 4, None, WORK_64, steps), bound=least(4, 4))


def workers() -> Iterator[Case]:
    num_bytes = 8 << 20
    work = Tensors(num_bytes, tensor_bytes=128 << 10, compute_seconds=5 * num_bytes / (100 * MEGABIT))
    for count in (1, 2, 4, 8):
        yield Case(f"{count} workers", lambda steps, count=count: measure([(100, 1)] * 8, 100, count, None, work, steps),
                   reference="1 workers", is_inverse=True)


def traces() -> Iterator[Case]:
    for name, model in (("ResNet-50", models.resnet50()), ("VGG-19", models.vgg19())):
        seconds = 4 * sum(tensor.values for tensor in model) / (1000 * MEGABIT)
        for order in ("priority", "fifo", "whole"):
            work = Trace(model, order, seconds)
            yield Case(f"{name}, {order}", lambda steps, work=work: measure([(1000, 1)] * 2, 1000, 2, None, work, steps),
                       reference=f"{name}, priority")


GROUPS = {"scaling": scaling, "gigabit": gigabit, "spread": spread, "workers": workers, "traces": traces}


def ratio(case: Case, seconds: dict[str, float]) -> float:
    over = seconds[case.name] * case.factor / (case.bound or seconds[case.reference or case.name])
    return 1 / over if case.is_inverse else over


def describe(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f} [{min(values):.3f}..{max(values):.3f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="*", choices=[*GROUPS, []], help="all without one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, help="JSON of every round")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cases = [case for group in arguments.group or GROUPS for case in GROUPS[group]()]
    print(f"congestion control: {congestion_control()}", flush=True)
    rounds: list[dict[str, float]] = []
    try:
        for number in range(arguments.rounds):
            rounds.append({})
            for case in cases:
                rounds[-1][case.name] = case.measure(arguments.steps)
                print(f"round {number + 1}: {case.name}: {rounds[-1][case.name]:.3f} s, ratio {ratio(case, rounds[-1]):.3f}", flush=True)
    except Failed as failure:
        print(f"shaped.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if arguments.results:
        arguments.results.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    print(f"\n{'seconds of a step':>60} ratio")
    for case in cases:
        print(f"{case.name:34} {describe([seconds[case.name] for seconds in rounds])} {describe([ratio(case, seconds) for seconds in rounds])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
