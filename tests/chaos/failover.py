# SPDX-License-Identifier: Apache-2.0
"""Kills or stops a random server at a random moment; the weights must not differ in a single bit."""
import os
import random
import signal
import threading

import training
from training import job

STEPS = 120
SERVERS = 3


def run(runs: int, seed: int) -> None:
    """`runs` jobs, every second one with a server that is stopped instead; AssertionError at the first
    that differs or fails."""
    expected = training.undisturbed(STEPS, SERVERS)
    seconds = expected.report["training_seconds"]
    print(f"failover: undisturbed {seconds:.1f} s, longest step {expected.pause_seconds:.3f} s")
    pauses: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGSTOP: []}
    for number in range(runs):
        fault = signal.SIGKILL if number % 2 == 0 else signal.SIGSTOP
        chance = random.Random(f"failover {seed} {number}")
        server, moment = chance.randrange(SERVERS), chance.uniform(0.05, 0.75) * seconds
        what = f"failover run {number} seed {seed}: {fault.name} server-{server} after {moment:.3f} s"
        print(what, end="", flush=True)
        outcome = run_once(server, fault, moment)
        assert outcome.weights == expected.weights, f"{what}: the weights differ"
        print(f": equal, pause {outcome.pause_seconds:.3f} s")
        pauses[fault].append(outcome.pause_seconds)
    for fault, measured in pauses.items():
        if measured:
            print(f"failover pauses after {fault.name}: {training.pauses_line(measured)}")


def run_once(server: int, fault: signal.Signals, moment: float) -> training.Outcome:
    with job.Jobs() as jobs:
        started = training.Training(jobs, STEPS, SERVERS, replication=1)
        threading.Event().wait(moment)
        pid = started.job.signal_member("server", server, fault)
        outcome = started.finish()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    # The job may be over before one that was stopped has been replaced.
    restarts = outcome.report["restarts"]
    assert restarts == 1 or (fault == signal.SIGSTOP and restarts == 0), outcome.report
    return outcome
