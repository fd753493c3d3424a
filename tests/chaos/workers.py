# SPDX-License-Identifier: Apache-2.0
"""Workers join, leave and are killed at random while they share a data set; and a job whose global
batch does not notice how many they are. With the gate every sample counts exactly once."""
import contextlib
import random
import signal
import threading
from typing import Any

from training import job

EVENTS = 50
SECONDS_BETWEEN = (0.5, 3.5)  # 50 of them in about two minutes with what a change itself takes
WORKERS_MAX = 5
SAMPLES, BATCH = 20_000, 10
# Long enough for all events at the most samples a second there can be.
EPOCHS = 16
END_SECONDS = 600

LOSS_STEPS = 100
LOSS_BATCH = 256
LOSS_TARGETS = (4, 3)
# Other numbers of workers add the same samples in another order. The rounding grows: two jobs of 2 and of 3 workers
# that nobody resizes differ by 1e-7 after ten steps and by 4e-3 after a hundred. A weight that is wrong by 1 % is
# visible at once, so the steps up to shortly after the last resize are compared.
LOSS_STEPS_AFTER = 10
LOSS_BOUND = 1e-4


def run(runs: int, seed: int, gated: bool) -> None:
    """`runs` storms, then the global batch; AssertionError where samples or losses are not as they must."""
    for number in range(runs):
        storm(number, seed, gated)
    if not gated:
        compare_losses()


def crash(started: job.LocalJob, victim: int) -> None:
    """Kills the worker, where it is there and does not end by itself meanwhile."""
    if started.endpoint("worker", victim) is not None:
        with contextlib.suppress(ProcessLookupError):
            started.signal_member("worker", victim, signal.SIGKILL)


def storm(number: int, seed: int, gated: bool) -> None:
    chance = random.Random(f"workers {seed} {number}")
    with job.Jobs() as jobs:
        spec = jobs.spec("--samples", SAMPLES, "--epochs", EPOCHS, "--batch", BATCH,
                         "--step-milliseconds", 10, servers=2, workers=2,
                         sync={"gated": gated},
                         restart={"backoffLimit": 1000, "initialDelaySeconds": 0})
        started = jobs.run_job(spec)
        started.wait_for_step(1)
        counts = {"join": 0, "leave": 0, "crash": 0}
        wanted = 2
        for _ in range(EVENTS):
            threading.Event().wait(chance.uniform(*SECONDS_BETWEEN))
            choices = ["crash"] + ["join"] * (wanted < WORKERS_MAX) + ["leave"] * (wanted > 1)
            event = chance.choice(choices)
            if event == "crash":
                victim = chance.randrange(wanted)
                crash(started, victim)
            else:
                wanted += 1 if event == "join" else -1
                scaled = started.scale(workers=wanted)
                assert scaled.returncode == 0, scaled.stderr + started.launcher.output
            counts[event] += 1
        at_end = started.status()
        code = started.launcher.wait(END_SECONDS)
        assert code == 0, started.launcher.output
        report = started.report()
    final, uneven = report["final"], report["uneven_steps"]
    print(f"workers{' --gated' * gated} run {number} seed {seed}: {counts}, {at_end.get('step')} steps at the last event, "
          f"{report['steps']} in all, {report['restarts']} restarts; samples counted "
          f"{final['total']:.0f} of {SAMPLES * EPOCHS}, each {final['least']:.0f} to {final['most']:.0f} "
          f"times in {EPOCHS} epochs; {uneven} uneven steps")
    assert not gated or uneven == 0, f"{uneven} uneven steps with the gate"
    assert uneven > 0 or final["least"] == final["most"] == EPOCHS, "not each sample once an epoch"
    off = abs(final["total"] - SAMPLES * EPOCHS)
    assert off <= uneven * 2 * BATCH, f"off by {off} samples with {uneven} uneven steps"


def losses(targets: tuple[int, ...]) -> tuple[list[float], int]:
    """The loss of every step, and the step at the end of the last resize."""
    resized_at = 0
    with job.Jobs() as jobs:
        spec: dict[str, Any] = {
            "command": ["pushpull-train", "--model", "cnn", "--steps", str(LOSS_STEPS)],
            "servers": {"replicas": 2}, "workers": {"replicas": 2, "globalBatch": LOSS_BATCH},
            "sync": {"deterministic": True}}
        started = jobs.run_job(spec)
        started.wait_for_step(2)
        for target in targets:
            scaled = started.scale(None, "--wait", workers=target)
            assert scaled.returncode == 0, scaled.stderr + started.launcher.output
            resized_at = started.status()["step"]
            print(f"global batch: {target} workers at step {resized_at}")
        code = started.launcher.wait(END_SECONDS)
        assert code == 0, started.launcher.output
        points = started.report()["losses"]
    assert [point["step"] for point in points] == list(range(LOSS_STEPS)), points
    return [point["loss"] for point in points], resized_at


def compare_losses() -> None:
    expected, _ = losses(())
    changed, resized_at = losses(LOSS_TARGETS)
    compared = min(resized_at + LOSS_STEPS_AFTER, LOSS_STEPS)
    worst = max(abs(a - b) / abs(a) for a, b in zip(expected[:compared], changed))
    print(f"global batch of {LOSS_BATCH}, workers 2 -> {' -> '.join(map(str, LOSS_TARGETS))}: losses of "
          f"{compared} steps differ by {worst:.2e} at most, from {expected[0]:.4f} to {expected[compared - 1]:.4f}")
    assert worst <= LOSS_BOUND, f"the losses differ by {worst}"
