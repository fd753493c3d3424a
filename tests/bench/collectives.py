# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes against Open MPI and gloo, and algorithms against each other, in rounds of turns.

    python3 tests/bench/collectives.py [--rounds 5] [--only PATTERN] [--program FILE] [--json FILE]

Needs Debian's openmpi-bin, libopenmpi-dev and libgloo-dev; without them their rows are left out. Each round runs every case
once, so that a case and its reference see the same machine; what counts are ratios of medians within one run.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
from typing import Callable, Optional

REFERENCES = pathlib.Path(__file__).parent / "references"
RUN_SECONDS = 300
REPEATS = 9
LARGE, CALL = 160_000_000, 4_000_000
GLOO_ALGORITHMS = ("ring", "bcube", "ring_chunked", "halving_doubling")
MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1",
       "--mca", "btl", "vader,self", "-n", "2"]
TCP_BYTES = (1 << 20, 1 << 24, LARGE)
# Sizes and repeats of the comparison of auto with every algorithm.
CHOICES = (("1Ki", 255), ("64Ki", 255), ("1Mi", 255), ("16Mi", 51))
USED = "the one that auto has chosen"

Case = Callable[[], float]  # seconds of one call, the median of its repeats


def lines(command: list[str]) -> list[float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
    return [float(line) for line in done.stdout.split()]


class Cases:
    def __init__(self, program: str, folder: pathlib.Path) -> None:
        self.program, self.folder = program, folder
        self.mpi = self._compiled(["mpicxx", "-O2"], "mpi_allreduce", [])
        self.gloo = self._compiled(["g++", "-O2", "-std=c++17"], "gloo_allreduce", ["-lgloo", "-lpthread"])

    def _compiled(self, compiler: list[str], name: str, libraries: list[str]) -> Optional[pathlib.Path]:
        target = self.folder / name
        if shutil.which(compiler[0]) is None:
            return None
        done = subprocess.run([*compiler, "-o", str(target), str(REFERENCES / f"{name}.cc"), *libraries],
                              capture_output=True, check=False)
        return target if done.returncode == 0 else None

    def pushpull(self, bytes_: int, algorithm: str, *words: str) -> Case:
        def run() -> float:
            done = subprocess.run([self.program, "bench", "collective", "--json", "--repeats", str(REPEATS), "--bytes",
                                   str(bytes_), "--algorithm", algorithm, *words],
                                  capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
            result = json.loads(done.stdout)
            assert result["verified"], result
            return float(result["results"][0]["seconds"]["p50"])
        return run

    def by_algorithm(self, only: re.Pattern[str]) -> dict[tuple[str, str], float]:
        """Seconds of a call, by channel, ranks and size, and by algorithm, auto among them."""
        found = {}
        for channel in ("shm", "tcp"):
            for ranks in (2, 4):
                for bytes_, repeats in CHOICES:
                    case = f"{channel} {bytes_}, {ranks} ranks"
                    if not only.search(case):
                        continue
                    done = subprocess.run([self.program, "bench", "collective", "--json", "--repeats", str(repeats),
                                           "--channel", channel, "--ranks", str(ranks), "--algorithm", "all", "--bytes", bytes_],
                                          capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
                    by_name = {one["algorithm"]: one for one in json.loads(done.stdout)["results"]}
                    for name, one in by_name.items():
                        found[case, name] = one["seconds"]["p50"]
                    used = by_name[by_name["auto"]["used"]]
                    found[case, USED] = used["seconds"]["p50"]
        return found

    def mpi_vader(self) -> float:
        return statistics.median(lines([*MPI, str(self.mpi), str(LARGE), str(CALL), str(REPEATS)]))

    def gloo_tcp(self, bytes_: int, algorithm: str) -> Case:
        def run() -> float:
            with tempfile.TemporaryDirectory(dir=self.folder) as store:
                command = [[str(self.gloo), store, str(rank), "2", algorithm, str(bytes_), str(REPEATS)] for rank in (0, 1)]
                with subprocess.Popen(command[1], stdout=subprocess.DEVNULL):
                    return statistics.median(lines(command[0]))
        return run

    def all(self) -> dict[str, Case]:
        eight = ("--ranks", "8")
        cases = {"shm 160 MB": self.pushpull(LARGE, "auto"), "shm 160 MB private": self.pushpull(LARGE, "auto", "--private"),
                 "shm 1 MiB": self.pushpull(1 << 20, "auto"), "shm 1 MiB private": self.pushpull(1 << 20, "auto", "--private")}
        if self.mpi:
            cases["mpi 160 MB"] = self.mpi_vader
        for bytes_ in TCP_BYTES:
            cases[f"tcp {bytes_}"] = self.pushpull(bytes_, "auto", "--channel", "tcp")
            if self.gloo:
                cases |= {f"gloo {bytes_} {name}": self.gloo_tcp(bytes_, name) for name in GLOO_ALGORITHMS}
        for channel in ("shm", "tcp"):
            for bytes_ in (1 << 10, 1 << 16):
                for algorithm in ("ring", "tree"):
                    cases[f"{channel} 8 ranks {bytes_} {algorithm}"] = self.pushpull(
                        bytes_, algorithm, *eight, "--channel", channel)
        return cases


def ratios(median: dict[str, float]) -> dict[str, float]:
    found = {}
    for kind in ("", " private"):
        if "mpi 160 MB" in median and f"shm 160 MB{kind}" in median:
            found[f"shm 160 MB{kind}, 2 ranks: time over Open MPI vader, calls of 4 MB"] = (
                median[f"shm 160 MB{kind}"] / median["mpi 160 MB"])
    for name in ("shm 160 MB", "shm 1 MiB"):
        if name in median and f"{name} private" in median:
            found[f"{name}, 2 ranks: shared over private arrays"] = median[name] / median[f"{name} private"]
    for bytes_ in TCP_BYTES:
        gloo = [seconds for name, seconds in median.items() if name.startswith(f"gloo {bytes_} ")]
        if gloo and f"tcp {bytes_}" in median:
            found[f"tcp {bytes_} bytes, 2 ranks: time over gloo's best"] = median[f"tcp {bytes_}"] / min(gloo)
    for channel in ("shm", "tcp"):
        for bytes_ in (1 << 10, 1 << 16):
            name = f"{channel} 8 ranks {bytes_}"
            if f"{name} tree" in median and f"{name} ring" in median:
                found[f"{channel} {bytes_} bytes, 8 ranks: tree over ring"] = median[f"{name} tree"] / median[f"{name} ring"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="PATTERN",
                        help="only cases whose name, as it is printed, matches this regular expression")
    parser.add_argument("--program", default="build/release/pushpull")
    parser.add_argument("--json", help="where every round is written")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        references = Cases(flags.program, pathlib.Path(folder))
        cases = {name: case for name, case in references.all().items() if flags.only.search(name)}
        rounds: dict[str, list[float]] = {name: [] for name in cases}
        choices: dict[str, dict[str, list[float]]] = {}
        for number in range(flags.rounds):
            for name, case in cases.items():
                rounds[name].append(case())
            for (name, algorithm), seconds in references.by_algorithm(flags.only).items():
                choices.setdefault(name, {}).setdefault(algorithm, []).append(seconds)
            print(f"round {number + 1} of {flags.rounds}", flush=True)
    median = {name: statistics.median(seconds) for name, seconds in rounds.items()}
    for name, seconds in rounds.items():
        print(f"{name:40} {median[name] * 1e6:12.1f} us ({min(seconds) * 1e6:.1f} to {max(seconds) * 1e6:.1f})")
    print()
    for name, ratio in ratios(median).items():
        print(f"{name:60} {ratio:.3f}")
    for name, by_algorithm in choices.items():
        medians = {algorithm: statistics.median(seconds) for algorithm, seconds in by_algorithm.items()}
        auto, used = medians.pop("auto"), medians.pop(USED)
        fastest = min(medians, key=lambda algorithm: medians[algorithm])
        print(f"{name + ': auto over the fastest':60} {auto / medians[fastest]:.3f} ({fastest}), "
              f"over {USED} {auto / used:.3f}")
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
