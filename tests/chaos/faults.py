# SPDX-License-Identifier: Apache-2.0
"""Faults that are done to a running job of real processes."""
import contextlib
import os
import random
import signal
import threading
import time
from typing import Callable, NamedTuple

import training
from training import job

# Shorter than the time after which a worker counts as dead; a server or the coordinator may be silent for longer.
PEER_TIMEOUT_SECONDS = 3
SHORT_STOP_SECONDS = (0.05, 1.0)
LONG_STOP_SECONDS = (0.2, 2.0 * PEER_TIMEOUT_SECONDS)
SETTLE_SECONDS = 60.0
PATIENCE = ("--timeout", "5")  # with a new coordinator; a command that is refused is tried again
SERVER_FAULTS = ("kill server", "stop server", "drain server")
WORKER_ENDS = ("kill worker", "drain worker")  # a step without that worker has another result


class Fault(NamedTuple):
    kind: str
    moment: float  # seconds after the start of the launcher
    choice: float  # which of the members that are there, from 0 to 1
    seconds: float  # of a stop
    servers: int  # of a resize

    def __str__(self) -> str:
        more = f" to {self.servers}" if self.kind == "scale" else ""
        more += f" for {self.seconds:.2f} s" if "stop" in self.kind else ""
        return f"{self.kind}{more} at {self.moment:.3f} s"


def stop_seconds(chance: random.Random, kind: str) -> float:
    return chance.uniform(*(SHORT_STOP_SECONDS if kind == "stop worker" else LONG_STOP_SECONDS))


class Faults:
    """Does faults to one job; what was stopped goes on while one waits here."""

    def __init__(self, tag: str, started: job.LocalJob) -> None:
        self._tag = tag
        self._job = started
        self._stopped: list[tuple[float, int]] = []  # when it goes on, pid
        self.ended: set[int] = set()  # pids that were killed or told to end

    def inject(self, faults: list[Fault], began: float, after_worker_ends: Callable[[], None]) -> None:
        """Each at its moment; calls `after_worker_ends` when no worker will end any more."""
        left = sum(fault.kind in WORKER_ENDS for fault in faults)
        if not left:
            after_worker_ends()
        for fault in faults:
            self.wait_until(began + fault.moment)
            self.do(fault)
            if fault.kind in WORKER_ENDS:
                left -= 1
                if not left:
                    after_worker_ends()
        self.finish()

    def finish(self) -> None:
        """What is stopped goes on, each at its time."""
        while self._stopped:
            self.wait_until(self._stopped[0][0])

    def do(self, fault: Fault) -> None:
        """Only a worker's death is waited for: the next process of that index is there then."""
        if fault.kind == "scale":
            return self._scale(fault.servers)
        what, role = fault.kind.split()
        index, pid = self._pick(role, fault.choice)
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "drain": signal.SIGTERM}[what]
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, number)
        if what != "stop":
            self.ended.add(pid)
        else:
            self._stopped = sorted([*self._stopped, (time.monotonic() + fault.seconds, pid)])
        if fault.kind in WORKER_ENDS:
            def is_replaced() -> bool:
                self.wait_until(time.monotonic())
                return training.members(self._tag).get((role, index), pid) != pid
            job.wait_until(is_replaced, SETTLE_SECONDS, f"another {role}-{index}")
        return None

    def wait_until(self, moment: float) -> None:
        """What is to go on until then does."""
        while True:
            until = min([moment, *(at for at, _ in self._stopped[:1])])
            threading.Event().wait(max(0.0, until - time.monotonic()))
            if self._stopped and self._stopped[0][0] <= time.monotonic():
                _, pid = self._stopped.pop(0)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            elif moment <= time.monotonic():
                return

    def _pick(self, role: str, choice: float) -> tuple[int, int]:
        def there() -> list[tuple[int, int]]:
            self.wait_until(time.monotonic())
            return sorted((index, pid) for (its, index), pid in training.members(self._tag).items() if its == role)
        found = job.wait_until(there, SETTLE_SECONDS, f"a {role}")
        return found[int(choice * len(found))]

    def _scale(self, servers: int) -> None:
        """As soon as there is a coordinator that takes it."""
        answers = []

        def is_accepted() -> bool:
            self.wait_until(time.monotonic())
            answers.append(self._job.scale(servers, *PATIENCE))
            return answers[-1].returncode == 0
        try:
            job.wait_until(is_accepted, SETTLE_SECONDS, "a resize is accepted")
        except AssertionError as late:
            raise AssertionError(f"{late}: {answers[-1].stderr}") from None
