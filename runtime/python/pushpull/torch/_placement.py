# SPDX-License-Identifier: Apache-2.0
"""What a DistributedOptimizer was made of, and what it needs of the place where the optimizer runs."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Callable, Optional, Protocol

import torch

from . import _barrier
from ._tensors import DTYPES, Waits


@dataclass
class Setup:
    """The arguments of a DistributedOptimizer.

    optimizer    of torch
    named        all parameters that have a name, in the order of the forward pass
    model        that has them; None if only the names are known
    accumulates  whether backward passes add up on this worker now (`no_sync`)
    num_steps    that the optimizer has made on the workers
    """

    optimizer: torch.optim.Optimizer
    named: dict[str, torch.nn.Parameter]
    model: Optional[torch.nn.Module]
    codec: str
    clip_norm: Optional[float]
    scaler: Optional[Any]
    waits: Waits
    accumulates: bool = False
    num_steps: int = 0

    def trained(self) -> Iterator[tuple[str, torch.nn.Parameter, dict[str, Any]]]:
        """The optimizer's parameters with their names and groups, in the order of the forward pass."""
        groups = {id(parameter): group for group in self.optimizer.param_groups for parameter in group["params"]}
        for name, parameter in self.named.items():
            if id(parameter) in groups:
                yield name, parameter, groups[id(parameter)]

    def is_local(self) -> bool:
        """Whether gradients that are complete now stay on this worker."""
        return self.accumulates or not self.waits.job._is_last_of_step


class Placement(Protocol):
    """Where the optimizer runs."""

    def before_start(self) -> None:
        """Registers the tensors, with the values that they have now."""

    def after_start(self) -> None:
        """The parameters and buffers have the job's values from here on."""

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        """A backward pass has completed the gradient of a named parameter, and the job has started."""

    def zero_grad(self, set_to_none: bool) -> None:
        """Forgets the gradients."""

    def step(self, closure: Optional[Callable[[], Any]]) -> Any:
        """Makes the optimizer's step. Returns the loss of the closure."""

    def make_empty_step(self) -> None:
        """Makes a step of the job without samples."""

    def finish_pushes(self, is_last: bool) -> None:
        """Begins what is left to push in the step, which is over. `is_last`: the program may push nothing after it."""

    def wait(self) -> None:
        """Blocks until the tensors have the values after the last step, and the job has this worker's."""

    def state_dict(self) -> dict[str, Any]:
        """As of the torch optimizer."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of the torch optimizer."""

    def allow_reading(self) -> None:
        """The program measures the gradients of this worker, and changes nothing."""

    def detach(self) -> None:
        """The job is over: the tensors are the program's own."""


def check_parameter(name: str, parameter: torch.nn.Parameter) -> None:
    """Raises TypeError or ValueError for a parameter that no tensor of the job can be."""
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        raise ValueError(f'parameter "{name}" has no shape yet: run a batch through the lazy module before DistributedOptimizer')
    if parameter.is_complex():
        raise TypeError(f'parameter "{name}": expected float32, bfloat16 or float16, got {parameter.dtype}; make the parameter '
                        "torch.view_as_real(...) of it, and use torch.view_as_complex(parameter) in forward")
    if parameter.dtype not in DTYPES:
        raise TypeError(f'parameter "{name}": expected float32, bfloat16 or float16, got {parameter.dtype}; use model.float() '
                        "before DistributedOptimizer")
    if _is_expanded(parameter):
        raise ValueError(f'parameter "{name}": several of its elements have the same memory (expand); use .clone()')


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape))


def unique_names(wanted: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Names for the tensors of another model: those of one model may occur in another one."""
    used = set(taken)
    names = {}
    for name in wanted:
        number, unique = 1, name
        while unique in used:
            number += 1
            unique = f"{number}:{name}"
        used.add(unique)
        names[name] = unique
    return names


def statistics(model: Optional[torch.nn.Module]) -> dict[str, tuple[dict[str, Any], str]]:
    """The model's floating-point buffers that a checkpoint would have, except those of another optimizer: the module's dictionary
    of buffers, and the key.

    A mask of infinities is excluded, because it has no mean, and so is a constant that repeats its memory (expand).
    """
    if model is None:
        return {}
    saved, found = model.state_dict().keys(), {}
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            name = f"{prefix}.{key}" if prefix else key
            if (name in saved and buffer is not None and buffer.dtype in DTYPES and buffer.numel() > 0 and not _is_expanded(buffer)
                    and not _barrier.is_held(buffer) and bool(buffer.isfinite().all())):
                found[name] = (module._buffers, key)
    return found


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, row-major."""
    copied: torch.Tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    return copied
