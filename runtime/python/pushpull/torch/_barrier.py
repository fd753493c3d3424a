# SPDX-License-Identifier: Apache-2.0
"""Barriers of tensors: whoever reads a value that is on its way waits for it, however it is read.

torch calls `__torch_function__` for every operation, attribute and method of a tensor whose class has one, also for tensors in
lists. The class of a tensor can change while it lives: it is ArrivingParameter or ArrivingBuffer while its value travels, so the
first reader puts the value in place. Code that torch has compiled reads tensors without that call: see `has_compiled_code`.
"""
from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Callable, ContextManager, Protocol

import torch
from torch import nn

# In this block torch calls no __torch_function__. Newer versions have another name for it.
_C: Any = getattr(torch, "_C")
WithoutBarrier: Any = getattr(_C, "DisableTorchFunctionSubclass", None) or _C.DisableTorchFunction
_Tensor: Any = torch.Tensor
_data = _Tensor.data


class Held(Protocol):
    """What has a tensor of the program in the job."""

    def put_in_place(self) -> None:
        """Waits for the value and puts it into the tensor."""

    def on_memory_read(self) -> None:
        """The program gets the tensor's memory, and torch does not count what it writes there."""


class HeldParameter(nn.Parameter):
    """A parameter whose values come from the job, and which has the newest one. Costs nothing when it is used."""

    __torch_function__: Any = _C._disabled_torch_function_impl

    @property
    def data(self) -> Any:
        held = _held.get(id(self))
        if held is not None:
            held.on_memory_read()
        return _data.__get__(self)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        put_in_place(self)
        _data.__set__(self, value)

    def __deepcopy__(self, memo: Any) -> Any:
        copy: Any = super().__deepcopy__  # untyped in some versions of torch
        copied = copy(memo)
        copied.__class__ = nn.Parameter
        return copied


