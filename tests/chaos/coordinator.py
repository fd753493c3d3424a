# SPDX-License-Identifier: Apache-2.0
"""Kills or stops the coordinator at a random moment; no step may fail, the weights must not differ in a
single bit."""
import random
import signal
import threading

import training
from training import job

STEPS = 120
SERVERS = 3


def run(runs: int, seed: int) -> None:
    """`runs` jobs, with replication 1 and 0 by turns; AssertionError at the first that differs or
    fails."""
    expected = training.undisturbed(STEPS, SERVERS)
    seconds = expected.report["training_seconds"]
    print(f"coordinator: undisturbed {seconds:.1f} s, longest step {expected.pause_seconds:.3f} s")
    pauses: list[float] = []
    for number in range(runs):
        chance = random.Random(f"coordinator {seed} {number}")
        replication, kills = 1 - number % 2, 1 + chance.randrange(2)
        moments = [chance.uniform(0.05, 0.75 / kills) * seconds for _ in range(kills)]
        times = ", ".join(f"{moment:.3f} s" for moment in moments)
        what = f"coordinator run {number} seed {seed}: replication {replication}, killed after {times}"
        print(what, end="", flush=True)
        outcome = run_once(replication, moments)
        assert outcome.weights == expected.weights, f"{what}: the weights differ"
        print(f": equal, pause {outcome.pause_seconds:.3f} s")
        pauses.append(outcome.pause_seconds)
    print(f"coordinator pauses: {training.pauses_line(pauses)}")


def run_once(replication: int, moments: list[float]) -> training.Outcome:
    """Kills the coordinator after each of the times, each counted from the one before."""
    with job.Jobs() as jobs:
        started = training.Training(jobs, STEPS, SERVERS, replication)
        for moment in moments:
            threading.Event().wait(moment)
            started.job.signal_member("coordinator", 0, signal.SIGKILL)
            started.job.wait_for_status("Running")
        outcome = started.finish()
    report = outcome.report
    assert report["restarts"] == len(moments), report
    assert report["contributors"] == {"min": training.WORKERS, "max": training.WORKERS}, report
    assert [point["step"] for point in report["losses"]] == list(range(STEPS)), report["losses"]
    return outcome
