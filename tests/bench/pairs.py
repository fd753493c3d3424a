# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of a synchronisation step in two ways, for differences too small to be seen in a step's time.

    python3 tests/bench/pairs.py [--other FILE] [-- WORDS]    two programs or two sets of words, a job each, in turn
    python3 tests/bench/pairs.py --traced 40                  steps that `pushpull trace` records, 40 at a time, in one job
    python3 tests/bench/pairs.py --left-out --program FILE    a program that leaves something out in some steps of one job

Two jobs of the same program differ by up to 10 %, because the machine's speed changes and memory is placed differently.
What costs less than that is compared within one job.

FILE of --left-out is built by hand from a changed tree: before each measured step, `bench sync` writes is_left_out(step) to
a page of shared memory that all processes of the job map, and the functions to be measured, such as those of WorkerMetrics
and ServerMetrics, return at once while it is set. The steps are random: those that alternate also alternate between buffers.

For each pair the ratio is other over one: recorded over not recorded, not left out over left out. Printed are the mean
ratio of the steps' medians, and that of their means, each with an interval that has 95 % of the means of 10,000 samples
drawn from the pairs. Means are less certain, but count what only a few steps pay for, such as the reports of a trace.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable, Iterator

PAIRS = 20
SAMPLES = 10_000
RUN_SECONDS = 3600
START_SECONDS = 60
LOOK_SECONDS = 0.01
WARM_UP_STEPS = 3  # of `bench sync`
# A trace's reports leave with the heartbeats after its last step.
REPORT_STEPS = 10


