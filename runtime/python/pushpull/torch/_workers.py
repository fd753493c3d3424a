# SPDX-License-Identifier: Apache-2.0
"""The optimizer on the workers: any optimizer of torch, on the mean gradient."""
from __future__ import annotations

from typing import Any, Callable, Optional

import numpy
import torch
from torch.nn.utils.clip_grad import clip_grad_norm_

from .._collectives import all_reduce
from ._placement import Setup, check_parameter
from ._rounds import Rounds
from ._rows import check_choices, sparse_embeddings
from ._settings import described


class OnWorkers:
    """A placement: each worker runs the optimizer, whose parameters and state belong to the program."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._job = setup.waits.job
        if self._job.local_ranks > 1:
            raise ValueError(f"a worker with {self._job.local_ranks} local ranks needs an optimizer that runs on the servers, and no "
                             f"scaler; {described(setup.optimizer)} does not: use SGD, Adagrad, Adam or AdamW, and bfloat16 autocast")
        if self._job.is_ring:
            raise ValueError(f"{type(setup.optimizer).__name__} with optimizer_on=\"workers\" needs spec.sync.mode Sync, and the job is in "
                             "AllReduce, which runs SGD without dampening, Adagrad without lr_decay, Adam and AdamW without amsgrad, "
                             "and no scaler: leave out optimizer_on, or set the mode to Sync")
        for name, parameter, _ in setup.trained():
            check_parameter(name, parameter)
        for name in sparse_embeddings(setup.model, {name: parameter for name, parameter, _ in setup.trained()}):
            check_choices(name, {"optimizer_on": f'"workers", for {type(setup.optimizer).__name__}'})
        self._is_first = self._job._rounds is None
        if self._is_first:
            self._job._rounds = Rounds(setup.waits)
        self._rounds: Rounds = self._job._rounds
        self._rounds.add(setup)

    def before_start(self) -> None:
        if self._is_first:
            self._rounds.before_start()

    def after_start(self) -> None:
        if self._is_first:
            self._rounds.after_start()

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        self._rounds.on_gradient(parameter)

    def zero_grad(self, set_to_none: bool) -> None:
        self._rounds.check_whole("zero_grad")
        self._setup.optimizer.zero_grad(set_to_none)

    def step(self, closure: Optional[Callable[[], Any]]) -> Any:
        def mean_loss() -> Any:
            assert closure is not None
            loss = closure()
            self._rounds.finish(self._setup)
            self._clip()
            return loss if loss is None else self._mean(loss)

        if not self._job._is_last_of_step:
            return None if closure is None else closure()
        self._rounds.check_whole("step")
        self._setup.num_steps += 1
        if closure is not None:
            return self._setup.optimizer.step(mean_loss)
        self._rounds.finish(self._setup)
        self._clip()
        self._setup.optimizer.step()
        return None

    def make_empty_step(self) -> None:
        if self._is_first:
            self._rounds.make_empty()
        self.step(None)

    def finish_pushes(self, is_last: bool) -> None:
        self._rounds.push_state(is_last)

    def wait(self) -> None:
        self._rounds.wait()

    def allow_reading(self) -> None:
        """Gradients are the workers' mean anyway."""

    def state_dict(self) -> dict[str, Any]:
        return self._setup.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._setup.optimizer.load_state_dict(state_dict)

    def detach(self) -> None:
        self._rounds.detach()

    def _clip(self) -> None:
        if self._setup.clip_norm is not None:
            clip_grad_norm_([each for group in self._setup.optimizer.param_groups for each in group["params"]], self._setup.clip_norm)

    def _mean(self, loss: Any) -> Any:
        """The mean loss of the workers: an optimizer that decides by the loss decides the same in all."""
        weight = self._job.store._weight
        total, samples = all_reduce(numpy.array([float(loss) * weight, weight]), job=self._job)
        return torch.full_like(loss, total / samples) if isinstance(loss, torch.Tensor) else total / samples
