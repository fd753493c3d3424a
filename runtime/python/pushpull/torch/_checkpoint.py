# SPDX-License-Identifier: Apache-2.0
"""A job's checkpoint in a plain model and plain optimizers of torch."""
from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Optional, Union

import numpy
import torch

from .._checkpoint import Checkpoint
from .._checkpoint import load_checkpoint as open_checkpoint
from .._program_state import InSlot, Packed
from ._placement import statistics
from ._saved import map_elements
from ._settings import described, from_rows, on_servers, state_names
from ._tensors import DTYPES

Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer], None]


def load_checkpoint(path: Union[str, os.PathLike[str]], model: torch.nn.Module, optimizer: Optimizers = None) -> int:
    """Gives `model` and `optimizer`, both of torch and in no job, what the checkpoint at `path` has (see pushpull.load_checkpoint).
    Returns its step. The model trains on in this process as it would have in the job, wherever the optimizer ran there.

    model      that of the job: parameters, the buffers of which the workers had the mean, and with the optimizer on the workers its
               counters. With the optimizer on the servers, frozen parameters and buffers of integers keep what they have: no
               checkpoint has them
    optimizer  of the class that the job had, or several in the order of its DistributedOptimizers. The settings (lr) stay those that it
               has: make the steps of its schedulers

    Raises ValueError, before anything changes, with the first name that the model or the checkpoint lacks, or that has another shape;
    PushPullError as of pushpull.load_checkpoint.
    """
    source = _Source(open_checkpoint(path))
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer or ())
    wanted = _wanted(model, optimizers, source)
    source.check(wanted, {**dict(model.named_parameters()), **dict(model.named_buffers())})
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    states = [source.state_of(number, each, names) for number, each in enumerate(optimizers)]
    with torch.no_grad():
        for name, tensor in wanted.items():
            source.copy(name, tensor)
    for each, state in zip(optimizers, states):
        each.load_state_dict({"state": state, "param_groups": each.state_dict()["param_groups"]})
    return source.step


def _wanted(model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], source: _Source) -> dict[str, torch.Tensor]:
    """The tensors of the model that the job had in its checkpoint, by name."""
    trained = {id(parameter) for each in optimizers for group in each.param_groups for parameter in group["params"]}
    wanted: dict[str, torch.Tensor] = {
        name: parameter for name, parameter in model.named_parameters() if parameter.numel() > 0 and parameter.dtype in DTYPES
        and (parameter.requires_grad or id(parameter) in trained or source.is_of_workers)}
    wanted.update((name, owner[key]) for name, (owner, key) in statistics(model).items())
    wanted.update((name, buffer) for name, buffer in model.named_buffers() if name in source.counters)
    return wanted


