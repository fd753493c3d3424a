# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that embedding_test.py runs: `embedding_scenarios.py NAME [ARGUMENT...]`.

A scenario asserts; what it raises fails the job.
"""
import contextlib
import os
import pathlib
import signal
import sys
import warnings
from collections.abc import Iterable
from typing import Any, Callable, Optional

import fake_accelerator
import pushpull
import pushpull.torch as pp
import torch
from pushpull.torch._barrier import memory_of
from scenarios import assert_raises, say, wait_for
from torch import nn

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))
DEVICE = torch.device(fake_accelerator.DEVICE if fake_accelerator.IS_LOADED else "cpu")
USERS, ITEMS, DIM, STEPS, WORKERS, BATCH = 200, 120, 8, 30, 2, 16
LONG_STEPS, CALM_STEPS = 300, 10

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "sparse_adam": lambda parameters: torch.optim.SparseAdam(parameters, lr=0.01),
}


class Clicks(nn.Module):
    """An embedding, a bag of them that is not used where there are no items, a dense layer and a buffer."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, DIM, padding_idx=0, sparse=sparse)
        self.items = nn.EmbeddingBag(ITEMS, DIM, mode="sum", sparse=sparse)
        self.score = nn.Linear(DIM, 1)
        self.register_buffer("mean", torch.zeros(DIM))

    def forward(self, users: torch.Tensor, items: Optional[torch.Tensor]) -> torch.Tensor:
        hidden = self.users(users)
        if items is not None:
            hidden = hidden * self.items(items)
        return self.score(hidden.to(DEVICE))[:, 0]  # type: ignore[no-any-return]


def model_of(seed: int, sparse: bool = True) -> Clicks:
    torch.manual_seed(seed)
    model = Clicks(sparse)
    model.score.to(DEVICE)  # the embeddings stay on the CPU
    return model


def loss_of(model: nn.Module, worker: int, step: int, is_every_module_used: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + worker)
    users = torch.randint(USERS, (BATCH,), generator=generator)
    users[:3] = torch.tensor([0, 5, 5])  # the padding, and one that comes twice
    items = torch.randint(ITEMS, (BATCH, 3), generator=generator)
    target = torch.randn(BATCH, generator=generator)
    has_items = is_every_module_used or step % 3 != 1 + worker
    score: torch.Tensor = model(users, items if has_items else None)
    return (score - target.to(DEVICE)).square().mean()


def groups_of(model: Clicks) -> list[dict[str, Any]]:
    return [{"params": [model.users.weight, *model.score.parameters()]}, {"params": [model.items.weight], "lr": 0.03}]


def train_alone(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer], micro: int, is_every_module_used: bool) -> None:
    """On the data of all workers, in one process."""
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5) for optimizer in optimizers]
    for step in range(STEPS):
        model.zero_grad(set_to_none=True)
        for part in range(micro):
            for worker in range(WORKERS):
                (loss_of(model, worker, micro * step + part, is_every_module_used) / WORKERS / micro).backward()
        for scheduler in schedulers:
            scheduler.optimizer.step()
            scheduler.step()


def assert_equal_models(received: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    worst = max(float((received[name] - value).abs().max().cpu()) for name, value in expected.items())
    print(f"values differ by at most {worst:.1e}", flush=True)
    assert worst < 1e-6, worst


def trains_like_a_dense_model(kind: str, micro_batches: str) -> None:
    """As one process with Embedding(sparse=False) and the data of all workers: groups, a scheduler, accumulation."""
    micro = int(micro_batches)
    job = pushpull.init()
    model = model_of(seed=job.worker)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS[kind](groups_of(model)), model=model)
    job.start()
    alone = model_of(seed=7, sparse=False)
    alone.load_state_dict(model.state_dict())  # that of the worker that came first
    train_alone(alone, [OPTIMIZERS[kind](groups_of(alone))], micro, False)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(micro):
            with contextlib.nullcontext() if part == micro - 1 else optimizer.no_sync():
                (loss_of(model, job.worker, micro * step + part) / micro).backward()
        optimizer.step()
        scheduler.step()
    users, items = torch.arange(USERS), torch.arange(USERS)[:, None] % ITEMS
    model.eval(), alone.eval()
    assert_equal_models({"": model(users, items)}, {"": alone(users, items)})  # before anything has received all rows
    assert_equal_models(model.state_dict(), alone.state_dict())
    job.end()


