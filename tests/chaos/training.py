# SPDX-License-Identifier: Apache-2.0
"""A deterministic training job of real processes whose last weights can be compared bit by bit.

Three probe workers push gradients that depend on worker, step, tensor and place alone, through Adam, so
that an update lost or counted twice, or a moment that did not travel, changes the weights.
"""
import hashlib
import pathlib
import re
import sys
from typing import Any, NamedTuple

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
    """One such job, from its start on."""

    def __init__(self, jobs: job.Jobs, steps: int, servers: int, replication: int) -> None:
        self._weights = jobs.folder / "weights"
        self._may_end = jobs.folder / "may-end"
        spec = jobs.spec("--steps", steps, "--tensors", TENSORS, "--values", VALUES,
                         "--optimizer", "adam", "--step-milliseconds", 5,
                         "--weights", self._weights,
                         # However fast the machine is, no fault comes after the end.
                         "--stall-worker", 0, "--stall-at-step", steps - 1, "--stall-until", self._may_end,
                         servers=servers, workers=WORKERS,
                         sync={"deterministic": True},
                         restart={"backoffLimit": 10, "initialDelaySeconds": 0,
                                  # Nobody is to be found silent where nobody is stopped.
                                  "peerTimeoutSeconds": 1 if replication else 20})
        spec["servers"]["replication"] = replication
        self.job = jobs.run_job(spec)
        self.job.wait_for_step(1)

    def pids(self, role: str, count: int) -> list[int]:
        entries = [self.job.endpoint(role, index) for index in range(count)]
        return [entry["pid"] for entry in entries if entry is not None]

    def finish(self) -> Outcome:
        """Lets the job end, and waits for that; AssertionError with its output when it failed."""
        self._may_end.touch()
        code = self.job.launcher.wait(END_SECONDS)
        output = self.job.launcher.output
        assert code == 0, output
        pauses = [float(seconds) for seconds in _LONGEST.findall(output)]
        assert len(pauses) == WORKERS, output
        digest = hashlib.sha256(self._weights.read_bytes()).hexdigest()
        return Outcome(digest, max(pauses), self.job.report())


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
