# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model in the job: what is pushed, from which memory, and where new values go."""
from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Optional

import numpy
import numpy.typing
import torch

from .. import _engine
from .._errors import PushPullError
from .._job import Job
from .._optimizers import Optimizer
from ._devices import ALIGNMENT, Copies, locked_floats
from ._rank_memory import RankMemory
from ._settings import learning_rate

# The dtypes that tensors of the job may have. Servers keep float32 values of all of them.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Tensor:
    """A registered tensor: what is pushed, and where its new value goes."""

    def __init__(self, name: str, gradient: torch.Tensor, value: torch.Tensor) -> None:
        self.name = name
        self.gradient = gradient  # on the CPU: in memory that servers on this host read in place
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

    def end_push(self, timeout: float) -> None:
        """Waits until the library knows of the push."""

    def wait(self, timeout: float) -> bool:
        """Whether a new value has arrived since the last call. Afterwards the gradient may be written."""
        self.end_push(timeout)
        if self._handle is None:
            return False
        self._handle.wait(timeout)
        self._handle = None
        return True


class DeviceTensor(Tensor):
    """The same for a tensor of an accelerator: `gradient` and `value` are copies of it on the host."""

    def __init__(self, name: str, gradient: torch.Tensor, value: torch.Tensor, copies: Copies) -> None:
        super().__init__(name, gradient, value)
        self._copies = copies
        self._copied: Optional[Future[_engine.Handle]] = None  # a push that begins when its gradient is on the host

    def push_copy(self, source: Optional[torch.Tensor], samples: float, lr: float) -> None:
        """Pushes `source`, which must not change before the step ends, or zeros. Does not wait for the device."""
        bound = self._bound
        assert bound is not None
        self._copied = self._copies.to_host(self.gradient, source, lambda: bound.push(samples, lr))

    def end_push(self, timeout: float) -> None:
        if self._copied is None:
            return
        try:
            self._handle = self._copied.result(timeout)
        except FutureTimeout:
            raise PushPullError(f'tensor "{self.name}": {self._copies.device} has not computed its gradient and copied it to the '
                                f"host within {timeout:g} s; wait again, or end the process if the device hangs",
                                "DEADLINE_EXCEEDED") from None
        self._copied = None


class PushedParameter:
    """A parameter, and whether its gradient of the current step has been pushed."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        self.name = name
        self.parameter = parameter
        self.group = group
        self.is_pushed = False
        self._pushed: Optional[tuple[torch.Tensor, int]] = None  # the gradient, and its _version then

    def remember_push(self, grad: Optional[torch.Tensor]) -> None:
        self.is_pushed = True
        self._pushed = None if grad is None else (grad, grad._version)

    def ignore_changes(self) -> None:
        self._pushed = None

    def check_unchanged(self) -> None:
        """Raises RuntimeError if the program has changed the gradient after it was pushed: that has no effect."""
        if self._pushed is not None and self._pushed[0]._version != self._pushed[1]:
            raise RuntimeError(f'gradient of "{self.name}": changed after it was pushed, during the backward pass; to clip a dense '
                               "one, pass clip_norm to DistributedOptimizer")

    def check_dense(self, grad: torch.Tensor) -> None:
        if grad.is_sparse:
            raise TypeError(f'parameter "{self.name}": its gradient is sparse, and it is not the weight of an '
                            "Embedding(sparse=True) of DistributedOptimizer(model=model); use sparse=False")


class Parameter(PushedParameter):
    """A parameter and its gradient in the current step."""

    def __init__(self, parameter: torch.nn.Parameter, group: dict[str, Any], gradient: Tensor,
                 update: Optional[Tensor]) -> None:
        super().__init__(gradient.name, parameter, group)
        self.gradient = gradient
        self.update = update  # with the optimizer on the workers: what the step subtracts from the parameter

    def before_start(self) -> None:
        """Passes on the value with which the job may begin."""

    def bind(self, engine: _engine.EngineJob) -> None:
        self.gradient.bind(engine)
        if self.update is not None:
            self.update.bind(engine)

    def wait(self, timeout: float) -> bool:
        """Whether the parameter has received a new value since the last call."""
        return (self.update or self.gradient).wait(timeout)

    def end_push(self, timeout: float) -> None:
        """Waits until the library knows of the last push of the step."""

    def push(self, samples: float, timeout: float, loss_scale: Optional[float]) -> Optional[torch.Tensor]:
        """Pushes `parameter.grad`, which afterwards refers to the memory from which servers read it.

        With `loss_scale` the gradient is divided by that, and the result is whether it is finite; if not, pushes zeros.
        """
        memory, grad = self.gradient.gradient, self.parameter.grad
        self.gradient.wait(timeout)
        if grad is None:
            memory.zero_()
        elif grad is not memory:
            self.check_dense(grad)
            memory.copy_(grad)
        is_finite = None
        if loss_scale is not None and grad is not None:
            is_finite = _unscale(memory, loss_scale)
        self.parameter.grad = memory
        self.remember_push(memory)
        self.gradient.push(samples, learning_rate(self.group))
        return is_finite

    def receive_mean(self, timeout: float) -> None:
        """With the optimizer on the workers: `parameter.grad` becomes the workers' mean."""
        self.gradient.wait(timeout)
        self.gradient.gradient.copy_(self.gradient.value)

    def begin_update(self, timeout: float) -> None:
        """Makes the parameter one that the optimizer may change: the library owns the memory of a registered one."""
        assert self.update is not None
        self.update.wait(timeout)
        self.update.gradient.copy_(self.update.value)
        self.parameter.data = self.update.gradient

    def push_update(self) -> None:
        """Pushes what the optimizer has subtracted since."""
        assert self.update is not None
        self.parameter.data = self.update.value
        torch.sub(self.update.value, self.update.gradient, out=self.update.gradient)
        self.update.push(1.0, 1.0)


