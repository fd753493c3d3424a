# SPDX-License-Identifier: Apache-2.0
"""The weights of sparse embeddings: row-sparse tensors. A step pulls and pushes only the rows that its batches touch."""
from __future__ import annotations

import inspect
from typing import Any, Optional, Union

import torch
from torch import nn

from .. import _engine
from .._optimizers import Optimizer
from . import _barrier
from ._sent import PushedParameter, sent
from ._tensors import Waits

Embedding = Union[nn.Embedding, nn.EmbeddingBag]

_PORTION_BYTES = 64 * 1024 * 1024  # rows received at a time when all rows are


class RowParameter(PushedParameter):
    """The weight of a sparse embedding. The servers have its rows.

    Its module receives the rows that its ids name; whoever else reads the weight receives all rows.
    """

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any], waits: Waits) -> None:
        super().__init__(name, parameter, group)
        self._waits = waits
        self._push: Optional[_engine.Handle] = None
        self._engine: Optional[_engine.EngineJob] = None
        self._version = 0  # with which the next step begins
        self._unchanged = 0  # version of the parameter without changes of the program

    def register(self, optimizer: Optimizer) -> None:
        rows, dim = self.parameter.shape
        self._waits.job.store.register_rows(self.registered_name, rows, dim, optimizer=optimizer, value=self.parameter)

    def bind(self, engine: _engine.EngineJob) -> None:
        self._engine = engine
        self._version = engine.next_step
        self._unchanged = self.parameter._version

    def end_step(self) -> None:
        super().end_step()
        self._version += 1
        self.expect_rows()

    def expect_rows(self) -> None:
        """The weight's rows are those of an earlier step: who reads it now receives all."""
        _barrier.await_value(self.parameter)

    def put_in_place(self) -> None:
        """Receives all rows, in portions."""
        if self._engine is None:
            return
        weight = _barrier.memory_of(self.parameter)
        portion = max(_PORTION_BYTES // (8 + 4 * weight.shape[1]), 1)
        for first in range(0, len(weight), portion):
            rows = weight[first:first + portion]
            self._pull(torch.arange(first, first + len(rows), device="cpu"), rows)

    def receive(self, ids: torch.Tensor) -> None:
        """Receives the rows of these ids into the weight, as they are when this worker's next step begins."""
        self._waits.job._start_once()
        _barrier.stop_waiting(self.parameter)
        keys = torch.unique(ids.detach()).to(torch.int64)
        rows = torch.empty((len(keys), self.parameter.shape[1]), dtype=torch.float32, device="cpu")
        self._pull(keys, rows)
        _barrier.memory_of(self.parameter)[keys] = rows

    def on_memory_read(self) -> None:
        if self._engine is not None:
            raise RuntimeError(f'parameter "{self.name}": .data of the weight of an Embedding(sparse=True), whose rows the servers have; '
                               "read it with .detach(), and change it before the job starts, or use sparse=False")

    def check_value(self) -> None:
        with _barrier.WithoutBarrier():
            has_changed = self.parameter._version != self._unchanged
        if has_changed:
            raise RuntimeError(f'parameter "{self.name}": the program has changed the weight of an Embedding(sparse=True), whose rows '
                               "the servers have; change it before the job starts, or use sparse=False")

    def wait(self) -> None:
        """Waits until the last step has ended."""
        if self._push is not None:
            self._push.wait(self._waits.timeout)
            self._push = None

    def _send(self, grad: Optional[torch.Tensor], samples: float) -> None:
        # Without a gradient no rows, because every worker pushes in every step.
        assert self._engine is not None
        self.wait()
        if grad is None:
            keys = torch.empty(0, dtype=torch.int64, device="cpu")
            values = torch.empty((0, self.parameter.shape[1]), dtype=torch.float32, device="cpu")
        elif grad.is_sparse:
            # The library adds up the gradients of a row that occurs several times.
            keys, values = grad._indices()[0].contiguous(), grad._values().contiguous()
        else:
            raise TypeError(f'parameter "{self.name}": its gradient is dense, the weight is used outside of its '
                            "Embedding(sparse=True); use sparse=False")
        options = _engine.PushOptions()
        options.samples, options.learning_rate = samples, self._lr
        self._push = self._engine.push_rows(self.registered_name, keys, values, options)
        if grad is not None:
            sent(grad, self)

    def _pull(self, keys: torch.Tensor, rows: torch.Tensor) -> None:
        assert self._engine is not None
        if not self.is_pushed:  # otherwise its step is not over: parts of a model may run twice
            self.wait()
        self._engine.pull_rows(self.registered_name, keys, rows, self._version).wait(self._waits.timeout)


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


class ReceiveRows:
    """Hooks of a module: it receives the rows that it is about to use before its forward pass."""

    def __init__(self, row_parameter: RowParameter) -> None:
        self._rows: Optional[RowParameter] = row_parameter
        self._handles: list[Any] = []

    def attach(self, module: Embedding) -> None:
        register: Any = module.register_forward_pre_hook
        has_named = "with_kwargs" in inspect.signature(register).parameters  # torch 2.0
        self._handles = [register(self, with_kwargs=True) if has_named else register(self), module.register_forward_hook(self._after)]

    def detach(self) -> None:
        self._rows = None
        for handle in self._handles:
            handle.remove()

    def __call__(self, _: nn.Module, arguments: tuple[Any, ...], named: Optional[dict[str, Any]] = None) -> None:
        if self._rows is None:
            return
        ids = arguments[0] if arguments else (named or {}).get("input")
        if not isinstance(ids, torch.Tensor):
            raise TypeError(f'parameter "{self._rows.name}": pass the ids to Embedding(sparse=True) as the first argument, by position')
        self._rows.receive(ids)

    def _after(self, *_: Any) -> None:
        if self._rows is not None:
            self._rows.expect_rows()

    def __deepcopy__(self, memo: Any) -> _NoRows:
        return _NoRows()

    def __reduce__(self) -> Any:
        return _NoRows, ()


class _NoRows:
    """The hooks in a copy of the model, which has all rows."""

    def __call__(self, *_: Any) -> None:
        pass

    _after = __call__
