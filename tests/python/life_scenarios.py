# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that life_test.py runs: `life_scenarios.py NAME [ARGUMENT...]`.

Programs with epochs, a schedule, validation and an early stop, whose workers come and go.
"""
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy
import pushpull
import pushpull.torch as pp
import torch
from scenarios import SHARED, assert_raises, say
from torch import nn
from torch.utils.data import TensorDataset

SAMPLES, BATCH, DECAY, LR = 96, 8, 0.97, 0.1
PACE_SECONDS = 0.05  # of a step, where workers come and go


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True)


def model_and_optimizer(place: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(1)
    model = nn.Linear(4, 1)
    return model, pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=LR, momentum=0.5), model=model, optimizer_on=place)


def write(when: str, job: pushpull.Job, **found: Any) -> None:
    (SHARED / f"{when}-{job.worker}-{os.getpid()}").write_text(json.dumps(found))


def begins_anew() -> bool:
    """Whether this is the worker's first process."""
    mark = SHARED / f"began-{os.environ['PUSHPULL_INDEX']}"
    is_first = not mark.exists()
    mark.touch()
    return is_first


def scale(workers: int, job: str) -> "subprocess.Popen[bytes]":
    program = pathlib.Path(sys.executable).with_name("pushpull")
    return subprocess.Popen([program, "scale", "--workers", str(workers), "--workdir", SHARED / ".pushpull" / job])


class Disturbance:
    """What happens to the workers of `trains`: "none"; "stop": the program ends after 17 steps; of worker 0 "kill" and "evict", in its
    17th step; "scale": 2 workers, 4, 1."""

    def __init__(self, kind: str, job: pushpull.Job, is_first: bool) -> None:
        self._kind, self._job, self._is_first = kind, job, is_first
        self._pause = threading.Event()
        self._scaled: list["subprocess.Popen[bytes]"] = []

    def after_step(self, steps: int) -> None:
        job = self._job
        if self._kind == "stop" and steps == 17 and job.start_step == 0:
            raise StopIteration
        if self._kind in ("kill", "evict") and job.worker == 0 and self._is_first and steps == 17:
            os.kill(os.getpid(), signal.SIGKILL if self._kind == "kill" else signal.SIGTERM)
        if self._kind == "scale":
            self._scale()
        if not self._is_first and job.worker == 0:
            say("back")
        is_over = (SHARED / "back").exists() or (len(self._scaled) == 2 and self._scaled[1].poll() is not None)
        if self._kind not in ("none", "stop") and not is_over:
            self._pause.wait(PACE_SECONDS)

    def end(self) -> None:
        for each in self._scaled:
            each.wait()

    def _scale(self) -> None:
        job = self._job
        if job.worker == 0 and not self._scaled:
            self._scaled.append(scale(4, "trains"))
        if job.worker == 3 and job.step > job.start_step + 2:
            say("four")
        if job.worker == 0 and len(self._scaled) == 1 and (SHARED / "four").exists():
            self._scaled.append(scale(1, "trains"))


def trains(place: str, epochs: str, kind: str, validates: str = "together") -> None:
    """A whole program. There is no `end`: the last line leaves the job."""
    is_first, job = begins_anew(), pushpull.init()
    disturbance = Disturbance(kind, job, is_first)
    model, optimizer = model_and_optimizer(place)
    x, y = data()
    loader = pp.ElasticDataLoader(TensorDataset(x, y), BATCH, epochs=int(epochs))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
    state = pp.State(schedule=schedule, best=math.inf, bad=0, steps=0, values=[], noise=random.Random(1))
    own_epochs, end = [], "end"
    try:
        for epoch in loader.epochs():
            own_epochs.append(epoch)
            for a, b in loader:
                optimizer.zero_grad()
                (model(a) - b).square().mean().backward()
                optimizer.step()
                schedule.step()
                state.steps += 1
                state.noise.random()
                disturbance.after_step(state.steps)
            with torch.no_grad():
                value = (model(x) - y).square().mean().reshape(1)
            if validates == "together":
                pushpull.all_reduce(value, "mean")
            state.best, state.bad = (value.item(), 0) if value.item() < state.best else (state.best, state.bad + 1)
            state.values.append(value.item())
    except pushpull.Released:
        end = "released"
        raise
    except StopIteration:
        pass
    finally:
        write(end, job, steps=state.steps, job_steps=job.step, drawn=hash(state.noise.getstate()), best=state.best, bad=state.bad,
              values=state.values, lr=optimizer.param_groups[0]["lr"], weight=[float(each) for each in model.weight.detach().reshape(-1)],
              epochs=own_epochs, first=job.start_step)
        disturbance.end()


