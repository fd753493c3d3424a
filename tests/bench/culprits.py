#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the coordinator names the slow one, and only it, and how soon: jobs on hosts that are network namespaces
(shaped.py), with 2 workers and 2 servers and with 8 and 4. Needs root, and a release build with its tests.

    python3 tests/bench/culprits.py [even|worker|server|link|server-link]... [--sizes 2x2,8x4] [--factor 5]

    even         nobody is slow: nobody is named for 40 s
    worker       worker 1 computes for --factor times as long as the others, from its first step on
    server       server 1 gets 2 % of a processor (a cgroup of its own), from a moment on
    link         the link of worker 1 gets 100 Mb/s in both directions (tbf), from a moment on
    server-link  likewise that of server 1

`pushpull_culprit` of the coordinator is read every second. Printed: seconds from the fault, of `worker` from the fifth
step, until the series of the slow one is above 0, its value, and whatever else is named until 20 s later. Exit codes: 0
as it should be, 1 not, 130 stopped.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Iterator

import shaped

STEP_MILLISECONDS = 200
TENSOR_BYTES = 128 << 10
MEGABYTES = {"2x2": 16, "8x4": 4}
SCRAPES_SECONDS = 30  # two of 15 s
QUIET_SECONDS = 40
AFTER_SECONDS = 20
LINK_MEGABITS = 100
SERVER_SHARE = 0.02
PERIOD_MICROSECONDS = 100_000
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Paced(shaped.Tensors):
    def __init__(self, num_bytes: int, *flags: object) -> None:
        super().__init__(num_bytes, TENSOR_BYTES, STEP_MILLISECONDS / 1e3)
        object.__setattr__(self, "_flags", flags)

    def program(self, folder: pathlib.Path) -> list[object]:
        return [*super().program(folder), *getattr(self, "_flags")]


@contextlib.contextmanager
def quota(pid: int, share: float) -> Iterator[None]:
    """The process gets this share of one processor."""
    is_v2 = (CGROUPS / "cgroup.controllers").exists()
    group = (CGROUPS if is_v2 else CGROUPS / "cpu") / f"pushpull-culprits-{os.getpid()}"
    parent = group.parent
    if is_v2:
        (parent / "cgroup.subtree_control").write_text("+cpu", encoding="utf-8")
    group.mkdir()
    limit = int(share * PERIOD_MICROSECONDS)
    if is_v2:
        (group / "cpu.max").write_text(f"{limit} {PERIOD_MICROSECONDS}", encoding="utf-8")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS), encoding="utf-8")
        (group / "cpu.cfs_quota_us").write_text(str(limit), encoding="utf-8")
    (group / "cgroup.procs").write_text(str(pid), encoding="utf-8")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (parent / "cgroup.procs").write_text(str(pid), encoding="utf-8")
        group.rmdir()


class Observed(shaped.Job):
    """A job whose coordinator is read."""

    boss: shaped.Host

    def series(self) -> dict[str, float]:
        asked = subprocess.run(self.boss.command("curl", "-s", "-m", "5", f"http://127.0.0.1:{shaped.METRICS_PORT}/metrics"),
                               capture_output=True, text=True, check=False).stdout
        pairs = [line.rsplit(" ", 1) for line in asked.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def named(self) -> dict[str, float]:
        return {" ".join(re.findall(r'"([^"]*)"', name)): value for name, value in self.series().items()
                if name.startswith("pushpull_culprit{") and value > 0}

    def await_steps(self, steps: int) -> None:
        self._await_steps(steps)

    def pid_of_server(self, index: int) -> int:
        return self._processes[1 + index].pid  # `ip netns exec` becomes the program


def shape(switch: str, host: shaped.Host) -> None:
    index = host.address.rsplit(".", 1)[1]
    for namespace, device in ((host.namespace, f"up{index}"), (switch, f"down{index}")):
        shaped.run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{LINK_MEGABITS}mbit",
                   "burst", "128k", "latency", "20ms")


WANTED = {"even": None, "worker": "worker worker-1", "server": "server server-1", "link": "link worker-1",
          "server-link": "link server-1"}


def observe(fault: str, size: str, factor: int, scratch: pathlib.Path) -> bool:
    num_workers, num_servers = (int(number) for number in size.split("x"))
    flags = ("--slow-worker", 1, "--slow-factor", factor) if fault == "worker" else ()
    pause = threading.Event()
    with contextlib.closing(shaped.Hosts("culprits")) as hosts, contextlib.ExitStack() as stack:
        boss = hosts.add(None)
        servers = [hosts.add(None) for _ in range(num_servers)]
        workers = [hosts.add(None) for _ in range(num_workers)]
        work = Paced(MEGABYTES[size] << 20, *flags)
        job = stack.enter_context(contextlib.closing(
            Observed(scratch, boss, [shaped.Member(server) for server in servers], workers, work)))
        job.boss = boss
        job.await_steps(5 if fault == "worker" else 60)
        before = job.named() if fault != "worker" else {}
        switch = hosts._names[0]
        if fault == "server":
            stack.enter_context(quota(job.pid_of_server(1), SERVER_SHARE))
        elif fault == "link":
            shape(switch, workers[1])
        elif fault == "server-link":
            shape(switch, servers[1])
        begin = time.monotonic()
        wanted = WANTED[fault]
        seen: dict[str, float] = dict(before)
        found_after = None
        end = begin + (QUIET_SECONDS if wanted is None else 2 * SCRAPES_SECONDS)
        while time.monotonic() < end:
            now = job.named()
            seen.update(now)
            if wanted in now and found_after is None:
                found_after = time.monotonic() - begin
                end = time.monotonic() + AFTER_SECONDS
            pause.wait(1)
        others = {name: value for name, value in seen.items() if name != wanted}
        is_right = not others and (wanted is None or (found_after is not None and found_after <= SCRAPES_SECONDS))
        found = "" if found_after is None else f"after {found_after:4.1f} s, share {seen[wanted]:.2f}"
        print(f"{size} {fault:12} {'ok   ' if is_right else 'WRONG'} {wanted or 'nobody':16} {found:28} others: {others or 'none'}", flush=True)
        if not is_right:
            for name, value in sorted(job.series().items()):
                if "lateness" in name or "server_step" in name:
                    print(f"    {name} {value:.4f}")
        return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", nargs="*", choices=[*WANTED, []], help="all without one")
    parser.add_argument("--sizes", default="2x2,8x4")
    parser.add_argument("--factor", type=int, default=5)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    is_right = True
    try:
        for size in arguments.sizes.split(","):
            for fault in arguments.fault or WANTED:
                with tempfile.TemporaryDirectory(prefix="pushpull-bench-") as folder:
                    is_right = observe(fault, size, arguments.factor, pathlib.Path(folder)) and is_right
    except shaped.Failed as failure:
        print(f"culprits.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
