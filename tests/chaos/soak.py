# SPDX-License-Identifier: Apache-2.0
"""One job for hours, with faults at random: 5 servers, replication 2, 3 workers. Memory stays flat, and the
weights are those of an undisturbed job, bit for bit.

Servers are killed, stopped, told to end, added and removed; the coordinator is killed and stopped; workers are
stopped for a moment; the mode changes; checkpoints are saved. No more servers are lost than replication 2 bears:
before the next one all are in their places again. Gradients are whole numbers, so that sums are exact in every mode.
"""
import contextlib
import pathlib
import random
import statistics
import time
from typing import NamedTuple

import training
from faults import PATIENCE, PEER_TIMEOUT_SECONDS, SERVER_FAULTS, Fault, Faults, stop_seconds
from training import job

SERVERS, REPLICATION = 5, 2
SERVERS_MAX = 7
TENSORS, VALUES = 8, 4096  # small: the job is about what happens to it, and the undisturbed one soon done
STEP_SECONDS = 0.05
SECONDS_BETWEEN = (0.0, 12.0)
FAULTS = (*SERVER_FAULTS, "kill server", "scale", "scale", "kill coordinator", "stop coordinator", "stop worker",
          "mode", "mode", "checkpoint")
MODES = (["mode=Sync"], ["mode=Async"], ["mode=Bounded", "staleness=2"])
WHOLE_SECONDS = 120.0
END_SECONDS = 1800.0
SAMPLE_SECONDS = 60.0
LINE_SECONDS = 600.0
# Between the second third of the run and the last.
GROWTH_MIB, GROWTH_SHARE = 16.0, 0.1
LONG_SAMPLES = 60


def run(hours: float, seed: int) -> None:
    """AssertionError where the job fails, its weights differ or a member's memory grows."""
    seconds = hours * 3600
    steps = max(1, round(seconds / STEP_SECONDS))
    expected, _ = run_once(steps, 0, random.Random(0))
    weights, memory = run_once(steps, seconds, random.Random(f"soak {seed}"))
    assert weights == expected, "the weights differ"
    memory.check()
    print(f"soak seed {seed}: {steps} steps of each worker, weights equal", flush=True)


def run_once(steps: int, seconds: float, chance: random.Random) -> "tuple[str, Memory]":
    """Digest of the weights of a job that has faults for so long, none with 0, and the memory of its processes."""
    with job.Jobs() as jobs, training.kept_logs(jobs):
        weights, checkpoints = jobs.folder / "weights", jobs.folder / "checkpoints"
        checkpoints.mkdir()
        spec = jobs.spec("--steps", steps, "--tensors", TENSORS, "--values", VALUES, "--optimizer", "add",
                         "--step-milliseconds", round(STEP_SECONDS * 1000), "--weights", weights,
                         servers=SERVERS, workers=training.WORKERS,
                         restart={"backoffLimit": 1_000_000, "initialDelaySeconds": 0,
                                  "peerTimeoutSeconds": PEER_TIMEOUT_SECONDS})
        spec["servers"]["replication"] = REPLICATION
        spec["checkpoint"] = {"uri": f"file://{checkpoints}", "keep": 3}
        started = jobs.run_job(spec)
        started.wait_for_step(1)
        storm = Storm(jobs.tag, started, chance)
        if seconds:
            storm.rage(seconds)
        code = started.finish(END_SECONDS)
        assert code == 0, f"exit code {code}, of:\n{started.launcher.output}"
        if seconds:
            report = started.report()
            print(f"soak: {sum(storm.counts.values())} faults, {report['restarts']} restarts, "
                  f"state losses {report['state_losses']}")
        return training.digest(weights), storm.memory


