# SPDX-License-Identifier: Apache-2.0
"""Whole jobs of real processes under faults: `python3 tests/chaos failover --runs 50`, from the root.

PUSHPULL_BIN and PROBE_WORKER name the programs, those of the release build unless set. Every run says
its seed; `--seed` replays the choices, not the timing of the machine. Exit code 1: a job failed, or its
weights differ from those of the undisturbed one. Times are printed, never judged.
"""
import argparse
import contextlib
import os
import pathlib
import random
import sys
import tempfile
from typing import Callable, Iterator

import coordinator
import early
import failover
import resize
import soak
import workers
from training import job

import tls_test  # beside job.py

THEMES: dict[str, Callable[..., None]] = {"coordinator": coordinator.run, "early": early.run, "failover": failover.run,
          "resize": resize.run, "soak": soak.run, "workers": workers.run}


@contextlib.contextmanager
def connections(channel: str, tls: bool) -> Iterator[None]:
    """Members, and the commands beside them, connect so."""
    with tempfile.TemporaryDirectory(prefix="pushpull-test-") as folder:
        job.Jobs.variables = {"PUSHPULL_CHANNEL": channel}
        if tls:
            certificates = pathlib.Path(folder) / "member"
            tls_test.Authority(pathlib.Path(folder) / "authority").issue(certificates, days=1)
            job.Jobs.variables["PUSHPULL_TLS_DIR"] = os.environ["PUSHPULL_TLS_DIR"] = str(certificates)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/chaos", description=__doc__)
    parser.add_argument("theme", choices=THEMES)
    parser.add_argument("--runs", type=int, default=5, help="default 5")
    parser.add_argument("--seed", type=int, default=None, help="default: another each time")
    parser.add_argument("--first", type=int, default=0, help="early: the number of the first run")
    parser.add_argument("--hours", type=float, default=2, help="soak: how long there are faults, default 2")
    parser.add_argument("--gated", action="store_true", help="workers: with spec.sync.gated")
    parser.add_argument("--channel", choices=("auto", "tcp", "grpc"), default="auto",
                        help="default auto, which is shared memory here")
    parser.add_argument("--tls", action="store_true", help="members know each other by certificates")
    arguments = parser.parse_args()
    if arguments.gated and arguments.theme != "workers":
        parser.error("--gated: only with workers")
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    try:
        length = arguments.hours if arguments.theme == "soak" else arguments.runs
        more = {"workers": {"gated": arguments.gated}, "early": {"first": arguments.first}}
        with connections(arguments.channel, arguments.tls):
            THEMES[arguments.theme](length, seed, **more.get(arguments.theme, {}))
    except AssertionError as failed:
        print(f"\n{arguments.theme}, --seed {seed}: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
