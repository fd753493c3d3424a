# SPDX-License-Identifier: Apache-2.0
"""Weights of one deterministic job on every channel, and after the loss of a server."""
import signal
from typing import Any

import job

_CHANNELS = {"killed": "tcp", "tcp": "tcp", "shm": "auto", "grpc": "grpc"}


def check_equal(case: job.JobTestCase, *flags: Any, others: dict[str, tuple[Any, ...]]) -> bytes:
    """Runs probes with these flags, over sockets with a killed server first, then on each channel; the weights of them all
    are to be equal bit for bit, and are returned. `others`: flags more of further runs, by name, on the channel auto."""
    weights = {}
    # The first job alone is paced: finish releases all that follow, too.
    for name in (*_CHANNELS, *others):
        file = case.folder / f"{name}.weights"
        pause = ["--step-milliseconds", 200] if name == "killed" else []
        spec = case.spec("--steps", 24, "--optimizer", "adam", "--weights", file, *flags, *pause, *others.get(name, ()),
                         sync={"deterministic": True})
        spec["servers"]["replication"] = 1 if name == "killed" else 0
        started = case.run_with(spec, PUSHPULL_CHANNEL=_CHANNELS.get(name, "auto"))
        if name == "killed":
            started.wait_for_step(5)
            started.signal_member("server", 0, signal.SIGKILL)
        code = started.finish()

        case.assertEqual(code, 0, started.launcher.output)
        weights[name] = file.read_bytes()

    for name, bits in weights.items():
        case.assertTrue(bits == weights["tcp"], name)
    return weights["tcp"]