def counts_epochs_of_numpy(stop: str) -> None:
    """As an array of the program's own would be trained: `Job.epochs`, and state."""
    job = pushpull.init()
    w, gradient = numpy.zeros(4, "f"), numpy.empty(4, "f")
    job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
    job.use_samples(SAMPLES, batch=BATCH, epochs=3)
    state = pushpull.State(seen=[])
    for epoch in job.epochs():
        count = 0
        for share in job.samples():
            assert job.members == [0, 1]
            gradient[:] = w - 3
            job.store.push_pull("w", gradient, out=w)
            count += share.count
            if job.step == int(stop) - 1 and job.start_step == 0:
                return write("end", job, seen=state.seen)
        state.seen.append([epoch, count])
    write("end", job, seen=state.seen)


def loops_over_a_range(body: str) -> None:
    """Stops in its third epoch; the next process finds itself in the first."""
    job = pushpull.init()
    model, optimizer = model_and_optimizer("servers")
    x, y = data()
    loader = pp.ElasticDataLoader(TensorDataset(x, y), BATCH, epochs=5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    rates: list[tuple[int, float]] = []
    bodies: dict[str, Any] = {
        "reads": lambda _: print(model(x).sum()), "saves": lambda _: torch.save(model.state_dict(), SHARED / "model.pt"),
        "calls": lambda _: pushpull.all_reduce(1.0), "divides": lambda batches: print(1 / batches), "nothing": lambda _: None}
    for epoch in range(5):
        batches = 0
        for a, b in loader:
            optimizer.zero_grad()
            (model(a) - b).square().mean().backward()
            optimizer.step()
            rates.append((epoch, optimizer.param_groups[0]["lr"]))
            batches += 1
            if epoch == 2 and job.start_step == 0:
                return
        schedule.step()
        bodies[body](batches)
    write("end", job, rates=rates)


def keeps_no_schedule(kind: str) -> None:
    """A schedule that begins anew in a job that is resumed."""
    job = pushpull.init()
    model, optimizer = model_and_optimizer("servers")
    x, y = data()
    loader = pp.ElasticDataLoader(TensorDataset(x, y), BATCH, epochs=3)
    schedule: Any = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    if kind == "made":
        loader_steps = (SHARED / "stopped").read_text() if (SHARED / "stopped").exists() else "0"
        for _ in range(int(loader_steps)):
            schedule.step()
    for epoch in loader.epochs():
        for a, b in loader:
            optimizer.zero_grad()
            (model(a) - b).square().mean().backward()
            optimizer.step()
            if kind != "epoch":
                schedule.step()
            if job.step == 8 and job.start_step == 0:
                (SHARED / "stopped").write_text("9")
                return
        if kind == "epoch":
            schedule.step()


def keeps_every_kind() -> None:
    """What a State holds is set in the objects that the program has."""
    class Stopper:
        def __init__(self) -> None:
            self.count = 0

    job = pushpull.init()
    w = numpy.zeros(4, "f")
    job.store.register("w", w)
    stopper, notes, table, array, tensor = Stopper(), [], {}, numpy.zeros(2), torch.zeros(2)
    generator, torchs = numpy.random.default_rng(1), torch.Generator().manual_seed(1)
    state = pushpull.State(stopper=stopper, notes=notes, table=table, array=array, tensor=tensor, generator=generator, torchs=torchs, name="a")
    assert_raises(pushpull.PushPullError, ["has one"], lambda: pushpull.State(other=1))
    assert_raises(AttributeError, ["nothing", "nothing=..."], lambda: state.nothing)
    assert_raises(AttributeError, ["stopper", "change the object"], lambda: setattr(state, "stopper", Stopper()))
    job.start()
    for step in job.steps(job.start_step + 3):
        stopper.count += 1
        notes.append(step)
        table[str(step)] = step
        array += 1
        tensor += 1
        state.name += "b"
        drawn = [generator.random(), torch.rand(1, generator=torchs).item()]
        job.store.push_pull("w", numpy.ones(4, "f"), out=w)
    assert_raises(AttributeError, ["unknown"], lambda: setattr(state, "unknown", 1))
    write("end", job, count=stopper.count, notes=notes, table=table, array=array.tolist(), tensor=tensor.tolist(), name=state.name, drawn=drawn)


def is_no_state() -> None:
    job = pushpull.init()
    assert_raises(TypeError, ["call", "builtin_function"], lambda: pushpull.State(call=len))
    assert_raises(ValueError, ["bytes", "each step"], lambda: pushpull.State(large=bytes(300_000)))
    sys.exit(3)


def outlives_its_schedule() -> None:
    """A schedule for as many steps as one process would make, in a job that makes more."""
    job = pushpull.init()
    model, optimizer = model_and_optimizer("servers")
    x, y = data()
    loader = pp.ElasticDataLoader(TensorDataset(x, y), BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4, cycle_momentum=False)
    state = pp.State(schedule=schedule, rates=[])
    for a, b in loader:
        optimizer.zero_grad()
        (model(a) - b).square().mean().backward()
        optimizer.step()
        schedule.step()
        state.rates.append(optimizer.param_groups[0]["lr"])
    assert isinstance(schedule, torch.optim.lr_scheduler.OneCycleLR) and schedule.state_dict()["total_steps"] == 4
    write("end", job, rates=state.rates)


def changes_state_late() -> None:
    """A body that reads a parameter after the step may not change what it keeps behind that."""
    job = pushpull.init()
    model, optimizer = model_and_optimizer("servers")
    x, y = data()
    loader = pp.ElasticDataLoader(TensorDataset(x, y), BATCH)
    state = pp.State(norm=0.0, steps=0)
    read, done = [], []

    def train() -> None:
        for a, b in loader:
            optimizer.zero_grad()
            (model(a) - b).square().mean().backward()
            optimizer.step()
            state.steps += 1
            read.append(model.weight.norm().item())
            if len(read) > 2:
                state.norm = read[-1]
            done.append(state.steps)
    assert_raises(pushpull.PushPullError, ["State", "step 2", "norm", "optimizer.step()"], train)
    assert done == [1, 2, 3] and not job.is_released
    sys.exit(3)


def makes_no_step() -> None:
    job = pushpull.init()
    job.store.register("w", numpy.zeros(4, "f"))
    job.use_samples(SAMPLES, batch=BATCH, epochs=3)
    epochs = job.epochs()
    assert next(epochs) == 0
    assert_raises(RuntimeError, ["no step in epoch 0", "job.samples()"], lambda: next(epochs))
    sys.exit(3)


def ends_with(code: str) -> None:
    """Trains, and ends without `end`."""
    job = pushpull.init()
    w = numpy.zeros(4, "f")
    job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
    job.start()
    for _ in job.steps(10):
        job.store.push_pull("w", w - 3, out=w)
    if code == "error":
        raise ValueError("of the program")
    if code != "none":
        sys.exit(int(code))


def calls_before_it_begins() -> None:
    """Worker 2 joins two others, and asks them for what they have agreed on before."""
    job = pushpull.init()
    w = torch.zeros(3)
    job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
    loader = pp.ElasticDataLoader(TensorDataset(torch.arange(4000)), 8, epochs=1)
    job.start()
    if job.worker == 2:
        assert_raises(pushpull.PushPullError, ["all_reduce", "has joined others", "start_step == 0"], lambda: pushpull.all_reduce(1.0))
        say("refused")
    else:
        assert pushpull.all_reduce(1.0) == 2.0
    scaled, pause = [], threading.Event()
    for _ in loader:
        job.store.push_pull("w", torch.ones(3))
        if job.worker == 0 and not scaled:
            scaled.append(scale(3, "calls-before-it-begins"))
        if not (SHARED / "refused").exists():
            pause.wait(PACE_SECONDS)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
