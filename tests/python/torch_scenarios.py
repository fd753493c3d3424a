# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that torch_test.py runs: `torch_scenarios.py NAME [ARGUMENT...]`.

A scenario asserts; what it raises fails the job.
"""
import contextlib
import copy
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any, Callable, Optional

import ddp_cases
import fake_accelerator
import pushpull
import pushpull.torch as pp
import torch
from scenarios import assert_raises, say, wait_for
from torch import nn

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))
DEVICE = torch.device(fake_accelerator.DEVICE if fake_accelerator.IS_LOADED else "cpu")
STEPS = 30
WORKERS = 2

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, eps=1e-2),
}


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)).to(DEVICE)


def batch_of(worker: int, step: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + worker)
    x = torch.randn(size, 20, generator=generator)
    return x.to(DEVICE), x[:, :5].argmax(dim=1).to(DEVICE)


def loss_of(model: nn.Module, worker: int, step: int) -> torch.Tensor:
    x, y = batch_of(worker, step)
    return nn.functional.cross_entropy(model(x), y)


def values_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies on the CPU."""
    return {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    first, *others = model.children()
    return [{"params": list(first.parameters())},
            {"params": [each for module in others for each in module.parameters()], "lr": 0.03}]


def train_alone(model: nn.Module, optimizer: torch.optim.Optimizer, clip_norm: Optional[float], micro: int) -> list[float]:
    """On the data of all workers, in one process."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = torch.zeros((), device=DEVICE)
        for part in range(micro):
            for worker in range(WORKERS):
                loss = loss_of(model, worker, micro * step + part) / WORKERS / micro
                loss.backward()
                total += loss.detach()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        scheduler.step()
        losses.append(total.item())
    return losses


def trains_as_one_process(kind: str, clip: str, micro_batches: str, where: str) -> None:
    """The same weights as one process that has the data of all workers: parameter groups, a scheduler, accumulation."""
    clip_norm, micro = float(clip) or None, int(micro_batches)
    job = pushpull.init()
    model = model_of(seed=job.worker)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS[kind](groups_of(model)), model=model, clip_norm=clip_norm,
                                        optimizer_on=where)
    job.start()
    alone = model_of(seed=7)
    alone.load_state_dict(model.state_dict())  # that of the worker that came first
    train_alone(alone, OPTIMIZERS[kind](groups_of(alone)), clip_norm, micro)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(micro):
            with contextlib.nullcontext() if part == micro - 1 else optimizer.no_sync():
                (loss_of(model, job.worker, micro * step + part) / micro).backward()
        optimizer.step()
        scheduler.step()
    values = model.state_dict()
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(values[name].cpu(), value.cpu(), rtol=1e-3, atol=2e-5)
    job.report_result("on_servers", float("on servers" in repr(optimizer)))
    job.end()


def continues(kind: str, begin: str, end: str) -> None:
    """The steps from `begin` on, from what was saved there; saves again before the end."""
    job = pushpull.init()
    model = model_of(seed=job.worker)
    torch_optimizer = OPTIMIZERS[kind](groups_of(model))
    optimizer = pp.DistributedOptimizer(torch_optimizer, model=model)
    saved = torch.load(SHARED / f"saved-{begin}")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    losses = []
    for step in range(int(begin), int(end)):
        optimizer.zero_grad()
        loss = loss_of(model, job.worker, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert "on servers" in repr(optimizer), optimizer
    if job.worker == 0:
        torch.save({"model": values_of(model), "optimizer": optimizer.state_dict()}, SHARED / f"saved-{end}")
        assert not optimizer.state, "the state is the servers'"
    (SHARED / f"losses-{job.worker}").write_text(json.dumps(losses))
    job.end()


def continue_alone(kind: str, begin: int, end: int, folder: pathlib.Path) -> list[list[float]]:
    """The losses of both workers' batches in the steps from `begin` on, from what was saved there; saves at the end."""
    model = model_of(seed=0)
    optimizer = OPTIMIZERS[kind](groups_of(model))
    if begin > 0:
        saved = torch.load(folder / f"saved-{begin}")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    losses: list[list[float]] = [[] for _ in range(WORKERS)]
    for step in range(begin, end):
        optimizer.zero_grad()
        for worker in range(WORKERS):
            loss = loss_of(model, worker, step)
            (loss / WORKERS).backward()
            losses[worker].append(loss.item())
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"saved-{end}")
    return losses