def trains_like_sparse_adam(kind: str) -> None:
    """Lazy Adam: torch.optim.SparseAdam for the embeddings, and another DistributedOptimizer for the rest of the model."""
    job = pushpull.init()
    model = model_of(seed=1)
    embeddings, rest = [model.users.weight, model.items.weight], model.score.parameters()
    optimizers = [pp.DistributedOptimizer(OPTIMIZERS[kind](embeddings), model=model),
                  pp.DistributedOptimizer(OPTIMIZERS["sgd"](rest), model=model)]
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5) for optimizer in optimizers]
    alone = model_of(seed=1)
    train_alone(alone, [OPTIMIZERS["sparse_adam"]([alone.users.weight, alone.items.weight]),
                        OPTIMIZERS["sgd"](alone.score.parameters())], 1, True)
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model, job.worker, step, True).backward()
        for optimizer, scheduler in zip(optimizers, schedulers):
            optimizer.step()
            scheduler.step()
    assert_equal_models(model.state_dict(), alone.state_dict())
    job.end()


def receives_the_rows_of_the_batch() -> None:
    """And no others, in training and in evaluation, also where a module runs twice in a step."""
    job = pushpull.init()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(USERS, DIM, sparse=True))
    weight = model[0].weight
    first = weight.detach().clone()
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model=model)
    for step in range(4):
        optimizer.zero_grad()
        memory_of(weight).fill_(torch.nan)
        used = torch.tensor([3, 3, 50 + step, 100 + job.worker])
        model(used).sum().backward()
        model(used + 1)  # before the step is over
        received = {int(row) for row in memory_of(weight).isfinite().all(dim=1).nonzero()}
        assert received == {int(each) + more for each in used for more in (0, 1)}, received
        torch.testing.assert_close(memory_of(weight)[3], first[3] - 2 * step)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(torch.tensor([3, 53]))[1], first[53] - 1)
    job.end()


def samples_of_elastic_loader() -> None:
    """The last step has samples for one worker alone; the other pushes no rows."""
    job = pushpull.init()
    data = torch.utils.data.TensorDataset(torch.arange(17))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(17, DIM, sparse=True))
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model=model)
    before = model[0].weight.detach().clone()
    for (ids,) in pp.ElasticDataLoader(data, batch_size=4, shuffle=False):
        optimizer.zero_grad()
        model(ids).sum(dim=1).mean().backward()
        optimizer.step()
    after = model.state_dict()["0.weight"]
    steps = torch.tensor([8.0] * 16 + [1.0])[:, None]  # samples of the step in which each row is
    torch.testing.assert_close(after, before - 1 / steps)
    job.end()


def compiles() -> None:
    """torch.compile of the model, whose kernels round differently."""
    warnings.simplefilter("ignore")  # one tells of the traceback of a forward pass that torch does not compile
    job = pushpull.init()
    model, alone = model_of(seed=1), model_of(seed=1, sparse=False)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model=model)
    compiled = torch.compile(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(compiled, job.worker, step).backward()
        optimizer.step()
    sgd = OPTIMIZERS["sgd"](alone.parameters())
    for step in range(STEPS):
        sgd.zero_grad()
        for worker in range(WORKERS):
            (loss_of(alone, worker, step) / WORKERS).backward()
        sgd.step()
    torch.testing.assert_close(model.state_dict(), alone.state_dict(), rtol=1e-4, atol=1e-5)
    job.end()


def trains_through() -> None:
    """LONG_STEPS steps, during which the test disturbs the job until it says calm; it saves the model then."""
    job = pushpull.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["adagrad"](groups_of(model)), model=model)
    job.start()
    for step in range(job.start_step, LONG_STEPS):
        if job.worker == 0 and step >= 2 * CALM_STEPS:
            say("training")
            wait_for("calm", at_most=0.02 if step < LONG_STEPS - CALM_STEPS else None)
        optimizer.zero_grad()
        loss_of(model, job.worker, step).backward()
        optimizer.step()
    torch.save(model.state_dict(), SHARED / f"model-{job.worker}")
    job.report_result("start_step", job.start_step)
    job.end()


