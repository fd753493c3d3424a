# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model in the job: what is pushed, from which memory, and where new values go."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

import numpy
import torch

from .. import _engine
from .._job import Job
from .._optimizers import Optimizer
from ._settings import learning_rate

_ALIGNMENT = 64  # bytes: each gradient begins on its own cache line
# The dtypes that tensors of the job may have. Servers keep float32 values of all of them.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Tensor:
    """A registered tensor: what is pushed, and where its new value goes."""

    def __init__(self, name: str, gradient: torch.Tensor, value: torch.Tensor) -> None:
        self.name = name
        self.gradient = gradient  # in memory that servers on this host read in place
        self.value = value
        self._bound: Optional[_engine.BoundPush] = None
        self._handle: Optional[_engine.Handle] = None

    def register(self, job: Job, optimizer: Optimizer, codec: str = "none", clip_norm: float = 0.0) -> None:
        job.store.register(self.name, self.value, optimizer=optimizer, codec=codec, clip_norm=clip_norm)

    def bind(self, engine: _engine.EngineJob) -> None:
        self._bound = engine.bind(self.name, self.gradient, self.value)

    def push(self, samples: float, lr: float) -> None:
        assert self._bound is not None
        self._handle = self._bound.push(samples, lr)

    def wait(self, timeout: float) -> bool:
        """Whether a new value has arrived since the last call. Afterwards the gradient may be written."""
        if self._handle is None:
            return False
        self._handle.wait(timeout)
        self._handle = None
        return True


class Parameter:
    """A parameter and its gradient in the current step."""

    def __init__(self, parameter: torch.nn.Parameter, group: dict[str, Any], gradient: Tensor,
                 update: Optional[Tensor]) -> None:
        self.parameter = parameter
        self.group = group
        self.gradient = gradient
        self.update = update  # with the optimizer on the workers: what the step subtracts from the parameter
        self.is_pushed = False
        self._pushed_version = 0

    def bind(self, engine: _engine.EngineJob) -> None:
        self.gradient.bind(engine)
        if self.update is not None:
            self.update.bind(engine)

    def wait(self, timeout: float) -> bool:
        """Whether the parameter has received a new value since the last call."""
        return (self.update or self.gradient).wait(timeout)

    def end_step(self) -> None:
        self.is_pushed = False

    def push(self, samples: float, timeout: float, loss_scale: Optional[float]) -> bool:
        """Pushes `parameter.grad`, which afterwards refers to the memory from which servers read it.

        With `loss_scale` the gradient is divided by that; if it is not finite, pushes zeros and returns False.
        """
        memory, grad = self.gradient.gradient, self.parameter.grad
        self.gradient.wait(timeout)
        if grad is None:
            memory.zero_()
        elif grad is not memory:
            if grad.is_sparse:
                raise TypeError(f'parameter "{self.gradient.name}": its gradient is sparse, and it is not the weight of an '
                                "Embedding(sparse=True) of DistributedOptimizer(model=model); use sparse=False")
            memory.copy_(grad)
        is_finite = True
        if loss_scale is not None and grad is not None:
            memory.mul_(1 / loss_scale)
            is_finite = bool(memory.isfinite().all())
            if not is_finite:
                memory.zero_()
        self.parameter.grad = memory
        self._pushed_version = memory._version
        self.is_pushed = True
        self.gradient.push(samples, learning_rate(self.group))
        return is_finite

    def ignore_changes(self) -> None:
        self._pushed_version = self.gradient.gradient._version

    def check_unchanged(self) -> None:
        """Raises RuntimeError if the program has changed the gradient after it was pushed: that has no effect."""
        if self.gradient.gradient._version != self._pushed_version:
            raise RuntimeError(f"gradient of \"{self.gradient.name}\": changed after it was pushed, during the backward pass; "
                               "to clip, pass clip_norm to DistributedOptimizer")


class Buffer:
    """A buffer of the model, such as a running mean, and the workers' mean of it."""

    def __init__(self, buffer: torch.Tensor, mean: Tensor) -> None:
        self.buffer = buffer
        self.mean = mean

    def push(self, samples: float, timeout: float) -> None:
        self.mean.wait(timeout)
        self.mean.gradient.copy_(self.buffer)
        self.mean.push(samples, 0.0)

    def wait(self, timeout: float) -> None:
        if self.mean.wait(timeout):
            self.buffer.copy_(self.mean.value)


def statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's floating-point buffers that a checkpoint would have. A mask of infinities is excluded: it has no mean."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers()
            if name in saved and buffer.dtype in DTYPES and bool(buffer.isfinite().all())}


class Memory:
    """One registered buffer for all gradients: each buffer takes a file descriptor in every server."""

    def __init__(self, job: Job, shapes: Iterable[torch.Tensor]) -> None:
        self._values = job.buffer(sum(map(_aligned_floats, shapes)) or 1)
        self._used = 0

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """A tensor of the shape and dtype of `like`; not a view of another tensor, so it counts its own changes (_version)."""
        begin, self._used = self._used, self._used + _aligned_floats(like)
        values = self._values[begin:self._used]
        if like.dtype not in (torch.float16, torch.bfloat16):
            whole: torch.Tensor = torch.from_numpy(values[:like.numel()].reshape(tuple(like.shape)))
            return whole
        halves: torch.Tensor = torch.from_numpy(values.view(numpy.int16)[:like.numel()].reshape(tuple(like.shape)))
        return halves.view(like.dtype)


def _aligned_floats(tensor: torch.Tensor) -> int:
    num_bytes = int(tensor.numel()) * tensor.element_size()
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT // 4
