# SPDX-License-Identifier: Apache-2.0
"""Training loops that are written once and run by DistributedDataParallel and by the workers of a job, for torch_test.py.

A loop gets `Way`, which distributes a model and its optimizers, and returns the losses of this process.
"""
from __future__ import annotations

import copy
import dataclasses
import importlib.util
from typing import Any, Callable

import torch
from torch import nn

STEPS = 50
Optimizers = Callable[[nn.Module], list[torch.optim.Optimizer]]


class Way:
    """How a process trains together with the others."""

    rank: int

    def module(self, model: nn.Module) -> Any:
        """What computes the forward pass."""
        raise NotImplementedError

    def optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module, scaler: Any = None) -> Any:
        raise NotImplementedError

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """What a closure returns so that all processes decide alike: their mean, unless the optimizer sees to that."""
        raise NotImplementedError


class OfJob(Way):
    """A worker's, with the optimizer on the workers."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def module(self, model: nn.Module) -> Any:
        return model

    def optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module, scaler: Any = None) -> Any:
        import pushpull.torch as pp
        return pp.DistributedOptimizer(optimizer, model=model, optimizer_on="workers", scaler=scaler)

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        return loss


class OfGroup(Way):
    """That of a process of torch.distributed."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def module(self, model: nn.Module) -> Any:
        return nn.parallel.DistributedDataParallel(model)

    def optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module, scaler: Any = None) -> Any:
        return optimizer

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        total = loss.detach().clone()
        dist: Any = torch.distributed
        dist.all_reduce(total)
        return total / dist.get_world_size()


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(16, 20, generator=torch.Generator().manual_seed(1000 * step + rank))
    return x, x[:, :5].argmax(dim=1)


def loss_of(module: Any, way: Way, step: int) -> torch.Tensor:
    x, y = batch_of(way.rank, step)
    return nn.functional.cross_entropy(module(x), y)


def plain(way: Way, optimizers: Optimizers, *, clips: bool = False, compiles: str = "") -> list[float]:
    model: Any = net()
    if compiles == "before":
        model = torch.compile(model, backend="aot_eager")
    made = [way.optimizer(each, model) for each in optimizers(model)]
    module = way.module(model)
    if compiles == "after":
        module = torch.compile(module, backend="aot_eager")
    losses = []
    for step in range(STEPS):
        for each in made:
            each.zero_grad()
            if hasattr(each, "train"):  # a schedule-free one
                each.train()
        loss = loss_of(module, way, step)
        loss.backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        for each in made:
            each.step()
        losses.append(loss.item())
    return losses


def clips(way: Way, optimizers: Optimizers) -> list[float]:
    return plain(way, optimizers, clips=True)


def compiles_before(way: Way, optimizers: Optimizers) -> list[float]:
    return plain(way, optimizers, compiles="before")


def compiles_after(way: Way, optimizers: Optimizers) -> list[float]:
    return plain(way, optimizers, compiles="after")


