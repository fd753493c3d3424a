# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that data_test.py runs: `data_scenarios.py NAME [ARGUMENT...]`.

They read a data set whose samples are 0, 1, 2, ... and write which they have seen, as pairs of the iteration and the sample.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any, Callable

import numpy as np
import pushpull
import pushpull.torch as pp
import torch
from scenarios import assert_raises, say, wait_for
from torch.utils.data import DataLoader, TensorDataset

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))
PACE_SECONDS = 0.01  # of a step, where the job must not be over too soon
CHOICES: dict[str, Any] = {"epochs": 2, "batch_size": 64, "shuffle": True, "accumulate": 1, "num_workers": 0,
                           "persistent_workers": False}


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


class CountingLoader(pp.ElasticDataLoader):
    """Knows how often it has begun to load."""

    begun = 0

    def _get_iterator(self) -> Any:
        self.begun += 1
        return super()._get_iterator()


def join() -> tuple[pushpull.Job, torch.Tensor]:
    job, w = pushpull.init(), torch.zeros(3)
    job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
    return job, w


def write_seen(job: pushpull.Job, seen: list[list[int]]) -> None:
    (SHARED / f"seen-{job.worker}-{os.getpid()}").write_text(json.dumps(seen))


def read(job: pushpull.Job, w: torch.Tensor, loader: Any, epochs: int, after_step: Callable[[int], None]) -> list[list[int]]:
    seen, steps = [], 0
    for epoch in range(epochs):
        for batch, in loader:
            assert len(batch) > 0
            seen += [[epoch, int(sample)] for sample in batch]
            if loader.is_last_of_step:
                job.store.push_pull("w", torch.ones_like(w))
                steps += 1
                after_step(steps)
    return seen


def reads(count: str, choices: str) -> None:
    """Each sample once in an epoch."""
    job, w = join()
    chosen = {**CHOICES, **json.loads(choices)}
    loader = CountingLoader(numbers(int(count)), **chosen)
    seen = read(job, w, loader, chosen["epochs"] + 1, lambda _: None)  # the last iteration is empty
    write_seen(job, seen)
    job.report_result("batches", len(loader))
    job.report_result("begun", loader.begun)
    job.end()


def reads_with_a_sampler(count: str, accumulate: str) -> None:
    job, w = join()
    data = numbers(int(count))
    sampler = pp.ElasticSampler(data, 32, epochs=2, accumulate=int(accumulate))
    loader = DataLoader(data, batch_sampler=sampler)
    seen: list[list[int]] = []
    for epoch in range(2):
        fraction = 0.0
        for batch, in loader:
            seen += [[epoch, int(sample)] for sample in batch]
            fraction += sampler.fraction_of_step
            if sampler.is_last_of_step:
                assert abs(fraction - 1) < 1e-9, fraction
                fraction = 0.0
                job.store.push_pull("w", torch.ones_like(w))
    write_seen(job, seen)
    job.end()


def optimizes(num_workers: str, accumulate: str) -> None:
    """With a DistributedOptimizer: each step has the mean over the samples of all workers, however they divide them."""
    pushpull.init()
    job = pushpull.current_job()
    batch, count = 64, 1000
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model=model)
    loader = pp.ElasticDataLoader(numbers(count), batch, epochs=2, num_workers=int(num_workers), accumulate=int(accumulate))
    seen: list[list[int]] = []
    for epoch in range(2):
        for samples, in loader:
            seen += [[epoch, int(sample)] for sample in samples]
            (model(samples[:, None] / count).mean() * loader.fraction_of_step).backward()
            optimizer.step()
            if loader.is_last_of_step:
                optimizer.zero_grad()
    optimizer.wait()
    expected = 0.0
    for epoch in range(2):
        order = np.random.RandomState([0, epoch]).permutation(count) / count
        size = batch * int(accumulate) * job.workers
        expected -= sum(order[first:first + size].mean() for first in range(0, count, size))
    assert abs(model.weight.item() - expected) < 1e-4, (model.weight, expected)
    write_seen(job, seen)
    job.end()


