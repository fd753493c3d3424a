# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model in the job: what is pushed, from which memory, and where new values go."""
from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Optional

import numpy
import numpy.typing
import torch

from .. import _engine
from .._errors import PushPullError
from .._job import Job
from .._optimizers import Optimizer
from . import _barrier
from ._devices import ALIGNMENT, Copies, locked_floats
from ._rank_memory import RankMemory

# The dtypes that tensors of the job may have. Servers keep float32 values of all of them.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class Waits:
    """How long calls wait for the other workers: `timeout` in seconds, None without limit."""

    job: Job
    timeout: Optional[float] = None


class Tensor:
    """A registered tensor: what is pushed, and where its new value goes."""

    def __init__(self, name: str, gradient: torch.Tensor, value: torch.Tensor) -> None:
        self.name = name
        self.gradient = gradient  # on the CPU: in memory that servers on this host read in place
        self.value = value
        self._bound: Optional[_engine.BoundPush] = None
        self._handle: Optional[_engine.Handle] = None
        self.has_gradient = False  # whether any worker had one in the last step

    def register(self, job: Job, optimizer: Optimizer, codec: str = "none", clip_norm: float = 0.0, **more: Any) -> None:
        """Adds it to the job; `more` as in Store.register."""
        job.store.register(self.name, self.value, optimizer=optimizer, codec=codec, clip_norm=clip_norm, **more)

    def bind(self, engine: _engine.EngineJob) -> None:
        self._bound = engine.bind(self.name, self.gradient, self.value)

    def push(self, samples: float, lr: float, has_gradient: bool = True) -> None:
        assert self._bound is not None
        self._handle = self._bound.push(samples, lr, has_gradient)

    def end_push(self, timeout: Optional[float]) -> None:
        """Waits until the library knows of the push."""

    def wait(self, timeout: Optional[float]) -> bool:
        """Whether a new value has arrived since the last call. Afterwards the gradient may be written."""
        self.end_push(timeout)
        if self._handle is None:
            return False
        self._handle.wait(timeout)
        self.has_gradient = self._handle.has_gradient
        self._handle = None
        return True


class DeviceTensor(Tensor):
    """The same for a tensor of an accelerator: `gradient` and `value` are copies of it on the host."""

    def __init__(self, name: str, gradient: torch.Tensor, value: torch.Tensor, copies: Copies) -> None:
        super().__init__(name, gradient, value)
        self._copies = copies
        self._copied: Optional[Future[_engine.Handle]] = None  # a push that begins when its gradient is on the host

    def push_copy(self, source: Optional[torch.Tensor], samples: float, lr: float) -> None:
        """Pushes `source`, which must not change before the step ends; None: no gradient. Does not wait for the device."""
        bound = self._bound
        assert bound is not None
        if source is None:
            self.push(samples, lr, has_gradient=False)
            return
        self._copied = self._copies.to_host(self.gradient, source, lambda: bound.push(samples, lr))

    def end_push(self, timeout: Optional[float]) -> None:
        if self._copied is None:
            return
        try:
            self._handle = self._copied.result(timeout)
        except FutureTimeout:
            raise PushPullError(f'tensor "{self.name}": {self._copies.device} has not computed its gradient and copied it to the '
                                f"host within {timeout} s; wait again, or end the process if the device hangs",
                                "DEADLINE_EXCEEDED") from None
        self._copied = None


def check_dense(name: str, grad: Optional[torch.Tensor]) -> None:
    """Raises TypeError for a sparse gradient of a parameter whose tensor is dense."""
    if grad is not None and grad.is_sparse:
        raise TypeError(f'parameter "{name}": its gradient is sparse, and it is not the weight of an Embedding(sparse=True) of '
                        "DistributedOptimizer(model=model); use sparse=False")


def to_mean(mean: Tensor, source: torch.Tensor, samples: float) -> None:
    """Pushes what `source` has, for the workers' mean. Afterwards it may change, unless it is on an accelerator."""
    if isinstance(mean, DeviceTensor):
        mean.push_copy(source, samples, 0.0)
    else:
        mean.gradient.copy_(source)
        mean.push(samples, 0.0)


