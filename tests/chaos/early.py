# SPDX-License-Identifier: Apache-2.0
"""Faults of every kind from the first process of a job on: 5 servers, replication 2, 3 workers. The weights
must not differ in a single bit.

Servers are killed, stopped for a while or told to end, two of them a run at most, which is what replication 2
bears; servers are added and removed; the coordinator is killed or stopped; workers are stopped for a moment.
A worker that dies is missing in its step, so workers are killed and told to end only while another of them is
held back: no step begins without all. Half of the runs with several faults have two at once.
"""
import random
import time
from typing import Optional

import training
from faults import PEER_TIMEOUT_SECONDS, SERVER_FAULTS, WORKER_ENDS, Fault, Faults, stop_seconds
from training import job

STEPS = 60
SERVERS, REPLICATION = 5, 2
SERVERS_MAX = 7
VALUES = 393_216  # half of the other themes': two dozen chunks
FAULTS_MAX = 4
MOMENT_MAX_SECONDS = 1.5  # the first step of an undisturbed job comes in less than a second
FAULTS = (*SERVER_FAULTS, "scale", "kill coordinator", "stop coordinator", "stop worker", *WORKER_ENDS)


def draw(chance: random.Random) -> list[Fault]:
    """The faults of a run in their order."""
    faults: list[Fault] = []
    for number in range(1 + chance.randrange(FAULTS_MAX)):
        server_faults = sum(fault.kind in SERVER_FAULTS for fault in faults)
        kinds = [kind for kind in FAULTS
                 if kind not in SERVER_FAULTS or server_faults < REPLICATION]
        kind = chance.choice(kinds)
        is_at_once = number == 1 and chance.randrange(2) == 0
        moment = faults[0].moment if is_at_once else chance.uniform(0, MOMENT_MAX_SECONDS)
        faults.append(Fault(kind, moment, chance.random(), stop_seconds(chance, kind),
                            chance.randrange(REPLICATION + 1, SERVERS_MAX + 1)))
    return sorted(faults, key=lambda fault: fault.moment)


def run(runs: int, seed: int, first: int) -> None:
    """The `runs` jobs from number `first` on; AssertionError at the end where one differs or fails."""
    began = time.monotonic()
    expected = run_once([], 20).weights
    seconds = time.monotonic() - began
    print(f"early: undisturbed {seconds:.1f} s from the first process to the last")
    failed = []
    for number in range(first, first + runs):
        faults = draw(random.Random(f"early {seed} {number}"))
        what = f"early run {number} seed {seed}: {', '.join(map(str, faults))}"
        print(what, end="", flush=True)
        began = time.monotonic()
        try:
            run_once(faults, PEER_TIMEOUT_SECONDS, expected)
            print(f": equal, {time.monotonic() - began:.1f} s", flush=True)
        except AssertionError as wrong:
            failed.append(number)
            print(f": FAILED\n{wrong}", flush=True)
    print(f"early: {runs - len(failed)} of {runs} equal")
    assert not failed, f"runs {failed} failed; --first N --runs 1 runs one of them"


def run_once(faults: list[Fault], peer_timeout: int, expected: Optional[str] = None) -> training.Outcome:
    with job.Jobs() as jobs, training.kept_logs(jobs):
        began = time.monotonic()
        started = training.Training(jobs, STEPS, SERVERS, REPLICATION, values=VALUES,
                                    peer_timeout=peer_timeout, holds_worker=True)
        Faults(jobs.tag, started.job).inject(faults, began, started.let_worker_start)
        outcome = started.finish()
        facts = {key: outcome.report[key] for key in ("steps", "contributors", "restarts", "state_losses")}
        assert expected in (None, outcome.weights), f"the weights differ: {facts}"
        return outcome
