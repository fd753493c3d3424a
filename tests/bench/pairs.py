# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of a synchronisation step, two ways in turn, for differences too small to be seen in a step's time.

    python3 tests/bench/pairs.py [--pairs 20] [--program FILE] [--other FILE] [--both WORDS] [-- WORDS]

The one way is `FILE bench sync --steps 16` and the words of --both, the other the same of another program (a build without
what is asked for), or with WORDS added. Printed is the mean of the pairs' ratios, other over one, with the interval that has 95 % of the means of
10,000 samples drawn from the pairs.
"""
import argparse
import json
import random
import statistics
import subprocess

SAMPLES = 10_000
RUN_SECONDS = 600


def cpu_of_step(program: str, words: list[str]) -> float:
    done = subprocess.run([program, "bench", "sync", "--json", "--steps", "16", *words], capture_output=True, text=True,
                          timeout=RUN_SECONDS, check=True)
    result = json.loads(done.stdout)
    return float(result["cpu_seconds_per_gigabyte"] * result["wire_bytes_per_step"] / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--program", default="build/release/pushpull")
    parser.add_argument("--other", help="default: the same")
    parser.add_argument("--both", default="", help="words for both ways, as --both='--workers 3'")
    parser.add_argument("words", nargs="*", help="for the other way")
    flags = parser.parse_args()
    ratios = []
    for number in range(flags.pairs):
        both = flags.both.split()
        ways = [(flags.program, both), (flags.other or flags.program, both + flags.words)]
        order = [0, 1] if number % 2 == 0 else [1, 0]  # neither always comes after the other
        seconds = {way: cpu_of_step(*ways[way]) for way in order}
        ratios.append(seconds[1] / seconds[0])
        print(f"pair {number + 1}: {seconds[0]:.4f} s, {seconds[1]:.4f} s, ratio {ratios[-1]:.4f}", flush=True)
    chance = random.Random(1)
    means = sorted(statistics.mean(chance.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    low, high = means[SAMPLES // 40], means[-SAMPLES // 40]
    print(f"\nratio {statistics.mean(ratios):.4f}, 95 % within {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    main()
