# SPDX-License-Identifier: Apache-2.0
"""Adds and removes servers under load; the weights must not differ in a single bit.

Without replication nothing else happens; with it, a random server is killed during each move.
"""
import contextlib
import os
import random
import signal
import threading
from typing import Any

import training
from training import job

STEPS = 400
FIRST = 2
CALM_TARGETS = (4, 3, 1, 2)
STORMY_TARGETS = (4, 3, 2)
MOVE_SECONDS = 60
KILL_WITHIN_SECONDS = 1.0


def run(runs: int, seed: int) -> None:
    """`runs` jobs of each kind; AssertionError at the first that differs or fails."""
    expected = training.undisturbed(STEPS, FIRST)
    print(f"resize: undisturbed {expected.report['training_seconds']:.1f} s, "
          f"longest step {expected.pause_seconds:.3f} s")
    pauses = []
    for number in range(runs):
        outcome = run_calm()
        assert outcome.weights == expected.weights, f"resize run {number}: the weights differ"
        pauses += [resize["pause_seconds"] for resize in outcome.report["resizes"]]
        print(f"resize run {number}: equal")
        chance = random.Random(f"resize {seed} {number}")
        what = f"resize run {number} seed {seed} with kills"
        outcome = run_stormy(chance)
        assert outcome.weights == expected.weights, f"{what}: the weights differ"
        print(f"{what}: equal, pause {outcome.pause_seconds:.3f} s")
    print(f"resize pauses without kills: {training.pauses_line(pauses)}")


def bytes_of_servers(started: training.Training) -> dict[int, int]:
    """Of values, by server, once all servers have reported what they hold now."""
    total = training.TENSORS * training.VALUES * 4

    def complete() -> dict[int, int]:
        held = {s["index"]: s["bytes"] for s in started.job.status().get("servers", [])}
        return held if sum(held.values()) == total else {}

    return job.wait_until(complete, 10, f"the servers hold {total} bytes in all")


def run_calm() -> training.Outcome:
    with job.Jobs() as jobs:
        started = training.Training(jobs, STEPS, FIRST, replication=0)
        pids = (started.pids("coordinator", 1), started.pids("worker", training.WORKERS),
                started.pids("server", 1))
        held, minima = bytes_of_servers(started), []
        for target in CALM_TARGETS:
            scale(started, target, "--wait")
            before, held = held, bytes_of_servers(started)
            assert sorted(held) == list(range(target)), held
            gains = [max(0, held[server] - before.get(server, 0)) for server in held]
            minima.append(sum(gains) * training.STATE_COPIES)
        assert pids == (started.pids("coordinator", 1), started.pids("worker", training.WORKERS),
                        started.pids("server", 1)), "a process was restarted"
        outcome = started.finish()
    assert outcome.report["restarts"] == 0, "a process was restarted"
    print_resizes(outcome.report["resizes"], minima)
    return outcome


def print_resizes(resizes: list[dict[str, Any]], minima: list[int]) -> None:
    assert [resize["to"] for resize in resizes] == list(CALM_TARGETS), resizes
    for resize, minimum in zip(resizes, minima):
        share = resize["moved_bytes"] / minimum
        print(f"resize {resize['from']} -> {resize['to']}: {resize['seconds']:.2f} s, pause "
              f"{resize['pause_seconds']:.3f} s, moved {resize['moved_bytes'] / 1e6:.1f} MB, "
              f"{share:.2f} x the minimum")


def run_stormy(chance: random.Random) -> training.Outcome:
    with job.Jobs() as jobs:
        started = training.Training(jobs, STEPS, FIRST, replication=1)
        for target in STORMY_TARGETS:
            scale(started, target)
            threading.Event().wait(chance.uniform(0, KILL_WITHIN_SECONDS))
            there = [server["index"] for server in started.job.status()["servers"]]
            victim = chance.choice(there)
            entry = started.job.endpoint("server", victim)
            with contextlib.suppress(ProcessLookupError):  # it may have been released, and ended, meanwhile
                if entry is not None:
                    os.kill(entry["pid"], signal.SIGKILL)
            scale(started, target, "--wait")
        return started.finish()


def scale(started: training.Training, servers: int, *flags: str) -> None:
    """AssertionError with what went wrong."""
    timeout = ("--timeout", MOVE_SECONDS) if "--wait" in flags else ()
    done = started.job.scale(servers, *flags, *timeout, seconds=2 * MOVE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr + started.job.launcher.output
