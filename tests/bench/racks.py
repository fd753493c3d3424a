#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of workers in two racks with a narrow uplink, with and without spec.workers.topologyKey, by `pushpull run
--topology`: each worker is a network namespace. Needs root, and a release build with its tests.

    python3 tests/bench/racks.py [--rounds 5] [--steps 8] [--megabytes 4] [--megabits 400] [--narrower 4] [--workers 4]

Mode AllReduce without and with the field, and mode Sync with two servers in each rack, without and with
spec.sync.localReduce: Rack. A rack's uplink is `narrower` times narrower than the link of one worker. Workers are dealt to the racks in
turn, as a scheduler spreads them, so neighbours in the ring without the field are in different racks.
"""
import argparse
import json
import pathlib
import statistics
import sys
from typing import Any

import topology_job

CASES = ("AllReduce, flat", "AllReduce, racks", "Sync, flat", "Sync, racks")


def topology(arguments: argparse.Namespace) -> dict[str, Any]:
    rack = {"workers": arguments.workers, "servers": 2, "uplink": f"{arguments.megabits / arguments.narrower}Mb/s"}
    return topology_job.topology({"nics": [{"bandwidth": f"{arguments.megabits}Mb/s"}]}, {"racks": [rack, rack]})


def measure(case: str, arguments: argparse.Namespace) -> float:
    """Median seconds of a step, from the first gradient to the last new value, over all workers."""
    workers: dict[str, Any] = {"replicas": 2 * arguments.workers}
    if case.endswith("racks"):
        workers["topologyKey"] = "topology.kubernetes.io/rack"
    mode = case.partition(",")[0]
    sync = {"mode": mode, **({"localReduce": "Rack"} if case == "Sync, racks" else {})}
    job = topology_job.manifest("racks", arguments.steps, arguments.megabytes, sync=sync,
                                servers={"replicas": 4 if mode == "Sync" else 0}, workers=workers)
    return float(topology_job.report_of(job, topology(arguments), case)["sync"]["p50_seconds"])


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
