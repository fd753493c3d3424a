#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of four workers on one machine, with and without spec.sync.localReduce, by `pushpull run --topology`: they
share a network namespace whose link is shaped. Needs root, and a release build with its tests.

    python3 tests/bench/local_reduce.py [--rounds 5] [--steps 10] [--megabytes 32] [--megabits 1000] [--workers 4]
                                        [--servers 2]

Each server is on a machine of its own, with a link that is no limit. Workers reach each other through shared memory, as
on a real machine, and servers over the link only.
"""
import argparse
import json
import pathlib
import statistics
import sys
from typing import Any

import topology_job

CASES = ("None", "Host")


def topology(arguments: argparse.Namespace) -> dict[str, Any]:
    """A machine has a worker for each GPU; the probe uses none."""
    return topology_job.topology({"gpus": arguments.workers, "pcie": {"bandwidth": "16GB/s"},
                                  "nics": [{"bandwidth": f"{arguments.megabits}Mb/s"}]},
                                 {"workers": 1, "servers": arguments.servers, "serverBandwidth": "100Gb/s"})


def measure(case: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a step, from the first gradient to the last new value, over all workers; and the bytes of
    gradients that servers received in a step: what workers sent, without the first values, which each of them sends."""
    job = topology_job.manifest("local-reduce", arguments.steps, arguments.megabytes, sync={"localReduce": case},
                                servers={"replicas": arguments.servers}, workers={"replicas": arguments.workers})
    report = topology_job.report_of(job, topology(arguments), case)
    sent = report["bytes"]["pushed"] - arguments.workers * (arguments.megabytes << 20)
    return {"seconds": float(report["sync"]["p50_seconds"]), "bytes": sent / report["steps"]}


def describe(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=32, help="of gradients")
    parser.add_argument("--megabits", type=int, default=1000, help="a second, of the link that the workers share")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, help="JSON of every round")
    arguments = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(arguments.rounds):
        rounds.append({})
        for case in CASES:
            rounds[-1][case] = measure(case, arguments)
            print(f"round {number + 1}: {case}: {rounds[-1][case]['seconds']:.3f} s, "
                  f"{rounds[-1][case]['bytes'] / 2**20:.1f} MiB to the servers", flush=True)
    if arguments.results:
        arguments.results.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    for case in CASES:
        seconds = [each[case]["seconds"] for each in rounds]
        mebibytes = [each[case]["bytes"] / 2**20 for each in rounds]
        print(f"{case}: a step takes {describe(seconds, 3)} s, and servers receive {describe(mebibytes, 1)} MiB in it")
    for what in ("seconds", "bytes"):
        print(f"None over Host, {what}: {describe([each['None'][what] / each['Host'][what] for each in rounds], 2)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
