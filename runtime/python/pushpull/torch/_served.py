# SPDX-License-Identifier: Apache-2.0
"""Parameters whose optimizer runs on the servers."""
from __future__ import annotations

import ctypes
from typing import Any, Optional

import torch

from .. import _engine
from .._optimizers import Optimizer
from . import _barrier
from ._sent import PushedParameter, sent
from ._tensors import DeviceTensor, Tensor, Waits, check_dense


class ServedParameter(PushedParameter):
    """A parameter whose values come from the servers.

    A value arrives in memory that nothing reads, and becomes the parameter's when the program reads the parameter after the step
    that made it: a backward pass never sees it. On the CPU the parameter then has that memory, and the next value arrives in the
    memory that it had; if anything else of the program shares its memory, the value is copied there instead.
    """

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any], waits: Waits) -> None:
        super().__init__(name, parameter, group)
        self._waits = waits
        self._unchanged = (0, 0)  # version and address of the parameter, as they are without changes of the program
        self._digest: Optional[int] = None  # of the value, when the program got its memory

    def register(self, tensor: Tensor, optimizer: Optimizer, codec: str, clip_norm: float) -> None:
        """Adds `tensor`, which begins with the parameter's value, to the job."""
        raise NotImplementedError

    def bind(self, engine: _engine.EngineJob) -> None:
        """The job has started: the parameter has its value from now on."""
        raise NotImplementedError

    def on_memory_read(self) -> None:
        # torch does not count what the program writes there.
        _barrier.put_in_place(self.parameter)
        if self._digest is None and self._waits.job._has_started:
            self._digest = _digest(_barrier.memory_of(self.parameter))

    def check_value(self) -> None:
        with _barrier.WithoutBarrier():
            has_changed = (self.parameter._version, self.parameter.data_ptr()) != self._unchanged
        if self._digest is not None:
            has_changed = has_changed or _digest(_barrier.memory_of(self.parameter)) != self._digest
        if has_changed and not self._has_value_of_servers():
            raise RuntimeError(f'parameter "{self.name}": the program has changed its value (in place, by max_norm, load_state_dict or '
                               "new memory), which the servers do not know and would undo; change it before the job starts, or pass "
                               'optimizer_on="workers" to DistributedOptimizer')
        if has_changed or _barrier.sees_memory_reads(self.parameter):
            self._remember()

    def _remember(self) -> None:
        self._unchanged = (self.parameter._version, self.parameter.data_ptr())
        # What the program writes by `.data` of a class of its own, nobody counts.
        self._digest = None if _barrier.sees_memory_reads(self.parameter) else _digest(_barrier.memory_of(self.parameter))

    def _has_value_of_servers(self) -> bool:
        """Whether the program has put back what it had changed."""
        value = torch.empty(self.parameter.shape, dtype=self.parameter.dtype, device="cpu")
        self._waits.job.store.pull(self.registered_name, value).wait(self._waits.timeout)
        return torch.equal(value, _barrier.memory_of(self.parameter).to("cpu"))