def shared_unused_and_averaged() -> None:
    """A weight used twice, a parameter without a gradient, statistics of batch norm, a mask, a frozen parameter."""
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.decode.weight = self.encode.weight
            self.norm = nn.BatchNorm1d(8)
            self.unused = nn.Linear(3, 3)
            self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
            self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.decode(self.norm(self.encode(x))) * self.frozen

    job = pushpull.init()
    torch.manual_seed(1)
    model = Model().to(DEVICE)
    before = values_of(model)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1), model=model)
    own = []
    for step in range(5):
        optimizer.zero_grad()
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(10 * step + job.worker)) + job.worker
        model(x.to(DEVICE)).square().mean().backward()
        own.append(model.norm.running_mean.clone())
        optimizer.step()
    after = values_of(model)
    assert torch.equal(after["unused.weight"], before["unused.weight"])
    assert torch.equal(after["frozen"], before["frozen"]) and torch.equal(after["mask"], before["mask"])
    assert not torch.equal(after["encode.weight"], before["encode.weight"])
    assert not torch.equal(after["norm.running_mean"], own[-1].cpu())
    (SHARED / f"model-{job.worker}").write_text(json.dumps({k: v.tolist() for k, v in after.items() if v.is_floating_point()}))
    job.end()


def begins_with_loaded_values() -> None:
    """What is loaded after the optimizer has the model; statistics of batch norm belong to it."""
    job = pushpull.init()
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(DEVICE)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    loaded = {name: torch.full_like(value, 3) for name, value in model.state_dict().items()}
    model.load_state_dict(loaded)
    job.start()
    for name, value in values_of(model).items():
        assert torch.equal(value, loaded[name].cpu()), (name, value)
    model(torch.ones(8, 4, device=DEVICE)).sum().backward()
    optimizer.step()
    job.end()