class Failed(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Pair:
    """CPU seconds of steps."""
    one: list[float]
    other: list[float]


class Bench:
    """`pushpull bench sync` while it runs."""

    def __init__(self, program: str, words: list[str], folder: str) -> None:
        self._printed = pathlib.Path(folder, "printed.json")  # a pipe would stop the benchmark until it is read
        with self._printed.open("w", encoding="utf-8") as printed:
            self._process = subprocess.Popen([program, "bench", "sync", "--json", *words], stdout=printed, env={**os.environ, "TMPDIR": folder})

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def runs(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> list[float]:
        """Of each measured step; blocks until the last."""
        if code := self._process.wait(timeout=RUN_SECONDS):
            raise Failed(f"the benchmark has ended with {code}")
        return list(json.loads(self._printed.read_text(encoding="utf-8"))["step_cpu_seconds"])


def await_value(look: Callable[[], Any], what: str) -> Any:
    """Its first true value."""
    pause = threading.Event()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if value := look():
            return value
        pause.wait(LOOK_SECONDS)
    raise Failed(f"not within {START_SECONDS} s: {what}")


def steps_of_job(program: str, words: list[str]) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder, Bench(program, words, folder) as bench:
        return bench.cpu_seconds()


def pairs_of_jobs(ways: list[tuple[str, list[str]]], count: int) -> Iterator[Pair]:
    for number in range(count):
        order = [0, 1] if number % 2 == 0 else [1, 0]  # neither always comes after the other
        steps = {way: steps_of_job(*ways[way]) for way in order}
        yield Pair(steps[0], steps[1])


def is_left_out(step: int) -> bool:
    """Of the measured steps, from 0; the highest bit of the step's hash (splitmix64)."""
    bits = (1 << 64) - 1
    x = step * 0x9E3779B97F4A7C15 & bits
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & bits
    x = (x ^ x >> 27) * 0x94D049BB133111EB & bits
    return x >> 63 == 1


def pairs_of_random_steps(program: str, words: list[str], count: int) -> Iterator[Pair]:
    steps = steps_of_job(program, words)
    for number in range(count):
        part = range(len(steps) * number // count, len(steps) * (number + 1) // count)
        yield Pair([steps[i] for i in part if is_left_out(i)], [steps[i] for i in part if not is_left_out(i)])


def traced(path: pathlib.Path, expected: int) -> range:
    """The measured steps that the trace has."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    steps = {event["args"]["step"] - WARM_UP_STEPS for event in trace["traceEvents"] if event.get("cat") == "push" and event["ph"] == "X"}
    if len(steps) != expected or trace["otherData"]["left_out"]:
        raise Failed(f"{len(steps)} steps of {expected} are in the trace, {trace['otherData']['left_out']} pushes are not")
    return range(min(steps), max(steps) + 1)


def record(program: str, bench: Bench, folder: pathlib.Path, steps: int) -> Iterator[range]:
    """One trace after the other for as long as the benchmark runs, with as much time in between as one takes."""
    workdir = await_value(lambda: next(folder.glob("**/endpoints.json"), None), "a job").parent
    path = folder / "trace.json"
    words = [program, "trace", "--workdir", workdir, "--steps", str(steps), "--out", path]
    while bench.runs():
        begin = time.monotonic()
        # It is refused until there are workers, and once they leave.
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=RUN_SECONDS, check=False)
        took = time.monotonic() - begin
        threading.Event().wait(took if done.returncode == 0 else LOOK_SECONDS)
        if done.returncode == 0 and bench.runs():
            yield traced(path, steps)


def pairs_of_traces(program: str, words: list[str], steps_at_a_time: int) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder, Bench(program, words, folder) as bench:
        windows = list(record(program, bench, pathlib.Path(folder), steps_at_a_time))
        steps = bench.cpu_seconds()
    ends = [window.stop + REPORT_STEPS for window in windows]
    for before, window, end, following in zip(ends, windows[1:], ends[1:], windows[2:]):
        if before < window.start and end < following.start:
            # On both sides: a machine that becomes slower or faster all the time makes no difference.
            yield Pair(steps[before:window.start] + steps[end:following.start], steps[window.start:end])


def summary(name: str, middle: Callable[[list[float]], float], pairs: list[Pair]) -> str:
    ratios = [middle(pair.other) / middle(pair.one) for pair in pairs]
    chance = random.Random(1)
    means = sorted(statistics.mean(chance.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    low, high = means[SAMPLES // 40], means[-SAMPLES // 40]
    return f"{name} ratio {statistics.mean(ratios):.4f}, 95 % within {low:.4f} to {high:.4f}, of {len(ratios)} pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, help="default 20; with --traced as many as --steps allow")
    parser.add_argument("--program", default="build/release/pushpull")
    parser.add_argument("--other", help="default: the same")
    parser.add_argument("--steps", type=int, help="of a job; default 16, within one job 3600")
    parser.add_argument("--traced", type=int, default=0, metavar="STEPS", help="steps of a trace")
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--both", default="", help="words for both ways, as --both='--workers 3'")
    parser.add_argument("words", nargs="*", help="for the other way")
    flags = parser.parse_args()
    if (flags.traced or flags.left_out) and (flags.other or flags.words):
        parser.error("--traced and --left-out compare steps of one job: no --other, no WORDS")
    if flags.traced and (flags.left_out or flags.pairs):
        parser.error("--traced excludes --left-out and --pairs: its number of pairs follows from --steps")
    count = flags.pairs or PAIRS
    steps = flags.steps or (3600 if flags.traced or flags.left_out else 16)
    both = ["--steps", str(steps), *flags.both.split()]
    if flags.traced:
        found = pairs_of_traces(flags.program, both, flags.traced)
    elif flags.left_out:
        found = pairs_of_random_steps(flags.program, both, count)
    else:
        found = pairs_of_jobs([(flags.program, both), (flags.other or flags.program, both + flags.words)], count)
    pairs = []
    try:
        for pair in found:
            pairs.append(pair)
            one, other = statistics.median(pair.one), statistics.median(pair.other)
            print(f"pair {len(pairs)}: {one:.4f} s ({len(pair.one)} steps), {other:.4f} s ({len(pair.other)}), ratio {other / one:.4f}", flush=True)
    except Failed as failure:
        raise SystemExit(f"pairs.py: {failure}") from None
    if not pairs:
        raise SystemExit("pairs.py: no pair was measured: raise --steps")
    print()
    print(summary("medians:", statistics.median, pairs))
    print(summary("means:  ", statistics.mean, pairs))


if __name__ == "__main__":
    main()