def is_replaced() -> None:
    """Worker 1 is killed; its replacement begins with the job's rows."""
    job = pushpull.init()
    is_replacement = (SHARED / "killed").exists()
    model = model_of(seed=job.worker + 10 * is_replacement)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["adagrad"](groups_of(model)), model=model)
    job.start()
    for step in range(job.start_step, STEPS):
        if step == CALM_STEPS and job.worker == 1:
            say("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        if step > CALM_STEPS and job.worker == 0:
            wait_for("replaced", at_most=0.5)  # it joins in one of the next steps
        optimizer.zero_grad()
        loss_of(model, job.worker, step).backward()
        optimizer.step()
        if is_replacement:
            say("replaced")
    assert is_replacement == (job.start_step > 0)
    torch.save(model.state_dict(), SHARED / f"model-{job.worker}")
    job.end()


def wrong_use_is_named() -> None:
    job = pushpull.init()

    def wrap(optimizer: torch.optim.Optimizer, model: nn.Module, **choices: Any) -> pp.DistributedOptimizer:
        return pp.DistributedOptimizer(optimizer, model=model, **choices)

    model = model_of(seed=1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    users = ['"users.weight"', "sparse=False"]
    assert_raises(ValueError, [*users, "clip_norm is 1.0"], lambda: wrap(sgd, model, clip_norm=1.0))
    assert_raises(ValueError, [*users, "codec is fp16"], lambda: wrap(sgd, model, codec="fp16"))
    assert_raises(ValueError, [*users, 'optimizer_on is "workers"'], lambda: wrap(sgd, model, optimizer_on="workers"))
    rmsprop = torch.optim.RMSprop(model.parameters())
    assert_raises(ValueError, [*users, 'optimizer_on is "workers"', "RMSprop"], lambda: wrap(rmsprop, model))
    sparse_adam = torch.optim.SparseAdam(list(model.parameters()))
    assert_raises(ValueError, ['"score.weight"', "SparseAdam", "of their own"], lambda: wrap(sparse_adam, model))
    limited = nn.Sequential(nn.Embedding(5, 2, max_norm=1.0, sparse=True))
    assert_raises(ValueError, ['"0.weight"', "max_norm", "sparse=False"],
                  lambda: wrap(torch.optim.SGD(limited.parameters(), lr=1), limited))
    tied = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 5))
    tied[1].weight = tied[0].weight
    assert_raises(ValueError, ['"0.weight"', "another module", "sparse=False"],
                  lambda: wrap(torch.optim.SGD(tied.parameters(), lr=1), tied))

    momentum = torch.optim.SGD([model.users.weight, *model.score.parameters()], lr=0.1, momentum=0.9)
    optimizer = wrap(momentum, model)
    named = pp.DistributedOptimizer(torch.optim.SGD([model.items.weight], lr=0.1), [("named", model.items.weight)])
    optimizer.zero_grad()
    assert_raises(TypeError, ['"users.weight"', "by position"], lambda: model.users(ids=torch.tensor([1])))
    assert_raises(ValueError, ['"users.weight"', "0 or more", "-1"], lambda: model.users(torch.tensor([-1])))
    assert_raises(TypeError, ['"named"', "sparse", "DistributedOptimizer(model=model)"],
                  lambda: model.items(torch.tensor([[1]])).sum().backward())
    named.zero_grad()
    assert_raises(TypeError, ['"users.weight"', "dense", "outside"], lambda: model.users.weight.sum().backward())
    optimizer.zero_grad()
    model.users(torch.tensor([1, 2])).sum().backward()
    assert_raises(RuntimeError, ['"users.weight"', "clip_norm"], lambda: nn.utils.clip_grad_norm_(model.users.parameters(), 1e-3))
    assert_raises(RuntimeError, ["state_dict", '"users.weight"', "spec.checkpoint"], optimizer.state_dict)
    os._exit(3)  # ends the job: its step is not over


def state_is_refused() -> None:
    """State that a torch optimizer brings along does not get lost."""
    job = pushpull.init()
    model = model_of(seed=1)
    adagrad = OPTIMIZERS["adagrad"](model.parameters())
    loss_of(model, 0, 0).backward()
    adagrad.step()
    pp.DistributedOptimizer(adagrad, model=model)
    assert_raises(RuntimeError, ["load_state_dict", '"users.weight"'], job.start)
    os._exit(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