def _waiting(cls: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    if function in _WITHOUT_VALUE:
        with WithoutBarrier():
            return function(*args, **(kwargs or {}))
    uncompiled(_put_all_in_place)((args, kwargs))
    return function(*args, **(kwargs or {}))


class ArrivingParameter(HeldParameter):
    """A parameter whose new value is on its way."""

    __torch_function__: Any = classmethod(_waiting)


class ArrivingBuffer(torch.Tensor):
    """A buffer whose new value is on its way."""

    __torch_function__: Any = classmethod(_waiting)


_CLASS_OF_ARRIVING: dict[type, type] = {HeldParameter: ArrivingParameter, torch.Tensor: ArrivingBuffer}
_CLASS_IN_PLACE = {arriving: in_place for in_place, arriving in _CLASS_OF_ARRIVING.items()}
_held: dict[int, Held] = {}  # by the tensor's id
_WATCHED = "_pushpull_watches"  # an attribute of torch.autograd.Function
_lock = threading.RLock()  # the first reader puts the value in place, another thread waits until it is there


def _getters(*names: str) -> list[Any]:
    return [getattr(_Tensor, name).__get__ for name in names]


# What a program may ask without the value.
_WITHOUT_VALUE = {*_getters("grad", "requires_grad", "shape", "dtype", "device", "layout", "is_leaf", "is_sparse", "is_cuda", "grad_fn"),
                  _Tensor.grad.__set__, _Tensor.grad.__delete__, _Tensor.requires_grad.__set__, _Tensor.requires_grad_,
                  _Tensor.size, _Tensor.stride, _Tensor.dim, _Tensor.numel, _Tensor.is_contiguous, _Tensor.is_floating_point, _Tensor.__hash__}


def hold(tensor: torch.Tensor, held: Held) -> None:
    """From now on `held` is asked for the tensor's values."""
    with _lock:
        if type(tensor) is nn.Parameter:
            tensor.__class__ = HeldParameter
        _held[id(tensor)] = held


def watch_functions() -> None:
    """Functions of torch.autograd.Function wait for their arguments, too: torch makes no call of `__torch_function__` for them, and
    what they run may be an extension in C++, for which it makes none either."""
    function: Any = torch.autograd.Function
    original: Any = next(vars(each)["apply"] for each in function.__mro__ if "apply" in vars(each))
    if _WATCHED in vars(function):
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        _put_all_in_place(args)
        return original.__get__(None, cls)(*args, **kwargs)
    function.apply = classmethod(apply)
    setattr(function, _WATCHED, True)


def await_value(tensor: torch.Tensor) -> None:
    """The next reader of a held tensor waits for its value. If the program has given it a class of its own, this call waits."""
    arriving = _CLASS_OF_ARRIVING.get(type(tensor))
    if arriving is not None:
        tensor.__class__ = arriving
    elif type(tensor) not in _CLASS_IN_PLACE:
        _held[id(tensor)].put_in_place()


def stop_waiting(tensor: torch.Tensor) -> None:
    """The next readers of a held tensor take what it has."""
    tensor.__class__ = _CLASS_IN_PLACE.get(type(tensor), type(tensor))


def put_in_place(tensor: Any) -> None:
    """Puts the value into the tensor if it is on its way."""
    if type(tensor) not in _CLASS_IN_PLACE:
        return
    with _lock:
        in_place = _CLASS_IN_PLACE.get(type(tensor))
        if in_place is None:
            return  # another thread was faster
        held = _held.get(id(tensor))
        if held is None:  # a copy, which has what the original had
            tensor.__class__ = nn.Parameter if in_place is HeldParameter else in_place
            return
        with WithoutBarrier(), outside_inference():
            held.put_in_place()
        tensor.__class__ = in_place


def sees_memory_reads(tensor: torch.Tensor) -> bool:
    """Whether `on_memory_read` is called for a held tensor: not if the program has given it a class of its own."""
    return isinstance(tensor, HeldParameter)


def outside_inference() -> ContextManager[object]:
    """In this block tensors are made and changed as outside of torch.inference_mode(): they are the program's afterwards, too."""
    inference_mode: Any = torch.inference_mode  # untyped in some versions of torch
    return inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext()


class Refusal:
    """Whoever reads the tensor gets the error that `check` raises, until `end`. One of a class of the program's own is read as before."""

    def __init__(self, tensor: torch.Tensor, check: Callable[[], None]) -> None:
        self._tensor, self._check = tensor, check
        self._class, self._held = type(tensor), _held.get(id(tensor))
        arriving = ArrivingParameter if isinstance(tensor, nn.Parameter) else ArrivingBuffer
        if self._class in (nn.Parameter, torch.Tensor, *_CLASS_OF_ARRIVING, *_CLASS_IN_PLACE):
            with _lock:
                _held[id(tensor)] = self
                tensor.__class__ = arriving

    def end(self) -> None:
        if _held.get(id(self._tensor)) is not self:
            return
        with _lock:
            self._tensor.__class__ = self._class
            if self._held is None:
                del _held[id(self._tensor)]
            else:
                _held[id(self._tensor)] = self._held

    def put_in_place(self) -> None:
        self._check()

    def on_memory_read(self) -> None:
        self._check()


def is_held(tensor: torch.Tensor) -> bool:
    """Whether an optimizer of a job has it."""
    return id(tensor) in _held


def release(tensor: torch.Tensor) -> None:
    """The tensor is the program's own again."""
    with _lock:
        _held.pop(id(tensor), None)
        kind = _CLASS_IN_PLACE.get(type(tensor), type(tensor))
        tensor.__class__ = nn.Parameter if kind is HeldParameter else kind


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.data`, without a barrier."""
    with WithoutBarrier():
        memory: torch.Tensor = _data.__get__(tensor)
    return memory


def replace_memory(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Sets `tensor.data`, and counts it as a change: a backward pass that needs the old value then raises, as in torch."""
    with WithoutBarrier():
        _data.__set__(tensor, memory)
    count_change(tensor)


def count_change(tensor: torch.Tensor) -> None:
    """As if an operation in place had changed the tensor."""
    increment: Any = getattr(torch.autograd.graph, "increment_version", None)  # torch 2.4
    with WithoutBarrier(), torch.no_grad():
        if increment is not None:
            increment(tensor)
        else:
            tensor.detach().reshape(-1)[:0].zero_()


def has_compiler() -> bool:
    """Whether this process may compile something."""
    return "torch._dynamo" in sys.modules


def uncompiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, which Dynamo leaves alone if it compiles the caller."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    result: Callable[..., Any] = call if dynamo is None else dynamo.disable(call)
    return result


def is_backward_compiled() -> bool:
    """Whether Dynamo compiles backward passes, too (compiled autograd): it takes gradients of no class of their own."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    return dynamo is not None and bool(getattr(dynamo.config, "compiled_autograd", False))


def is_scripted(module: nn.Module) -> bool:
    """Whether TorchScript has compiled the module: it takes no hooks, and its parameters have no dictionary."""
    jit: Any = torch.jit
    return isinstance(module, jit.ScriptModule)


def has_compiled_code() -> bool:
    """Whether Dynamo or TorchScript has compiled anything in this process: such code does not see barriers."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0:
        return True
    scripted: Any = getattr(torch.jit, "_recursive").concrete_type_store.type_store
    return bool(scripted)


def _put_all_in_place(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        put_in_place(value)
    elif isinstance(value, (tuple, list, set)):
        for each in value:
            _put_all_in_place(each)
    elif isinstance(value, dict):
        for each in value.values():
            _put_all_in_place(each)