class DeviceParameter(Parameter):
    """The same for a parameter in the memory of an accelerator. New values arrive in it in order with the device's work."""

    gradient: DeviceTensor
    update: Optional[DeviceTensor]

    def before_start(self) -> None:
        (self.update or self.gradient).value.copy_(self.parameter.detach())

    def bind(self, engine: _engine.EngineJob) -> None:
        super().bind(engine)
        self._take_value()

    def wait(self, timeout: float) -> bool:
        if not super().wait(timeout):
            return False
        self._take_value()
        return True

    def end_push(self, timeout: float) -> None:
        (self.update or self.gradient).end_push(timeout)

    def push(self, samples: float, timeout: float, loss_scale: Optional[float]) -> Optional[torch.Tensor]:
        """Pushes `parameter.grad` when the device has computed it; does not wait for that."""
        grad = self.parameter.grad
        self.gradient.wait(timeout)
        is_finite = None
        if grad is not None:
            self.check_dense(grad)
            if loss_scale is not None:
                is_finite = _unscale(grad, loss_scale)
        self.remember_push(grad)
        self.gradient.push_copy(grad, samples, learning_rate(self.group))
        return is_finite

    def receive_mean(self, timeout: float) -> None:
        self.gradient.wait(timeout)
        if self.parameter.grad is None:
            self.parameter.grad = torch.empty_like(self.parameter)
        self.parameter.grad.copy_(self.gradient.value, non_blocking=True)

    def begin_update(self, timeout: float) -> None:
        self.wait(timeout)
        self._before = self.parameter.detach().clone()

    def push_update(self) -> None:
        assert self.update is not None
        self.update.push_copy(self._before.sub_(self.parameter.detach()), 1.0, 1.0)

    def _take_value(self) -> None:
        self.parameter.data.copy_((self.update or self.gradient).value, non_blocking=True)


def _unscale(grad: torch.Tensor, loss_scale: float) -> torch.Tensor:
    """Divides a gradient by the scale of the loss, and makes it zeros if it is not finite then; whether it is."""
    grad.mul_(1 / loss_scale)
    is_finite: torch.Tensor = grad.isfinite().all()
    grad.masked_fill_(is_finite.logical_not(), 0.0)
    return is_finite


class Buffer:
    """A buffer of the model, such as a running mean, and the workers' mean of it."""

    def __init__(self, buffer: torch.Tensor, mean: Tensor) -> None:
        self.buffer = buffer
        self.mean = mean

    def before_start(self) -> None:
        self.mean.value.copy_(self.buffer)

    def bind(self, engine: _engine.EngineJob) -> None:
        self.mean.bind(engine)
        self.buffer.copy_(self.mean.value, non_blocking=True)

    def push(self, samples: float, timeout: float) -> None:
        self.mean.wait(timeout)
        if isinstance(self.mean, DeviceTensor):
            self.mean.push_copy(self.buffer, samples, 0.0)
        else:
            self.mean.gradient.copy_(self.buffer)
            self.mean.push(samples, 0.0)

    def end_push(self, timeout: float) -> None:
        self.mean.end_push(timeout)

    def wait(self, timeout: float) -> None:
        if self.mean.wait(timeout):
            self.buffer.copy_(self.mean.value, non_blocking=True)


def statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's floating-point buffers that a checkpoint would have. A mask of infinities is excluded: it has no mean."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers()
            if name in saved and buffer.dtype in DTYPES and bool(buffer.isfinite().all())}


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