def device_is_late() -> None:
    """A device that has not computed a gradient in time: the step says which, and can be waited for again."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model=model)
    embedding = nn.Embedding(4, 2, sparse=True).to(DEVICE)
    assert_raises(ValueError, ['"weight"', "leave it on the CPU"],
                  lambda: pp.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=0.1), model=embedding))
    late = threading.Event()
    wait = fake_accelerator.Event.synchronize
    fake_accelerator.Event.synchronize = lambda event: (late.wait(), wait(event))  # type: ignore[method-assign, return-value]
    loss_of(model, 0, 0).backward()
    optimizer.timeout = 0.2
    error = assert_raises(pushpull.PushPullError, ['tensor "0.weight"', f"{fake_accelerator.DEVICE}:0", "0.2 s"], optimizer.step)
    assert error.code == "DEADLINE_EXCEEDED" and error.tensor == "0.weight", error
    late.set()
    optimizer.timeout = 60.0
    optimizer.step()
    optimizer.wait()
    assert torch.ops.fake_accelerator.num_copies_postponed() > 0
    job.end()


def tensors_are_arrays() -> None:
    """Tensors by name, without an optimizer of torch."""
    with pushpull.init() as job:
        w = torch.nn.Parameter(torch.zeros(2, 3))
        job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
        job.start()
        ((w - 1) ** 2).sum().backward()
        job.store.push_pull("w", w.grad).wait()
        assert torch.allclose(w, torch.full((2, 3), 0.2)), w
        assert_raises(TypeError, ['tensor "w"', "float64"], lambda: job.store.push("w", torch.zeros(2, 3).double()))


def half_loss_of(model: nn.Module, worker: int, step: int) -> torch.Tensor:
    x, y = batch_of(worker, step)
    return nn.functional.cross_entropy(model(x.bfloat16()).float(), y)


def train_masters(kind: str, clip_norm: Optional[float]) -> list[list[float]]:
    """Losses by worker of a bfloat16 model whose gradients an optimizer applies to float32 copies of its parameters."""
    model = model_of(seed=7).bfloat16()
    masters = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    optimizer = OPTIMIZERS[kind](masters)
    losses: list[list[float]] = [[] for _ in range(WORKERS)]
    for step in range(STEPS):
        for master in masters:
            master.grad = torch.zeros_like(master)
        for worker in range(WORKERS):
            model.zero_grad()
            loss = half_loss_of(model, worker, step)
            loss.backward()
            losses[worker].append(loss.item())
            for master, parameter in zip(masters, model.parameters()):
                assert master.grad is not None and parameter.grad is not None
                master.grad += parameter.grad.float() / WORKERS
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(masters, clip_norm)
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters()):
                parameter.copy_(master)
    return losses


def trains_in_bfloat16(kind: str, clip: str) -> None:
    """A model of two bytes a value: the losses of training with float32 master values, which the servers have."""
    job = pushpull.init()
    model = model_of(seed=7).bfloat16()
    clip_norm = float(clip) or None
    torch_optimizer = OPTIMIZERS[kind](model.parameters())
    optimizer = pp.DistributedOptimizer(torch_optimizer, model=model, clip_norm=clip_norm)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = half_loss_of(model, job.worker, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert optimizer.runs_on_servers
    kept = optimizer.state_dict()["state"][0]
    assert all(value.dtype == torch.float32 for value in kept.values()), kept
    assert all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())
    expected = train_masters(kind, clip_norm)[job.worker]
    job.report_result("difference", max(abs(a - b) / b for a, b in zip(losses, expected)))
    job.report_result("first", losses[0])
    job.report_result("last", losses[-1])
    job.end()


def autocasts() -> None:
    """bfloat16 activations, float32 parameters and gradients; names instead of the model."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01), model.named_parameters(), codec="bf16")
    losses = []
    for step in range(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, job.worker, step % 4)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        job.report_loss(losses[-1])
    assert losses[-1] < 0.3 * losses[0], losses
    job.end()


def scales_losses() -> None:
    """float16 with a GradScaler: a step that overflows, in one worker or in all, changes nothing."""
    job = pushpull.init()
    model = model_of(seed=1)
    is_on_cpu = DEVICE.type == "cpu"  # the stand-in for a GPU computes in float32, where only infinity overflows
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=2.0**40 if job.worker == 0 and is_on_cpu else 2.0**16,
                                  growth_interval=1000)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["adam"](model.parameters()), model=model, scaler=scaler, clip_norm=10.0)
    losses, skipped = [], []
    for step in range(80):
        before, scale = values_of(model), scaler.get_scale()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=is_on_cpu):
            loss = loss_of(model, job.worker, step % 4)
        scaler.scale(loss * (torch.inf if step == 60 and job.worker == 1 else 1)).backward()
        optimizer.synchronize()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        is_equal = all(torch.equal(value, before[name]) for name, value in values_of(model).items())
        assert is_equal == (scaler.get_scale() < scale), step
        skipped += [step] * is_equal
    assert skipped[0] == (0 if is_on_cpu else 60) and skipped[-1] == 60 and len(skipped) < 30, skipped
    assert losses[-1] < 0.3 * losses[0], losses
    (SHARED / f"model-{job.worker}").write_text(json.dumps([skipped, {k: v.tolist() for k, v in values_of(model).items()}]))
    job.end()