class Buffer:
    """A buffer of the model, such as a running mean, and the workers' mean of it.

    owner, key  where the model has it: the program may put another tensor there
    """

    def __init__(self, owner: dict[str, Any], key: str, mean: Tensor, waits: Waits) -> None:
        self._owner, self._key = owner, key
        self.buffer: torch.Tensor = owner[key]
        self._mean = mean
        self._waits = waits

    def bind(self, engine: _engine.EngineJob) -> None:
        self._mean.bind(engine)
        self.buffer.copy_(self._mean.value, non_blocking=True)

    def push(self, samples: float) -> None:
        self.receive()
        present = self._owner[self._key] if self._key in self._owner else None
        if not isinstance(present, torch.Tensor) or present.shape != self.buffer.shape or present.dtype != self.buffer.dtype:
            raise RuntimeError(f'buffer "{self._mean.name}": the program has removed it, or given it another shape or dtype, since the job '
                               "has started; set it up before DistributedOptimizer")
        if present is not self.buffer:
            _barrier.release(self.buffer)
            self.buffer = present
            _barrier.hold(present, self)
        to_mean(self._mean, self.buffer, samples)

    def receive(self) -> None:
        """Waits for the mean, also where no barrier does."""
        _barrier.put_in_place(self.buffer)
        self.put_in_place()

    def end_push(self) -> None:
        self._mean.end_push(self._waits.timeout)

    def put_in_place(self) -> None:
        """Waits for the mean; the buffer has it afterwards."""
        self._waits.job._complete_step()
        if self._mean.wait(self._waits.timeout):
            self.buffer.copy_(self._mean.value, non_blocking=True)

    def on_memory_read(self) -> None:
        """The program may write what it likes: the next step's mean has it."""


class Memory:
    """Makes the tensors of the job: with memory of the host for gradients, and for the copies of what accelerators have.

    That of the CPU's tensors is one registered buffer: each buffer takes a file descriptor in every server. With several local
    ranks `shared` has the memory for accelerators.
    """

    def __init__(self, job: Job, shapes: Iterable[torch.Tensor], shared: Optional[RankMemory] = None) -> None:
        every = list(shapes)
        on_devices = [each for each in every if each.device.type != "cpu"] if shared is None else []
        registered = sum(_aligned_floats(each) for each in every if each.device.type == "cpu")
        locked = 2 * sum(_aligned_floats(each) for each in on_devices)  # of each a gradient and a value
        self._registered = _Portions(job.buffer(registered or 1))
        self._locked = _Portions(locked_floats(locked, on_devices[0].device).numpy()) if locked else None
        self._shared = shared
        self._copies: dict[torch.device, Copies] = {}

    def tensor(self, name: str, value: torch.Tensor) -> Tensor:
        """A tensor of the job that begins as `value`. On the CPU `value` is where new values go."""
        if value.device.type == "cpu":
            return Tensor(name, self._registered.take_like(value), value)
        if self._shared is not None:
            gradient, copy = self._shared.of_tensor(name)
            return Tensor(name, gradient, copy.copy_(value))
        assert self._locked is not None
        if value.device not in self._copies:
            self._copies[value.device] = Copies(value.device)
        return DeviceTensor(name, self._locked.take_like(value), self._locked.take_like(value).copy_(value), self._copies[value.device])


class _Portions:
    def __init__(self, values: numpy.typing.NDArray[numpy.float32]) -> None:
        self._values = values
        self._used = 0

    def take_like(self, like: torch.Tensor) -> torch.Tensor:
        """A tensor of the shape and dtype of `like`; not a view of another tensor, so it counts its own changes (_version)."""
        begin, self._used = self._used, self._used + _aligned_floats(like)
        values = self._values[begin:self._used]
        if like.dtype not in (torch.float16, torch.bfloat16):
            whole: torch.Tensor = torch.from_numpy(values[:like.numel()].reshape(tuple(like.shape)))
            return whole
        halves: torch.Tensor = torch.from_numpy(values.view(numpy.int16)[:like.numel()].reshape(tuple(like.shape)))
        values_of_dtype: torch.Tensor = halves.view(like.dtype)
        return values_of_dtype


def _aligned_floats(tensor: torch.Tensor) -> int:
    num_bytes: int = tensor.numel() * tensor.element_size()
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT // 4