def resizes(num_workers: str) -> None:
    """Worker 0 has the job resized from 2 workers to 3, and to 2 again when the third has made steps."""
    job, w = join()
    loader = pp.ElasticDataLoader(numbers(8000), 8, epochs=2, num_workers=int(num_workers),
                                  persistent_workers=int(num_workers) > 0)
    scaled: list[subprocess.Popen[bytes]] = []
    pause = threading.Event()

    def scale(workers: int) -> None:
        workdir = SHARED / ".pushpull/resizes"
        program = pathlib.Path(sys.executable).with_name("pushpull")
        scaled.append(subprocess.Popen([program, "scale", "--workers", str(workers), "--workdir", workdir]))

    def after_step(steps: int) -> None:
        if job.worker == 2 and steps == 20:
            say("third worker trains")
        if job.worker == 0 and steps == 20:
            scale(3)
        elif job.worker == 0 and len(scaled) == 1 and (SHARED / "third worker trains").exists():
            scale(2)
        if len(scaled) < 2:
            pause.wait(PACE_SECONDS)

    write_seen(job, read(job, w, loader, 2, after_step))
    if job.worker == 0:
        assert [process.wait() for process in scaled] == [0, 0], scaled
    job.end()


def is_replaced(num_workers: str) -> None:
    """The first process of worker 1 is told to end in the second epoch; its successor goes on there."""
    job, w = join()
    loader = pp.ElasticDataLoader(numbers(3000), 16, epochs=3, num_workers=int(num_workers))
    is_first = not (SHARED / "told").exists()
    if not is_first:
        say("replaced")
    steps_of_epoch = 3000 // 32
    pause = threading.Event()

    def after_step(steps: int) -> None:
        if job.worker == 1 and is_first and steps == steps_of_epoch + 20:
            say("told")
            os.kill(os.getpid(), signal.SIGTERM)
        elif job.worker == 1 and not is_first:
            say("continued")
        elif job.worker == 0 and steps > steps_of_epoch + 25 and not (SHARED / "continued").exists():
            wait_for("replaced")  # the first process has left by now: steps do not need it
            pause.wait(PACE_SECONDS)

    seen = read(job, w, loader, 3, after_step)
    assert is_first or min(epoch for epoch, _ in seen) >= 1, seen[0]
    write_seen(job, seen)
    job.end()


def is_left_early() -> None:
    """An iteration that the program leaves goes on in the next one, without samples that it has pushed."""
    job, w = join()
    loader = pp.ElasticDataLoader(numbers(1000), 50, epochs=2, shuffle=False)
    first = next(iter(loader))  # a look, which counts nothing
    seen: list[list[int]] = []
    for epoch in (0, 0, 1):
        for batch, in loader:
            if not seen:
                assert torch.equal(batch, first[0])
            seen += [[epoch, int(sample)] for sample in batch]
            job.store.push_pull("w", torch.ones_like(w))
            if len(seen) == 250:
                break
    write_seen(job, seen)
    job.end()


def wrong_use_is_named() -> None:
    job, w = join()
    data = numbers(1000)
    assert_raises(ValueError, ["batch_size", "1 or more", "0"], lambda: pp.ElasticSampler(data, 0))
    assert_raises(ValueError, ["in_order"], lambda: pp.ElasticDataLoader(data, in_order=False))
    sampler = pp.ElasticSampler(1000, 64)
    assert len(sampler) == 16
    assert_raises(RuntimeError, ["num_workers=2", "ElasticDataLoader"],
                  lambda: list(DataLoader(data, batch_sampler=sampler, num_workers=2)))
    assert_raises(RuntimeError, ["nothing was pushed in step 0", "optimizer.step()"],
                  lambda: list(DataLoader(data, batch_sampler=sampler)))
    assert_raises(pushpull.PushPullError, ["UseSamples"], lambda: pp.ElasticSampler(1000))
    sys.exit(3)  # it has left without a word


def fails_in_a_gated_step() -> None:
    """Worker 1 is killed when some of its gradients of a step are pushed; another process takes its place."""
    job = pushpull.init()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3), model=model)
    loader = pp.ElasticDataLoader(numbers(2000), batch_size=8, epochs=2)
    is_first = not (SHARED / "killed").exists()
    steps = 0
    if job.worker == 1 and is_first:
        model[0].weight.register_hook(lambda _: kill_in_step(30, steps))
    with open(SHARED / f"counted-{job.worker}-{os.getpid()}", "w", buffering=1) as counted:
        last = ""
        for epoch, batch in ((epoch, batch) for epoch in range(2) for batch, in loader):
            print(last, file=counted)  # its step counts when the next one begins
            optimizer.zero_grad()
            model(batch[:, None].expand(-1, 4) / 2000).square().mean().backward()
            optimizer.step()
            steps, last = steps + 1, " ".join(f"{epoch}:{int(sample)}" for sample in batch)
            if job.worker == 0 and steps > 30:
                wait_for("replaced", at_most=0.2)
            elif not is_first:
                say("replaced")
        print(last, file=counted)
    job.end()


def kill_in_step(step: int, steps: int) -> None:
    """Called before the gradient of the first layer's weight is there: those of the last layer are under way."""
    if steps == step:
        say("killed")
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
