# SPDX-License-Identifier: Apache-2.0
"""Hooks of a model before its job starts, and hooks of its gradients."""
from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from .._job import Job
from ._barrier import has_compiler, is_scripted, uncompiled


class StartHooks:
    """Start the job before the first forward pass of any module, which computes with the job's values then."""

    def __init__(self, job: Job, model: Optional[torch.nn.Module]) -> None:
        self._job: Optional[Job] = job
        modules = () if model is None else model.modules()
        self._handles = [module.register_forward_pre_hook(self) for module in modules if not is_scripted(module)]

    def __call__(self, *_: Any) -> None:
        if self._job is not None:
            self._job._start_once()

    def start_after_forward(self, named: dict[str, torch.nn.Parameter]) -> None:
        """Starts it in a backward pass. Raises RuntimeError if the forward pass has computed with values that are not the job's."""
        assert self._job is not None
        before = {name: parameter.detach().clone() for name, parameter in named.items()}
        self._job._start_once()
        for name, parameter in named.items():
            if not torch.equal(before[name], parameter.detach()):
                raise RuntimeError(f'parameter "{name}": a forward pass began before the job started, with values that are not the job\'s; '
                                   "call optimizer.zero_grad() or pushpull.current_job().start() before the first forward pass")

    def detach(self) -> None:
        self._job = None
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __deepcopy__(self, memo: Any) -> _Nothing:
        return _Nothing()

    def __reduce__(self) -> Any:
        return _Nothing, ()


class _Nothing:
    """The hook in a copy of the model, which is in no job."""

    def __call__(self, *_: Any) -> None:
        pass


class GradientHooks:
    """Call `on_gradient` with each parameter whose gradient a backward pass has completed in `parameter.grad`."""

    def __init__(self, named: dict[str, torch.nn.Parameter], on_gradient: Callable[[torch.nn.Parameter], None]) -> None:
        self._on_gradient: Optional[Callable[[torch.nn.Parameter], None]] = on_gradient
        self._uncompiled: Optional[Callable[..., Any]] = None  # the same, which takes a while to make
        self._kept = [self._hook(parameter) for parameter in {id(each): each for each in named.values()}.values()]

    def detach(self) -> None:
        self._on_gradient = self._uncompiled = None
        for _, handle in self._kept:
            handle.remove()
        self._kept = []

    def _hook(self, parameter: torch.nn.Parameter) -> tuple[object, Any]:
        def call(*_: object) -> None:
            if self._on_gradient is None:
                return
            if self._uncompiled is None and has_compiler():
                self._uncompiled = uncompiled(self._on_gradient)
            (self._uncompiled or self._on_gradient)(parameter)

        # A frozen parameter may be unfrozen later.
        needed, parameter.requires_grad = parameter.requires_grad, True
        try:
            register: Any = getattr(parameter, "register_post_accumulate_grad_hook", None)  # torch 2.1
            if register is not None:
                return None, register(call)
            node: Any = parameter.expand_as(parameter).grad_fn
            accumulate = node.next_functions[0][0]  # lives as long as something refers to it
            return accumulate, accumulate.register_hook(call)
        finally:
            parameter.requires_grad = needed
