# SPDX-License-Identifier: Apache-2.0
"""The forward and backward passes of a model, for `pushpull trace`."""
from __future__ import annotations

import time
from typing import Any, Optional

import torch

from .._job import Job


class PassSpans:
    """Hooks that a model has while a trace runs, and which record its passes.

    The backward pass begins when the gradient of the model's result arrives or, if the result is not a tensor, with the
    first gradient of a parameter; it ends with the last.
    """

    def __init__(self, job: Job, model: torch.nn.Module) -> None:
        self._job = job
        self._model = model
        self._hooks: list[Any] = []
        self._forward_begin: Optional[int] = None
        self._backward_begin: Optional[int] = None
        self._backward_end: Optional[int] = None

    def on_gradient(self) -> None:
        """Called when the gradient of a parameter is complete."""
        if not self._job.is_traced:
            return
        self._backward_end = time.monotonic_ns()
        if self._backward_begin is None:
            self._backward_begin = self._backward_end

    def end_step(self) -> None:
        """Called when no more gradients follow in this step."""
        if self._backward_begin is not None and self._backward_end is not None:
            self._job.trace_span("backward", self._backward_begin, self._backward_end)
        self._backward_begin = self._backward_end = None
        if self._job.is_traced and not self._hooks:
            self._hooks = [self._model.register_forward_pre_hook(self._before_forward),
                           self._model.register_forward_hook(self._after_forward)]
        elif not self._job.is_traced:
            self.detach()

    def detach(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before_forward(self, _: torch.nn.Module, __: object) -> None:
        self._forward_begin = time.monotonic_ns() if self._job.is_traced else None

    def _after_forward(self, _: torch.nn.Module, __: object, result: Any) -> None:
        if self._forward_begin is None:
            return
        self._job.trace_span("forward", self._forward_begin, time.monotonic_ns())
        self._forward_begin = None
        if isinstance(result, torch.Tensor) and result.requires_grad:
            register: Any = result.register_hook  # untyped in some versions of torch
            register(self._on_result_gradient)

    def _on_result_gradient(self, _: torch.Tensor) -> None:
        self._backward_begin = time.monotonic_ns()
