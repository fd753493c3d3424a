#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A ring in both directions against a ring in one, where neighbours have links of their own: four ranks in network
namespaces, a veth pair between each two neighbours, both directions shaped. Needs root, iproute2 and a release build.

    python3 tests/bench/ring_links.py [--rounds 5] [--megabits 400] [--mebibytes 64]
"""
import argparse
import json
import os
import statistics
import subprocess

RANKS = 4
RUN_SECONDS = 300


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Ring:
    """Rank i has the address 10.77.0.<i + 1> and, towards each neighbour j, a device to<j>."""

    def __init__(self, megabits: int) -> None:
        self.megabits = megabits
        self.names = [f"pp-ring-{os.getpid()}-{rank}" for rank in range(RANKS)]

    def __enter__(self) -> "Ring":
        for rank, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"{self.address(rank)}/32", "dev", "lo")
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        for rank in range(RANKS):
            self.connect(rank, (rank + 1) % RANKS)
        # Ranks that are not neighbours say hello to each other, and no more: past the next one.
        for rank, name in enumerate(self.names):
            ip("-n", name, "route", "add", self.address((rank + 2) % RANKS), "via", self.address((rank + 1) % RANKS),
               "dev", f"to{(rank + 1) % RANKS}", "onlink", "src", self.address(rank))
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def address(rank: int) -> str:
        return f"10.77.0.{rank + 1}"

    def connect(self, a: int, b: int) -> None:
        ip("link", "add", f"to{b}", "netns", self.names[a], "type", "veth", "peer", "name", f"to{a}", "netns", self.names[b])
        for here, there in ((a, b), (b, a)):
            name, device = self.names[here], f"to{there}"
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "route", "add", self.address(there), "dev", device, "src", self.address(here))
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.megabits}mbit",
                            "burst", "256k", "latency", "50ms"], check=True)

    def places(self) -> str:
        return ",".join(f"{name}={self.address(rank)}" for rank, name in enumerate(self.names))


def measure(program: str, ring: Ring, bytes_: int) -> dict[str, float]:
    """Median seconds of a call, by algorithm."""
    done = subprocess.run([program, "bench", "collective", "--json", "--ranks", str(RANKS), "--channel", "tcp", "--at",
                           ring.places(), "--bytes", str(bytes_), "--repeats", "3", "--algorithm",
                           "ring,bidirectional-ring"], capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench collective ends with {done.returncode}: {done.stderr}")
    return {one["algorithm"]: one["seconds"]["p50"] for one in json.loads(done.stdout)["results"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabits", type=int, default=400, help="a second, of each direction of a link")
    parser.add_argument("--mebibytes", type=int, default=64, help="of each rank's array")
    parser.add_argument("--program", default="build/release/pushpull")
    flags = parser.parse_args()
    rounds = []
    with Ring(flags.megabits) as ring:
        for number in range(flags.rounds):
            rounds.append(measure(flags.program, ring, flags.mebibytes << 20))
            print(f"round {number + 1}: " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in rounds[-1].items()),
                  flush=True)
    ratios = [one["ring"] / one["bidirectional-ring"] for one in rounds]
    print(f"one direction over both: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
