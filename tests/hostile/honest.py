# SPDX-License-Identifier: Apache-2.0
"""The job that has to go on as if nobody attacked it: its last weights do not depend on timing."""
import hashlib
import pathlib
from typing import Any, Optional

import job

SERVERS = WORKERS = 2
VALUES = 20_000
_STEP_MILLISECONDS = 100
_END_SECONDS = 120.0
_SPARE_SECONDS = 180.0
_WARM_STEPS = 40  # until then a process still takes what it needs for itself, 10 MiB


def rss_kib(pid: int) -> int:
    """0: it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def steps_for(seconds: float) -> int:
    """So many that the job is not over before the attacks, even if some wait for their deadlines."""
    return int((seconds + _SPARE_SECONDS) * 1000 / _STEP_MILLISECONDS)


class Honest:
    """A job of real processes, from its start on; none of them may be replaced."""

    def __init__(self, jobs: job.Jobs, steps: int) -> None:
        self._weights = jobs.folder / "weights"
        spec = jobs.spec("--steps", steps, "--tensors", 2, "--values", VALUES, "--optimizer", "adam",
                         "--step-milliseconds", _STEP_MILLISECONDS, "--weights", self._weights,
                         servers=SERVERS, workers=WORKERS, sync={"deterministic": True},
                         restart={"backoffLimit": 0})
        self.job = jobs.run_job(spec)
        self.job.wait_for_step(_WARM_STEPS)
        self._pids = self._members()
        self._beside: dict[str, job.Program] = {}

    def _members(self) -> dict[str, int]:
        roles = [("coordinator", 1), ("server", SERVERS), ("worker", WORKERS)]
        entries = {f"{role}-{index}": self.job.endpoint(role, index) for role, count in roles for index in range(count)}
        missing = [name for name, entry in entries.items() if entry is None]
        assert not missing, f"{missing} are not there:\n{self.job.launcher.output}"
        return {name: entry["pid"] for name, entry in entries.items() if entry is not None}

    def pid(self, name: str) -> int:
        return self._pids[name]

    def memory(self) -> dict[str, int]:
        """Resident KiB of each member."""
        beside = {name: program.pid for name, program in self._beside.items()}
        return {name: rss_kib(pid) for name, pid in {**self._pids, **beside}.items()}

    def watch(self, name: str, program: job.Program) -> None:
        """Another process that must stay."""
        self._beside[name] = program

    def unwatch(self, name: str) -> None:
        self._beside.pop(name, None)

    def entry(self, role: str, index: int = 0) -> dict[str, Any]:
        entry: Optional[dict[str, Any]] = self.job.endpoint(role, index)
        assert entry is not None, f"{role}-{index} is not there"
        return entry

    def check_alive(self) -> None:
        """AssertionError with the job's output when a process has ended or was replaced."""
        assert self.job.launcher.process.poll() is None, f"the job has ended:\n{self.job.launcher.output}"
        for name, program in self._beside.items():
            assert program.process.poll() is None, f"{name} has ended:\n{program.output}"
        now = self._members()
        assert now == self._pids, f"processes were {self._pids}, are {now}:\n{self.job.launcher.output}"

    def check_goes_on(self) -> None:
        """Steps are still being completed."""
        self.check_alive()
        self.job.wait_for_step(self.job.status().get("step", 0) + 2)

    def finish(self) -> str:
        """A digest of its last weights."""
        code = self.job.finish(_END_SECONDS)
        assert code == 0, self.job.launcher.output
        report = self.job.report()
        assert report["contributors"] == {"min": WORKERS, "max": WORKERS}, report
        assert report["restarts"] == 0, report
        return hashlib.sha256(self._weights.read_bytes()).hexdigest()


def undisturbed(steps: int) -> str:
    """What the weights must be."""
    with job.Jobs() as jobs:
        return Honest(jobs, steps).finish()
