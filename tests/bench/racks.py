#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of workers in two racks with a narrow uplink, with and without spec.workers.topologyKey, by `pushpull run
--topology`: each worker is a network namespace. Needs root, and a release build with its tests.

    python3 tests/bench/racks.py [--rounds 5] [--steps 8] [--megabytes 4] [--megabits 400] [--narrower 4] [--workers 4]

Mode AllReduce without and with the field, and mode Sync with two servers in each rack, whose workers do not sum inside
their rack. A rack's uplink is `narrower` times narrower than the link of one worker. Workers are dealt to the racks in
turn, as a scheduler spreads them, so neighbours in the ring without the field are in different racks.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUSHPULL = os.environ.get("PUSHPULL_BIN", str(ROOT / "build/release/pushpull"))
PROBE = os.environ.get("PROBE_WORKER", str(ROOT / "build/release/tests/probe_worker"))
API_VERSION = "pushpull.dev/v1alpha1"
TENSOR_BYTES = 1 << 20
RUN_SECONDS = 600
CASES = ("AllReduce, flat", "AllReduce, racks", "Sync, flat")


def topology(arguments: argparse.Namespace) -> dict[str, Any]:
    rack = {"workers": arguments.workers, "servers": 2, "uplink": f"{arguments.megabits / arguments.narrower}Mb/s"}
    return {"apiVersion": API_VERSION, "kind": "Topology", "machine": {"nics": [{"bandwidth": f"{arguments.megabits}Mb/s"}]},
            "cluster": {"racks": [rack, rack]}}


def manifest(case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    workers: dict[str, Any] = {"replicas": 2 * arguments.workers}
    if case.endswith("racks"):
        workers["topologyKey"] = "topology.kubernetes.io/rack"
    mode = case.partition(",")[0]
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": {"name": "racks"},
            "spec": {"command": [PROBE, "--optimizer", "sum", "--steps", str(arguments.steps), "--tensors",
                                 str((arguments.megabytes << 20) // TENSOR_BYTES), "--values", str(TENSOR_BYTES // 4)],
                     "sync": {"mode": mode}, "servers": {"replicas": 4 if mode == "Sync" else 0}, "workers": workers}}


def measure(case: str, arguments: argparse.Namespace) -> float:
    """Median seconds of a step, from the first gradient to the last new value, over all workers."""
    with tempfile.TemporaryDirectory(prefix="pushpull-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "topology.yaml").write_text(json.dumps(topology(arguments)), encoding="utf-8")
        (folder / "job.yaml").write_text(json.dumps(manifest(case, arguments)), encoding="utf-8")
        ran = subprocess.run([PUSHPULL, "run", folder / "job.yaml", "--topology", folder / "topology.yaml", "--workdir",
                              folder / "workdir", "--report", folder / "report.json", "--progress", "none"],
                             capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
        if ran.returncode != 0:
            sys.exit(f"racks.py: {case}: exit code {ran.returncode}\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
        return float(json.loads((folder / "report.json").read_text(encoding="utf-8"))["sync"]["p50_seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=4, help="of gradients")
    parser.add_argument("--megabits", type=int, default=400, help="a second, of each worker's link")
    parser.add_argument("--narrower", type=float, default=4)
    parser.add_argument("--workers", type=int, default=4, help="in each rack")
    parser.add_argument("--results", type=pathlib.Path, help="JSON of every round")
    arguments = parser.parse_args()
    rounds: list[dict[str, float]] = []
    for number in range(arguments.rounds):
        rounds.append({})
        for case in CASES:
            rounds[-1][case] = measure(case, arguments)
            print(f"round {number + 1}: {case}: {rounds[-1][case]:.3f} s", flush=True)
    if arguments.results:
        arguments.results.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    for case in CASES:
        seconds = [each[case] for each in rounds]
        ratios = [each[case] / each["AllReduce, racks"] for each in rounds]
        print(f"{case:18} {statistics.median(seconds):7.3f} s [{min(seconds):.3f}..{max(seconds):.3f}]  "
              f"{statistics.median(ratios):5.2f} of racks [{min(ratios):.2f}..{max(ratios):.2f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