def compiles() -> None:
    """torch.compile of the model, wrapped before and after."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["adam"](model.parameters()), model=model)
    compiled = torch.compile(model)
    losses = []
    for step in range(40):
        optimizer.zero_grad()
        loss = loss_of(compiled, job.worker, step % 4)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0], losses
    job.end()


def survives(where: str) -> None:
    """200 steps, in which worker 1 is killed and replaced, and the servers go from 2 to 3 to 2."""
    job = pushpull.init()
    is_replacement = (SHARED / "killed").exists()
    model = model_of(seed=job.worker)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["adam"](model.parameters()), model=model, optimizer_on=where)
    job.start()
    losses = []
    for step in range(job.start_step, 200):
        if step == 50 and job.worker == 1:
            say("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        if step >= 60 and job.worker == 0:
            wait_for("replaced", at_most=0.5)  # it joins in one of the next steps
        if step in (150, 175) and job.worker == 0:
            resize(servers=3 if step == 150 else 2)
        optimizer.zero_grad()
        loss = loss_of(model, job.worker, step % 8)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if is_replacement:
            say("replaced")
    assert is_replacement == (job.start_step > 0)
    assert losses[-1] < 0.1, losses
    (SHARED / f"model-{job.worker}").write_text(json.dumps({k: v.tolist() for k, v in model.state_dict().items()}))
    job.end()


def goes_on(end: str, dies_at: str = "") -> None:
    """AdamW on the workers up to step `end`. Both workers are killed once in the step `dies_at`."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.02), model=model, optimizer_on="workers")
    job.start()
    begin = job.start_step
    for step in range(begin, int(end)):
        died = SHARED / f"died-{job.worker}"
        if str(step) == dies_at and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss_of(model, job.worker, step % 8).backward()
        optimizer.step()
    torch.save({"begin": begin, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, SHARED / f"state-{job.worker}")
    job.end()


def leaves_a_step_out() -> None:
    """Worker 1 once makes no step of the optimizer, which is on the workers."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, optimizer_on="workers")
    try:
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, job.worker, step).backward()
            if step != 2 or job.worker != 1:
                optimizer.step()
    except pushpull.PushPullError as error:
        assert "step 3: the optimizers' settings differ between workers: SGD, steps: " in str(error), error
        raise SystemExit(3) from None


def changes_a_row_alone(first: str) -> None:
    """Worker 1 changes one row of a layer from a step on, with the optimizer on the workers."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, optimizer_on="workers")
    loader = pp.ElasticDataLoader(torch.utils.data.TensorDataset(*batch_of(0, 0)), 1, epochs=2)
    name, layer = next((name, each) for name, each in model.named_parameters() if each.dim() == 2)
    batches = (batch for _ in loader.epochs() for batch in loader)
    try:
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if job.worker == 1 and job.step >= int(first):
                layer.data[-1] = 0
    except pushpull.PushPullError as error:
        assert f'parameter "{name}" differs between workers' in str(error), error
        raise SystemExit(3) from None


def is_traced() -> None:
    """Steps until worker 0 has the trace of ten of them."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model=model)
    job.start()
    file = SHARED / "trace.json"
    tracing: Optional[subprocess.Popen[bytes]] = None
    while not file.exists():
        optimizer.zero_grad()
        with job.span("load"):
            images, labels = batch_of(job.worker, 0)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        assert tracing is None or tracing.poll() in (None, 0)
        if job.worker == 0 and tracing is None:
            tracing = subprocess.Popen(["pushpull", "trace", "--workdir", ".pushpull/is-traced", "--steps", "10", "--out", str(file)])
    assert not job.is_traced
    job.end()


def resize(servers: int) -> None:
    """While this worker waits, the others cannot go on: a part of the resize falls between two steps, the rest into them."""
    subprocess.run(["pushpull", "scale", "--servers", str(servers), "--workdir", ".pushpull/survives"], check=True, timeout=30)


def wrong_use_is_named() -> None:
    assert_raises(pushpull.PushPullError, ["pushpull.init()"], pushpull.current_job)
    job = pushpull.init()
    model = model_of(seed=1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    assert_raises(ValueError, ["either", "model"], lambda: pp.DistributedOptimizer(sgd))
    assert_raises(ValueError, ["shape (64, 20)", "no name"], lambda: pp.DistributedOptimizer(sgd, []))
    assert_raises(ValueError, ["optimizer_on", '"gpu"'], lambda: pp.DistributedOptimizer(sgd, model=model, optimizer_on="gpu"))
    dampened = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    assert_raises(ValueError, ["dampening"], lambda: pp.DistributedOptimizer(dampened, model=model, optimizer_on="servers"))
    assert_raises(TypeError, ['"weight"', "float32", "float64"], register_double)
    optimizer = pp.DistributedOptimizer(sgd, model=model)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    assert_raises(RuntimeError, ["load_state_dict", "before"], lambda: optimizer.load_state_dict(sgd.state_dict()))
    loss_of(model, 0, 0).backward()
    assert_raises(RuntimeError, ['"4.bias"', "no_sync"], loss_of(model, 0, 1).backward)
    assert_raises(RuntimeError, ['"0.weight"', "clip_norm"], lambda: nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
    assert_raises(RuntimeError, ['"0.weight"', "no_sync"], optimizer.zero_grad)
    assert_raises(RuntimeError, ["synchronize", "servers"], optimizer.synchronize)
    sgd.param_groups[0]["momentum"] = 0.5
    assert_raises(ValueError, ["momentum from 0.9 to 0.5"], optimizer.step)
    forked = multiprocessing.get_context("fork").Process(target=use_after_fork, args=(job,))
    forked.start()
    forked.join(30)
    assert forked.exitcode == 0, forked.exitcode
    os._exit(3)  # ends the job: its step is not over


def register_double() -> None:
    model = nn.Linear(2, 2).double()
    pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1), model=model)


def use_after_fork(job: pushpull.Job) -> None:
    error = assert_raises(pushpull.PushPullError, ["forked", "spawn"], lambda: job.step)
    assert error.code == "FAILED_PRECONDITION", error


def curve(kind: str, clip: str, micro_batches: str) -> None:
    """The losses of 100 steps, for comparison with DistributedDataParallel."""
    job = pushpull.init()
    model = ddp_model()
    clip_norm = float(clip) or None
    optimizer = pp.DistributedOptimizer(OPTIMIZERS[kind](model.parameters()), model=model, clip_norm=clip_norm)
    losses = ddp_losses(model, optimizer, job.worker, int(micro_batches), optimizer.no_sync, lambda: None)
    (SHARED / f"curve-{job.worker}").write_text(json.dumps(losses))
    job.end()


def ddp_model() -> nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))


def ddp_losses(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, micro: int, no_sync: Callable[[], Any],
               clip: Callable[[], Any]) -> list[float]:
    losses = []
    for step in range(100):
        optimizer.zero_grad()
        total = 0.0
        for part in range(micro):
            with contextlib.nullcontext() if part == micro - 1 else no_sync():
                loss = loss_of(model, rank, micro * step + part) / micro
                loss.backward()
                total += loss.item()
        clip()
        optimizer.step()
        losses.append(total)
    return losses


def ddp_rank(rank: int, store: str, kind: str, clip_norm: float, micro: int, out: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = ddp_model()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = OPTIMIZERS[kind](model.parameters())

    def clip() -> None:
        if clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    out.put((rank, ddp_losses(parallel, optimizer, rank, micro, parallel.no_sync, clip)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def curve_on_workers(name: str) -> None:
    """The losses of a case of ddp_cases.py."""
    job = pushpull.init()
    (SHARED / f"curve-{job.worker}").write_text(json.dumps(ddp_cases.run(ddp_cases.OfJob(job.worker), name)))
    job.end()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