def closures(way: Way, optimizers: Optimizers) -> list[float]:
    model = net()
    optimizer = way.optimizer(optimizers(model)[0], model)
    module = way.module(model)
    losses = []
    for step in range(STEPS // 5):
        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(module, way, step)
            loss.backward()
            losses.append(loss.item())
            return way.mean(loss)
        optimizer.step(closure)
    return losses


def scales(way: Way, optimizers: Optimizers) -> list[float]:
    """float16 with a scaler, whose first steps overflow, and clipping between unscale_ and step."""
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    optimizer = way.optimizer(optimizers(model)[0], model, scaler)
    module = way.module(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_of(module, way, step)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        scaler.step(optimizer)
        scaler.update()
        losses += [loss.item(), scaler.get_scale()]
    return losses


def sharpness(way: Way, optimizers: Optimizers) -> list[float]:
    """SAM by hand: a second backward pass at the weights that the first one has moved."""
    model = net()
    optimizer = way.optimizer(optimizers(model)[0], model)
    module = way.module(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(module, way, step)
        loss.backward()
        parameters = list(model.parameters())
        before = [each.detach().clone() for each in parameters]
        with torch.no_grad():
            norm = torch.stack([each.grad.norm() for each in parameters]).norm()
            for each in parameters:
                each.add_(each.grad, alpha=0.05 / float(norm))
        optimizer.zero_grad()
        loss_of(module, way, step).backward()
        with torch.no_grad():
            for each, value in zip(parameters, before):
                each.copy_(value)
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharpness_of_package(way: Way, optimizers: Optimizers) -> list[float]:
    """SAM of a package, whose step makes the second pass with a closure."""
    model = net()
    optimizer = way.optimizer(optimizers(model)[0], model)
    module = way.module(model)
    losses = []
    for step in range(STEPS):
        def closure(step: int = step) -> torch.Tensor:
            loss = loss_of(module, way, step)
            loss.backward()
            return loss
        losses.append(closure().item())
        optimizer.step(closure)
        optimizer.zero_grad()
    return losses


def adversaries(way: Way, optimizers: Optimizers) -> list[float]:
    """A GAN: the generator's pass also gives the critic gradients, which are dropped."""
    torch.manual_seed(3)
    both = nn.ModuleList([nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 20)),
                          nn.Sequential(nn.Linear(20, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))])
    of_generator, of_critic = (way.optimizer(optimizers(each)[0], each) for each in both)
    generator, critic = (way.module(each) for each in both)
    losses = []
    for step in range(STEPS):
        x, _ = batch_of(way.rank, step)
        of_critic.zero_grad()
        scores = critic(torch.cat([generator(x[:, :4]).detach(), x]))[:, 0]
        truth = torch.tensor([0.0, 1.0]).repeat_interleave(len(x))
        loss = nn.functional.binary_cross_entropy_with_logits(scores, truth)
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        loss_of_generator = nn.functional.softplus(-critic(generator(x[:, :4]))).mean()
        loss_of_generator.backward()
        of_generator.step()
        losses += [loss.item(), loss_of_generator.item()]
    return losses


def averages(way: Way, optimizers: Optimizers) -> list[float]:
    """An average of the weights over the steps, which is swapped in to evaluate."""
    model = net()
    optimizer = way.optimizer(optimizers(model)[0], model)
    module = way.module(model)
    average = {name: value.clone() for name, value in model.state_dict().items()}
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(module, way, step)
        loss.backward()
        optimizer.step()
        for name, value in model.state_dict().items():
            average[name].lerp_(value, 0.1)
        own = copy.deepcopy(model.state_dict())
        model.load_state_dict(average)
        with torch.no_grad():
            losses += [loss.item(), loss_of(model, way, step).item()]
        model.load_state_dict(own)
    return losses


@dataclasses.dataclass
class Case:
    optimizers: Optimizers
    loop: Callable[[Way, Optimizers], list[float]] = plain
    needs: str = "torch"
    """An attribute of torch, or a package."""

    def is_possible(self) -> bool:
        first, *names = self.needs.split(".")
        found: Any = torch
        for name in names:
            found = getattr(found, name, None)
        return found is not None and importlib.util.find_spec(first) is not None


def of(name: str, **settings: Any) -> Optimizers:
    """An optimizer of torch, or of pytorch_optimizer."""
    package, _, kind = name.rpartition(".")

    def make(model: nn.Module) -> list[torch.optim.Optimizer]:
        module: Any = importlib.import_module(package) if package else torch.optim
        return [getattr(module, kind)(model.parameters(), **settings)]
    return make


def muon_and_adamw(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon takes matrices alone."""
    matrices = [each for each in model.parameters() if each.dim() == 2]
    others = [each for each in model.parameters() if each.dim() != 2]
    muon: Any = getattr(torch.optim, "Muon")
    return [muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=0.01)]


def sam_of_package(model: nn.Module) -> list[torch.optim.Optimizer]:
    module: Any = importlib.import_module("pytorch_optimizer")
    return [module.SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.05, momentum=0.9)]


SGD = of("SGD", lr=0.05, momentum=0.9, weight_decay=1e-3)
ADAMW = of("AdamW", lr=0.01)
CASES = {
    "sgd": Case(SGD),
    "adam": Case(of("Adam", lr=0.01, weight_decay=1e-3)),
    "adamw": Case(ADAMW),
    "radam": Case(of("RAdam", lr=0.01)),
    "lbfgs": Case(of("LBFGS", lr=0.2, max_iter=4, history_size=5), closures),
    "lbfgs_searches": Case(of("LBFGS", lr=0.5, max_iter=3, line_search_fn="strong_wolfe"), closures),
    "muon": Case(muon_and_adamw, needs="torch.optim.Muon"),
    "adafactor": Case(of("Adafactor", lr=0.05), needs="torch.optim.Adafactor"),
    "adafactor_of_package": Case(of("pytorch_optimizer.AdaFactor", lr=0.01), needs="pytorch_optimizer"),
    "lion": Case(of("pytorch_optimizer.Lion", lr=1e-3), needs="pytorch_optimizer"),
    "schedule_free": Case(of("pytorch_optimizer.ScheduleFreeAdamW", lr=0.01), needs="pytorch_optimizer"),
    "soap": Case(of("pytorch_optimizer.SOAP", lr=0.003), needs="pytorch_optimizer"),
    "clips": Case(SGD, clips),
    "scales": Case(SGD, scales, "torch.amp.GradScaler"),
    "sharpness": Case(SGD, sharpness),
    "sharpness_of_package": Case(sam_of_package, sharpness_of_package, "pytorch_optimizer"),
    "adversaries": Case(ADAMW, adversaries),
    "averages": Case(ADAMW, averages),
    "compiles_before": Case(SGD, compiles_before, "torch.compile"),
    "compiles_after": Case(ADAMW, compiles_after, "torch.compile"),
}


def run(way: Way, name: str) -> list[float]:
    torch.set_num_threads(1)
    return CASES[name].loop(way, CASES[name].optimizers)


def run_group(rank: int, store: str, names: list[str], out: Any) -> None:
    """One of the two processes of torch.distributed: the losses of all cases."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    out.put((rank, {name: run(OfGroup(rank), name) for name in names}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