class HostParameter(ServedParameter):
    """On the CPU."""

    _tensor: Tensor
    _gradient: torch.Tensor

    def register(self, tensor: Tensor, optimizer: Optimizer, codec: str, clip_norm: float) -> None:
        self._tensor = tensor
        self._gradient = sent(tensor.gradient.detach(), self)
        tensor.register(self._waits.job, optimizer, codec, clip_norm)

    def bind(self, engine: _engine.EngineJob) -> None:
        first = self._tensor.value
        second = torch.empty_like(first)
        self._pushes = [(value, engine.bind(self._tensor.name, self._tensor.gradient, value)) for value in (first, second)]
        self._handle: Optional[_engine.Handle] = None
        self._shown: Optional[tuple[int, int]] = None  # the address of one of these if the parameter has it, and its uses then
        self._show(first)

    def end_read(self) -> None:
        super().end_read()
        self._end_push()

    def _end_push(self) -> None:
        _barrier.put_in_place(self.parameter)
        self.put_in_place()  # of a class of its own, no barrier waits

    def put_in_place(self) -> None:
        if self._handle is None:
            return
        self._waits.job._complete_step()
        self._handle.wait(self._waits.timeout)
        self._handle = None
        self._show(self._pushes[0][0])

    def _send(self, grad: Optional[torch.Tensor], samples: float) -> None:
        check_dense(self.name, grad)
        if self._handle is not None:  # nothing has read the value of the last step
            self._end_push()
        if grad is not None and grad is not self._gradient:
            self._tensor.gradient.copy_(grad.detach())
            if not grad.requires_grad:  # otherwise the program wants its graph (create_graph)
                self.parameter.grad = self._gradient
        self._handle = self._pushes[0][1].push(samples, self._lr, grad is not None)

    def _show(self, value: torch.Tensor) -> None:
        """The parameter becomes `value`, and has its memory if nothing else has the parameter's."""
        parameter = self.parameter
        own = _barrier.memory_of(parameter)
        uses = self._shown[1] if self._shown is not None and self._shown[0] == own.data_ptr() else _num_uses_alone()
        if own.is_contiguous() and not _is_shared(own) and _num_uses(own) <= uses:
            own = value.detach()
            _barrier.replace_memory(parameter, own)
            self._shown = own.data_ptr(), _num_uses(own)
            self._pushes.reverse()
        else:
            with torch.no_grad():
                parameter.copy_(value)
        self._remember()


class AcceleratorParameter(ServedParameter):
    """On an accelerator. New values arrive on the host and are copied in order with the device's work."""

    _tensor: DeviceTensor

    def register(self, tensor: Tensor, optimizer: Optimizer, codec: str, clip_norm: float) -> None:
        assert isinstance(tensor, DeviceTensor)
        self._tensor = tensor
        tensor.register(self._waits.job, optimizer, codec, clip_norm)

    def bind(self, engine: _engine.EngineJob) -> None:
        self._tensor.bind(engine)
        self._take_value()

    def end_push(self) -> None:
        self._tensor.end_push(self._waits.timeout)

    def put_in_place(self) -> None:
        self._waits.job._complete_step()
        if self._tensor.wait(self._waits.timeout):
            self._take_value()

    def _send(self, grad: Optional[torch.Tensor], samples: float) -> None:
        check_dense(self.name, grad)
        _barrier.put_in_place(self.parameter)
        self.put_in_place()
        self._tensor.push_copy(None if grad is None else grad.detach(), samples, self._lr)
        if grad is not None and not grad.requires_grad:
            sent(grad, self)

    def _take_value(self) -> None:
        with torch.no_grad():
            self.parameter.copy_(self._tensor.value, non_blocking=True)
        self._remember()


def _digest(values: torch.Tensor) -> int:
    """Of the bits: changes of a few values do not cancel out."""
    bits = values.detach().contiguous().reshape(-1).view(torch.int16 if values.element_size() == 2 else torch.int32).to(torch.int64)
    return int((bits * (2 * torch.arange(len(bits), device=bits.device) + 1)).sum())


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether other processes have its memory, too."""
    ask: Any = tensor.is_shared
    return bool(ask())


def _num_uses(tensor: torch.Tensor) -> int:
    """How many tensors and arrays have the memory of this tensor, with a constant added."""
    get: Any = getattr(tensor, "untyped_storage", tensor.storage)
    storage: Any = get()
    count: Any = getattr(getattr(torch, "_C"), "_storage_Use_Count", None)
    if count is not None:
        return int(count(storage._cdata))
    # torch 1.13 does not tell: a storage begins with the pointer to its class and the number of its owners.
    return int(ctypes.c_size_t.from_address(storage._cdata + ctypes.sizeof(ctypes.c_void_p)).value)


def _num_uses_alone() -> int:
    """Of memory that two tensors have, the program's and the one that is asked."""
    alone = torch.empty(1, device="cpu")
    return _num_uses(alone.detach())
