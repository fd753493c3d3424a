# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that checkpoint_test.py runs: `checkpoint_scenarios.py NAME [ARGUMENT...]`.

Those that train save a checkpoint at their end, and what a program would have saved itself, which must be the same.
"""
import os
import pathlib
import sys
from typing import Any

import numpy
import pushpull
import pushpull.torch as pp
import torch
from torch import nn
from torch.utils.data import TensorDataset

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))
SAMPLES, BATCH = 96, 8  # of each worker

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def model_of(seed: int, width: int = 64, has_head: bool = False) -> nn.Module:
    """Several chunks, a batch norm, and a layer that does not train."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 5000), nn.Tanh(), nn.Linear(5000, width), nn.BatchNorm1d(width), nn.Linear(width, 5))
    if has_head:
        model.add_module("head", nn.Linear(5, 2))
    model[4].bias.requires_grad_(False)
    return model


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, 20, generator=generator)
    return TensorDataset(x, x[:, :5].argmax(dim=1))


def train(kind: str, place: str, epochs: str) -> None:
    """Trains, and saves at the end what load_checkpoint must give."""
    job = pushpull.init()
    model = model_of(seed=job.worker)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = pp.DistributedOptimizer(OPTIMIZERS[kind](trained), model=model, optimizer_on=place)
    loader = pp.ElasticDataLoader(samples(), batch_size=BATCH, epochs=int(epochs))
    for _ in range(int(epochs)):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    optimizer.wait()
    if job.worker == 0:
        torch.save({"model": {name: value.clone() for name, value in model.state_dict().items()},
                    "optimizer": optimizer.state_dict(), "step": job.step}, SHARED / "expected")
    job.end()


class Embedded(nn.Module):
    """Row-sparse, and nothing else: SparseAdam takes no other."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 4, sparse=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.embedding(ids)
        return values


def other_of(kind: str, seed: int) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    """A model, its optimizer and a batch."""
    torch.manual_seed(seed)
    if kind == "embedding":
        model: nn.Module = Embedded()
        return model, torch.optim.SparseAdam(list(model.parameters()), lr=0.1), torch.arange(7) * 5
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    model = nn.Linear(6, 3).to(dtype)
    batch = torch.ones(4, 6, dtype=dtype)
    if kind == "lbfgs":
        return model, torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2, history_size=3), batch
    return model, torch.optim.AdamW(model.parameters(), lr=0.1), batch


def step_other(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    def loss() -> Any:
        optimizer.zero_grad()
        value = (model(batch).float() - 1).square().mean()
        value.backward()
        return value

    optimizer.step(loss)


def train_other(kind: str, place: str) -> None:
    """As `train`, with less usual models and optimizers."""
    job = pushpull.init()
    model, torch_optimizer, batch = other_of(kind, seed=job.worker)
    optimizer = pp.DistributedOptimizer(torch_optimizer, model=model, optimizer_on=place)
    for _ in range(5):
        step_other(model, optimizer, batch)
    optimizer.wait()
    if job.worker == 0:
        state = None if kind == "embedding" else optimizer.state_dict()
        torch.save({"model": {name: value.clone() for name, value in model.state_dict().items()}, "optimizer": state}, SHARED / "expected")
    job.end()


def begins_with_values(place: str, first_place: str) -> None:
    """A job that takes the values of another one's checkpoint, and has a layer more, other data and another optimizer."""
    job = pushpull.init()
    model = model_of(seed=40 + job.worker, has_head=True)
    own = model.head.weight.detach().clone()
    torch_optimizer = torch.optim.Adagrad([each for each in model.parameters() if each.requires_grad], lr=0.01)
    optimizer = pp.DistributedOptimizer(torch_optimizer, model=model, optimizer_on=place)
    data = TensorDataset(torch.randn(36, 20, generator=torch.Generator().manual_seed(6)))
    expected = torch.load(SHARED / "expected")
    loader = pp.ElasticDataLoader(data, batch_size=6, epochs=2)
    steps = 0
    for (x,) in (batch for _ in range(2) for batch in loader):
        if steps == 0:
            assert job.step == 0, job.step
            for name, parameter in model.named_parameters():
                if not name.startswith("head") and (parameter.requires_grad or place == first_place == "workers"):
                    assert torch.equal(parameter.detach(), expected["model"][name]), name
            if job.worker == 0 and place == "workers":
                assert torch.equal(model.head.weight.detach(), own)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        steps += 1
    assert steps == 6, steps
    if job.worker == 0:
        for kept in optimizer.state_dict()["state"].values():
            assert int(kept["step"]) == 6, kept["step"]
    job.end()


def rows() -> None:
    """A row-sparse tensor, halves and a scalar, without torch."""
    with pushpull.init() as job:
        emb = numpy.arange(60, dtype=numpy.float32).reshape(20, 3)
        half, scalar = numpy.full(7, 1.5, numpy.float16), numpy.float32([2]).reshape(())
        job.store.register_rows("emb", 20, 3, optimizer=pushpull.Adagrad(lr=0.5), value=emb)
        job.store.register("half", half, optimizer=pushpull.SGD(lr=1.0, momentum=0.5))
        job.store.register("scalar", scalar, optimizer=pushpull.Sum())
        job.start()
        for _ in job.steps(4):
            job.store.push_rows("emb", numpy.array([3, 7]), numpy.ones((2, 3), numpy.float32))
            job.store.push_pull("half", numpy.full(7, 0.25, numpy.float16), out=half)
            job.store.push_pull("scalar", numpy.float32([5]).reshape(()), out=scalar)


def rows_begin() -> None:
    """A job that takes the rows of `rows`, and has another optimizer."""
    with pushpull.init() as job:
        half = numpy.zeros(7, numpy.float32)
        job.store.register_rows("emb", 20, 3, optimizer=pushpull.Adam(lr=0.5), init="normal", scale=1.0)
        job.store.register("half", half, optimizer=pushpull.SGD(lr=1.0))
        job.start()
        expected = numpy.load(SHARED / "emb.npy")
        for step in job.steps(2):
            pulled = job.store.pull_rows("emb", numpy.arange(20), min_step=step)
            pulled.wait()
            assert (pulled.rows[:3] == expected[:3]).all()
            assert step > 0 or ((pulled.rows == expected).all() and (half == numpy.load(SHARED / "half.npy")).all())
            job.store.push_rows("emb", numpy.array([5]), numpy.ones((1, 3), numpy.float32))
            job.store.push_pull("half", numpy.ones(7, numpy.float32), out=half)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