class Storm:
    def __init__(self, tag: str, started: job.LocalJob, chance: random.Random) -> None:
        self._job = started
        self._chance = chance
        self._faults = Faults(tag, started)
        self._lost = 0  # servers, since all were in their places
        self.counts = dict.fromkeys(FAULTS, 0)
        self.memory = Memory(tag, started.launcher.pid)

    def rage(self, seconds: float) -> None:
        """Then everything is as it was: Sync, all servers in their places."""
        began = time.monotonic()
        next_sample, next_line = 0.0, 0.0
        while (passed := time.monotonic() - began) < seconds:
            if passed >= next_sample:
                self.memory.sample()
                next_sample = passed + min(SAMPLE_SECONDS, seconds / 30)
            if passed >= next_line:
                self._print(passed)
                next_line = passed + min(LINE_SECONDS, seconds / 6)
            self._faults.wait_until(time.monotonic() + self._chance.uniform(*SECONDS_BETWEEN))
            for _ in range(1 + (self._chance.random() < 0.3)):  # two at once, now and then
                self._do(self._chance.choice(FAULTS))
        self._print(seconds)
        self._faults.finish()
        self._set(MODES[0], "--wait")
        self._await_whole()

    def _do(self, kind: str) -> None:
        if kind in SERVER_FAULTS:
            if self._lost == REPLICATION or kind == "drain server":
                self._await_whole()
            # A server that leaves may leave fewer copies behind until the next one is there.
            self._lost += REPLICATION if kind == "drain server" else 1
        self.counts[kind] += 1
        if kind == "mode":
            self._set(self._chance.choice(MODES))
        elif kind == "checkpoint":
            # Refused where there is no coordinator.
            job.run_command("checkpoint", "now", "--workdir", self._job.workdir, *PATIENCE)
        else:
            self._faults.do(Fault(kind, 0, self._chance.random(), stop_seconds(self._chance, kind),
                                  self._chance.randrange(REPLICATION + 1, SERVERS_MAX + 1)))

    def _set(self, settings: list[str], *flags: str) -> None:
        def is_accepted() -> bool:
            self._faults.wait_until(time.monotonic())
            return self._job.set(*settings, *flags, *PATIENCE).returncode == 0
        job.wait_until(is_accepted, WHOLE_SECONDS, f"{settings} is accepted")

    def _await_whole(self) -> None:
        """Until the coordinator knows every desired server by its present process, and no shard is missing a copy.

        It counts a process that has just been stopped or killed as alive: the one continues first, the other is no member.
        """
        self._faults.finish()

        def is_whole() -> bool:
            status = self._job.status()
            if status.get("phase") != "Running" or status["shards_moving"]:
                return False
            there = {server["index"]: server["pid"] for server in status["servers"] if server["alive"]}
            entries = [self._job.endpoint("server", index) for index in range(status["servers_wanted"])]
            return all(entry and there.get(entry["index"]) == entry["pid"] and entry["pid"] not in self._faults.ended
                       for entry in entries)
        job.wait_until(is_whole, WHOLE_SECONDS, f"the job is whole: {self._job.status()}")
        self._lost = 0
        self._faults.ended.clear()  # numbers of processes come again

    def _print(self, passed: float) -> None:
        status = self._job.status()
        counts = ", ".join(f"{kind} {count}" for kind, count in self.counts.items())
        print(f"soak {passed / 60:.0f} min: step {status.get('step')}, mode {status.get('mode')}; {counts}; "
              f"{self.memory.line()}", flush=True)


class Sample(NamedTuple):
    name: str
    resident: float  # MiB
    own: float  # of these, what is not shared with others: a member maps memory of every peer


class Memory:
    """Resident memory of the launcher and of each member, by time."""

    def __init__(self, tag: str, launcher: int) -> None:
        self._tag = tag
        self._launcher = launcher
        self._samples: list[list[Sample]] = []

    def sample(self) -> None:
        members = {f"{role}-{index}": pid for (role, index), pid in training.members(self._tag).items()}
        found = []
        for name, pid in {"launcher": self._launcher, **members}.items():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                _, resident, shared, *_ = map(int, pathlib.Path(f"/proc/{pid}/statm").read_text().split())
                found.append(Sample(name, resident / 256, (resident - shared) / 256))
        self._samples.append(found)

    def line(self) -> str:
        return "MiB: " + ", ".join(f"{s.name} {s.resident:.0f}" for s in sorted(self._samples[-1]))

    def check(self) -> None:
        """AssertionError where a median of the last third is above that of the second. What is shared depends on how
        many servers there are, and is judged where the run was long enough for all sizes."""
        is_long = len(self._samples) >= LONG_SAMPLES
        for what, is_judged in (("own", True), ("resident", is_long)):
            before, after = self._medians(what, 1), self._medians(what, 2)
            for name in sorted(before.keys() & after.keys()):
                limit = before[name] + max(GROWTH_MIB, GROWTH_SHARE * before[name])
                line = f"{what} memory of {name}: {before[name]:.1f} MiB, then {after[name]:.1f} MiB"
                print(f"soak {line}")
                assert after[name] <= limit or not is_judged, f"it grows: {line}"

    def _medians(self, what: str, third: int) -> dict[str, float]:
        """By name, of the samples of one third, from 0; of those that were there for half of it. Others are young: servers
        that are added and removed."""
        length = len(self._samples) / 3
        samples = self._samples[round(third * length):round((third + 1) * length)]
        found: dict[str, list[float]] = {}
        for sample in (one for together in samples for one in together):
            found.setdefault(sample.name, []).append(getattr(sample, what))
        return {name: statistics.median(values) for name, values in found.items() if 2 * len(values) >= len(samples)}
