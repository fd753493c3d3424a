# SPDX-License-Identifier: Apache-2.0
"""Gradients that were sent to the servers: what a program does with them from then on would not be what one process does."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ._barrier import WithoutBarrier, is_backward_compiled
from ._settings import learning_rate

_Tensor: Any = torch.Tensor
_REMEDY = ('to clip, pass clip_norm to DistributedOptimizer; otherwise pass optimizer_on="workers": then .grad is the mean of all '
           "workers, and yours to change")


class PushedParameter:
    """A parameter of an optimizer on the servers, and its gradient in the current step."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        self.name = name
        self.registered_name = name  # of its tensor
        self.parameter = parameter
        self.group = group
        self.is_pushed = False  # in the current step
        self._lr = 0.0  # with which it was pushed
        self._samples = 0.0  # likewise
        self._is_zeroed = False  # whether the program has set the gradient to zeros since
        self.may_read = False  # whether the program knows that the norm it measures is that of this worker's gradient
        self._left: Optional[tuple[torch.Tensor, int]] = None  # `parameter.grad` after the push, and its version

    def push(self, samples: float) -> None:
        """Pushes `parameter.grad`, which must not be used from now on; without it, that this worker has no gradient."""
        self.check_value()
        self._check_sum(samples)
        self._lr, self._samples, self._is_zeroed = learning_rate(self.group), samples, False
        with WithoutBarrier():
            self._send(self.parameter.grad, samples)
            self._left = self._found()
        self.is_pushed = True

    def check_gradient(self) -> None:
        """Raises RuntimeError if the program has replaced or changed the gradient since it was pushed."""
        with WithoutBarrier():
            found = self._found()
        if found == self._left or (found and self._left and found[0] is self._left[0] and found[1] == self._left[1]):
            return
        what = "dropped" if found is None else "changed"
        raise RuntimeError(f'the gradient of parameter "{self.name}" was {what} between backward() and step(), after it was sent to the '
                           "servers, and that has no effect. Run a backward pass whose gradients are not wanted in "
                           f"optimizer.no_sync(); {_REMEDY}")

    def check_learning_rate(self) -> None:
        """Raises ValueError if the program has changed the rate since the push."""
        now = learning_rate(self.group)
        if now != self._lr:
            raise ValueError(f'parameter "{self.name}": lr changed from {self._lr} to {now} between backward() and step(), after the '
                             "gradient was sent to the servers with the old one; change it (scheduler.step()) after optimizer.step() or "
                             'before backward(), or pass optimizer_on="workers"')

    def end_step(self) -> None:
        """The step is made; its new value is on its way."""
        self.is_pushed = False
        self._left = None

    def check_value(self) -> None:
        """Raises RuntimeError if the program has changed the value: the servers would not know."""

    def end_push(self) -> None:
        """Waits until the library knows of the push."""

    def end_read(self) -> None:
        """The program sets the gradient to zeros. Waits until the servers have read it."""
        self._is_zeroed = True

    def put_in_place(self) -> None:
        """Waits for the value after the last step; the parameter has it afterwards."""

    def on_memory_read(self) -> None:
        """The program gets the memory of the parameter, and may write there."""

    def _check_sum(self, samples: float) -> None:
        """Raises RuntimeError if the gradient also has those of earlier steps, which had other shares of the samples."""
        if isinstance(self.parameter.grad, SentGradient) and not self._is_zeroed and samples != self._samples:
            raise RuntimeError(f'gradient of parameter "{self.name}": it adds to that of the step before, for which this worker had '
                               f"{self._samples:g} samples, not {samples:g}, and the sums of all workers have no common weight: call "
                               'optimizer.zero_grad() in each step, or pass optimizer_on="workers"')

    def _send(self, grad: Optional[torch.Tensor], samples: float) -> None:
        raise NotImplementedError

    def _found(self) -> Optional[tuple[torch.Tensor, int]]:
        grad: Optional[torch.Tensor] = self.parameter.grad
        return None if grad is None else (grad, grad._version)


class SentGradient(torch.Tensor):
    """`parameter.grad` after it was pushed: this worker's gradient, where the program expects the mean. It can be dropped."""

    _sender: PushedParameter

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function not in _WITHOUT_VALUE and not _is_measured(function, args):
            _refuse((args, kwargs), function)
        if function is _Tensor.mul_ and _is_measured(function, args):
            return args[0]  # the servers may still be reading it
        with WithoutBarrier():
            return function(*args, **(kwargs or {}))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override, unused-ignore]  # torch passes nothing
        return f'SentGradient(of "{self._sender.name}")'


def sent(gradient: torch.Tensor, sender: PushedParameter) -> torch.Tensor:
    """Makes `gradient` one that has been sent. The object stays the same."""
    if not is_backward_compiled():
        gradient.__class__ = SentGradient
        setattr(gradient, "_sender", sender)
    return gradient


def _getters(*names: str) -> list[Any]:
    return [getattr(_Tensor, name).__get__ for name in names]


_WITHOUT_VALUE = {*_getters("shape", "dtype", "device", "layout", "is_leaf", "is_sparse", "is_cuda", "grad_fn", "requires_grad", "grad",
                            "_version", "is_mps", "is_xpu"),
                  _Tensor.requires_grad_, _Tensor.is_contiguous, _Tensor.stride, _Tensor.size, _Tensor.dim, _Tensor.numel, _Tensor.is_floating_point, _Tensor.__hash__}
# What `zero_grad` does without set_to_none.
_AFTER_STEP = {_Tensor.zero_, _Tensor.detach_}


# What torch.nn.utils.clip_grad_norm_ does without a limit, to measure the norm.
_NORMS = {torch.linalg.vector_norm, _Tensor.mul_}


def _is_measured(function: Any, args: Any) -> bool:
    """Whether a program that knows what it reads measures the norm. Multiplies by 1 then, or by NaN if the norm is not finite."""
    if function not in _NORMS or not isinstance(args[0], SentGradient) or not args[0]._sender.may_read:
        return False
    return function is not _Tensor.mul_ or not float(args[1]) < 1


def _refuse(value: Any, function: Any) -> None:
    if isinstance(value, SentGradient):
        sender = value._sender
        if not (function in _AFTER_STEP and not sender.is_pushed):
            raise RuntimeError(f'the gradient of parameter "{sender.name}" is used after backward() ({_name_of(function)}), but it was '
                               f"sent to the servers during the backward pass, and a change has no effect: {_REMEDY}")
        if function in _AFTER_STEP:
            sender.end_read()
    elif isinstance(value, (tuple, list)):
        for each in value:
            _refuse(each, function)
    elif isinstance(value, dict):
        for each in value.values():
            _refuse(each, function)


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return str(name)
