# SPDX-License-Identifier: Apache-2.0
"""The weights of sparse embeddings: row-sparse tensors. A step pulls and pushes only the rows that its batches touch."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Optional, Union

import torch
from torch import nn

from .. import _engine
from .._job import Job
from .._optimizers import Optimizer
from ._settings import learning_rate
from ._tensors import PushedParameter

Embedding = Union[nn.Embedding, nn.EmbeddingBag]

_PORTION_BYTES = 64 * 1024 * 1024  # rows received at a time when all rows are


class RowParameter(PushedParameter):
    """The weight of a sparse embedding. The servers have its rows; this process's rows are as of their last use."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        super().__init__(name, parameter, group)
        self._push: Optional[_engine.Handle] = None
        self._engine: Optional[_engine.EngineJob] = None
        self._version = 0  # with which the next step begins

    def register(self, job: Job, optimizer: Optimizer) -> None:
        rows, dim = self.parameter.shape
        job.store.register_rows(self.name, rows, dim, optimizer=optimizer, value=self.parameter)

    def bind(self, engine: _engine.EngineJob) -> None:
        self._engine = engine
        self._version = engine.next_step

    def before_start(self) -> None:
        """Nothing to do: the library reads the weight itself."""

    def push(self, samples: float, timeout: Optional[float], loss_scale: Optional[float]) -> Optional[torch.Tensor]:
        """Pushes the rows of `parameter.grad`; without a gradient no rows, because every worker pushes in every step."""
        assert self._engine is not None and loss_scale is None
        self.wait(timeout)
        grad = self.parameter.grad
        if grad is None:
            keys, values = torch.empty(0, dtype=torch.int64), torch.empty((0, self.parameter.shape[1]))
        elif grad.is_sparse:
            # The library adds up the gradients of a row that occurs several times.
            keys, values = grad._indices()[0].contiguous(), grad._values().contiguous()
        else:
            raise TypeError(f'parameter "{self.name}": its gradient is dense, the weight is used outside of its '
                            "Embedding(sparse=True); use sparse=False")
        options = _engine.PushOptions()
        options.samples, options.learning_rate = samples, learning_rate(self.group)
        self._push = self._engine.push_rows(self.name, keys, values, options)
        self.remember_push(grad)
        return None

    def end_push(self, timeout: Optional[float]) -> None:
        self._version += 1

    def wait(self, timeout: Optional[float]) -> bool:
        """Whether a step has ended since the last call."""
        if self._push is None:
            return False
        self._push.wait(timeout)
        self._push = None
        return True

    def receive(self, ids: torch.Tensor, timeout: Optional[float]) -> None:
        """Receives the rows of these ids into the weight, as they are when this worker's next step begins."""
        keys = torch.unique(ids.detach()).to(torch.int64)
        rows = torch.empty((len(keys), self.parameter.shape[1]))
        self._pull(keys, rows, timeout)
        self.parameter.data[keys] = rows

    def receive_all(self, timeout: Optional[float]) -> None:
        """Receives all rows, in portions."""
        weight = self.parameter.data
        portion = max(_PORTION_BYTES // (8 + 4 * weight.shape[1]), 1)
        for first in range(0, len(weight), portion):
            rows = weight[first:first + portion]
            self._pull(torch.arange(first, first + len(rows)), rows, timeout)

    def _pull(self, keys: torch.Tensor, rows: torch.Tensor, timeout: Optional[float]) -> None:
        assert self._engine is not None
        if not self.is_pushed:  # otherwise its step is not over: parts of a model may run twice
            self.wait(timeout)
        self._engine.pull_rows(self.name, keys, rows, self._version).wait(timeout)


def sparse_embeddings(model: Optional[nn.Module], trained: dict[str, nn.Parameter]) -> dict[str, Embedding]:
    """The modules of the model whose weights have sparse gradients, by the weight's name.

    Raises ValueError for settings that row-sparse tensors do not support.
    """
    names = {id(parameter): name for name, parameter in trained.items()}
    found: dict[str, Embedding] = {}
    owners: dict[str, int] = {}
    for module in () if model is None else model.modules():
        for parameter in module._parameters.values():
            name = names.get(id(parameter))
            if name is None:
                continue
            owners[name] = owners.get(name, 0) + 1
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse and parameter is module.weight:
                found[name] = module
    for name, embedding in found.items():
        if embedding.weight.device.type != "cpu":
            raise ValueError(f'parameter "{name}": Embedding(sparse=True) is on {embedding.weight.device}; leave it on the CPU, and '
                             "move what it returns, which is all that a batch needs; or use sparse=False")
        if owners[name] > 1:
            raise ValueError(f'parameter "{name}": the weight of an Embedding(sparse=True) is that of another module too; '
                             "use sparse=False, or a weight for each")
        if embedding.max_norm is not None:
            raise ValueError(f'parameter "{name}": Embedding(sparse=True) with max_norm changes rows in the forward pass, which '
                             "the servers would not see; use sparse=False, or no max_norm")
    return found


def check_choices(name: str, choices: dict[str, Any]) -> None:
    """Raises ValueError for a choice of DistributedOptimizer that is not None: row-sparse tensors do not support it."""
    for choice, value in choices.items():
        if value is not None:
            raise ValueError(f'parameter "{name}": Embedding(sparse=True) needs an optimizer on the servers, no codec and no '
                             f"clip_norm, and here {choice} is {value}; use sparse=False, or leave that out")


def receive_before(module: Embedding, each: RowParameter, begin: Callable[[], None], timeout: Callable[[], Optional[float]]) -> None:
    """Receives the rows that the module is about to use, before its forward pass."""
    def before(_: nn.Module, arguments: tuple[Any, ...], named: Optional[dict[str, Any]] = None) -> None:
        ids = arguments[0] if arguments else (named or {}).get("input")
        if not isinstance(ids, torch.Tensor):
            raise TypeError(f'parameter "{each.name}": pass the ids to Embedding(sparse=True) as the first argument, by position')
        begin()
        each.receive(ids, timeout())

    register: Any = module.register_forward_pre_hook
    if "with_kwargs" in inspect.signature(register).parameters:  # torch 2.0
        register(before, with_kwargs=True)
    else:
        register(before)