class _Source:
    """A checkpoint, and what it has of a program whose optimizers ran on the workers."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.step: int = checkpoint.step
        self._folder = checkpoint.folder
        self._engine = checkpoint._engine
        self._tensors = {tensor.name: tensor for tensor in self._engine.tensors()}
        self._names = checkpoint.names
        self._state = checkpoint._state_of_program()
        self._content: dict[str, Any] = {} if self._state is None else self._state.content

    @property
    def is_of_workers(self) -> bool:
        """Whether the optimizers ran there."""
        return self._state is not None

    @property
    def counters(self) -> set[str]:
        """The buffers that have no tensor of their own."""
        return {name for name in self._content.get("tensors", {}) if name not in self._names}

    def check(self, wanted: dict[str, torch.Tensor], known: dict[str, torch.Tensor]) -> None:
        """Raises ValueError for the first difference between the model and the checkpoint. `known`: whatever the model has."""
        for name, tensor in wanted.items():
            if name not in self._tensors and name not in self.counters:
                raise ValueError(f'{self._folder}: lacks "{name}" of the model; build the model as the job did')
            if name in self._tensors and tuple(self._tensors[name].shape) != tuple(tensor.shape):
                raise ValueError(f'{self._folder}: "{name}" has shape {tuple(self._tensors[name].shape)}, in the model {tuple(tensor.shape)}')
        for name in [*self._names, *sorted(self.counters)]:
            if name not in known:
                raise ValueError(f'{self._folder}: has "{name}", which the model lacks; build the model as the job did')

    def copy(self, name: str, tensor: torch.Tensor) -> None:
        """Gives `tensor` the value."""
        kept = self._content.get("tensors", {}).get(name)
        if kept is not None:
            tensor.copy_(self._tensor(kept))
        elif self._tensors[name].has_rows:
            keys, values, _, _ = self._engine.read_rows(name)
            tensor[_indices(keys)] = torch.from_numpy(numpy.array(values).reshape(len(keys), -1)).to(tensor.device, tensor.dtype)
        else:
            tensor.copy_(self._read(name))

    def state_of(self, number: int, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[int, Any]:
        """The state of the job's optimizer `number`, by the index of the parameter in `optimizer`, whose parameters have these names."""
        parameters = [(parameter, group) for group in optimizer.param_groups for parameter in group["params"]]
        for parameter, _ in parameters:
            if id(parameter) not in names:
                raise ValueError(f"a parameter of shape {tuple(parameter.shape)} of the optimizer is not in the model")
        if not self.is_of_workers:
            of_servers = {index: self._state_of_servers(optimizer, names[id(parameter)], parameter, group)
                          for index, (parameter, group) in enumerate(parameters)}
            return {index: kept for index, kept in of_servers.items() if kept}
        if number >= len(self._content["classes"]):
            raise ValueError(f'{self._folder}: has the state of {len(self._content["classes"])} optimizers; pass no more')
        if type(optimizer).__name__ != self._content["classes"][number]:
            raise ValueError(f'{self._folder}: has the state of {self._content["classes"][number]}, not of {type(optimizer).__name__}')
        own = [names[id(parameter)] for parameter, _ in parameters]
        for saved, name in zip_longest(self._content["names"][number], own):
            if saved != name:
                raise ValueError(f'{self._folder}: the optimizer has parameter "{saved}" where this one has "{name}"; give it the parameters '
                                 "in the order of the job")
        state: dict[int, Any] = self._restored(self._content["optimizers"][number]["state"])
        return state

    def _state_of_servers(self, optimizer: torch.optim.Optimizer, name: str, parameter: torch.Tensor,
                          group: dict[str, Any]) -> Optional[dict[str, Any]]:
        if parameter.numel() == 0:
            return None
        tensor, of_servers = self._tensors[name], on_servers(optimizer, group)
        kinds = tensor.optimizer.kind, None if of_servers is None else of_servers.spec().kind
        if kinds[0] != kinds[1] or tensor.state_rows != len(state_names(optimizer, group)):
            raise ValueError(f'{self._folder}: "{name}" has the state of {kinds[0].name} with {tensor.state_rows} values for each element, '
                             f"not that of {described(optimizer)}")
        rows = torch.zeros((tensor.state_rows, *parameter.shape), dtype=torch.float32, device="cpu")
        if tensor.has_rows:
            keys, _, states, updates = self._engine.read_rows(name)
            of_rows = torch.from_numpy(numpy.array(states).reshape(len(keys), tensor.state_rows, -1))
            rows[:, _indices(keys)] = of_rows.transpose(0, 1)
        else:
            updates = self._engine.updates(name)
            for number in range(tensor.state_rows):
                self._engine.read_optimizer_state(name, number, rows[number])
        return from_rows(rows, state_names(optimizer, group), updates) if updates and len(rows) else None

    def _restored(self, value: Any) -> Any:
        return self._tensor(value) if isinstance(value, (InSlot, Packed)) else map_elements(value, self._restored)

    def _tensor(self, kept: Any) -> torch.Tensor:
        """What stands for a tensor in the program's state, or the tensor."""
        if isinstance(kept, Packed):
            packed: torch.Tensor = torch.frombuffer(bytearray(kept.content), dtype=getattr(torch, kept.dtype)).reshape(kept.shape)
            return packed
        assert self._state is not None
        return self._read(self._state.slots[kept.number])

    def _read(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        value = torch.empty(tuple(tensor.shape), dtype=getattr(torch, tensor.dtype), device="cpu")
        self._engine.read(name, value)
        return value


def _indices(keys: Any) -> torch.Tensor:
    indices: torch.Tensor = torch.from_numpy(numpy.array(keys).astype(numpy.int64))
    return indices
