# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of a synchronisation step, two ways in turn, for differences too small to be seen in a step's time.

    python3 tests/bench/pairs.py [--pairs 20] [--steps 16] [--program FILE] [--other FILE] [--traced STEPS] [--both WORDS] [-- WORDS]

The one way is `FILE bench sync --steps 16` and the words of --both, the other the same of another program (a build without
what is asked for), with WORDS added, or while `pushpull trace` records STEPS of its steps. Printed is the mean of the pairs'
ratios, other over one, with the interval that has 95 % of the means of 10,000 samples drawn from the pairs.
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
from typing import Any, Callable

SAMPLES = 10_000
RUN_SECONDS = 600
START_SECONDS = 60
LOOK_SECONDS = 0.01


@dataclasses.dataclass(frozen=True)
class Way:
    program: str
    words: list[str]
    traced_steps: int = 0  # 0: no trace


class Failed(Exception):
    pass


def await_value(look: Callable[[], Any], what: str) -> Any:
    """Its first true value."""
    pause = threading.Event()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if value := look():
            return value
        pause.wait(LOOK_SECONDS)
    raise Failed(f"not within {START_SECONDS} s: {what}")


def record(way: Way, folder: pathlib.Path) -> None:
    """Traces the job that runs below the folder, once it has workers."""
    workdir = await_value(lambda: next(folder.glob("**/endpoints.json"), None), "a job").parent
    path = folder / "trace.json"

    words = [way.program, "trace", "--workdir", workdir, "--steps", str(way.traced_steps), "--out", path]
    # It is refused until there are workers.
    await_value(lambda: subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=RUN_SECONDS, check=False).returncode == 0,
                "a trace")
    trace = json.loads(path.read_text(encoding="utf-8"))
    recorded = {event["args"]["step"] for event in trace["traceEvents"] if event.get("cat") == "push" and event["ph"] == "X"}
    if len(recorded) != way.traced_steps or trace["otherData"]["left_out"]:
        raise Failed(f"{len(recorded)} steps of {way.traced_steps} are in the trace, {trace['otherData']['left_out']} pushes are not")


def cpu_of_step(way: Way, steps: int) -> float:
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder:
        bench = subprocess.Popen([way.program, "bench", "sync", "--json", "--steps", str(steps), *way.words], stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "TMPDIR": folder})
        try:
            if way.traced_steps:
                record(way, pathlib.Path(folder))
            printed = bench.communicate(timeout=RUN_SECONDS)[0]
        finally:
            bench.terminate()
            bench.wait()
    if bench.returncode != 0:
        raise Failed(f"{way} has ended with {bench.returncode}")
    result = json.loads(printed)
    return float(result["cpu_seconds_per_gigabyte"] * result["wire_bytes_per_step"] / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--program", default="build/release/pushpull")
    parser.add_argument("--other", help="default: the same")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--traced", type=int, default=0, metavar="STEPS", help="of the other way; fewer than --steps, so that it ends before the job")
    parser.add_argument("--both", default="", help="words for both ways, as --both='--workers 3'")
    parser.add_argument("words", nargs="*", help="for the other way")
    flags = parser.parse_args()
    ratios = []
    for number in range(flags.pairs):
        both = flags.both.split()
        ways = [Way(flags.program, both), Way(flags.other or flags.program, both + flags.words, flags.traced)]
        order = [0, 1] if number % 2 == 0 else [1, 0]  # neither always comes after the other
        try:
            seconds = {way: cpu_of_step(ways[way], flags.steps) for way in order}
        except Failed as failure:
            raise SystemExit(f"pairs.py: {failure}") from None
        ratios.append(seconds[1] / seconds[0])
        print(f"pair {number + 1}: {seconds[0]:.4f} s, {seconds[1]:.4f} s, ratio {ratios[-1]:.4f}", flush=True)
    chance = random.Random(1)
    means = sorted(statistics.mean(chance.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    low, high = means[SAMPLES // 40], means[-SAMPLES // 40]
    print(f"\nratio {statistics.mean(ratios):.4f}, 95 % within {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    main()
