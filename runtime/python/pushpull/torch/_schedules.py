# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules of a program that begins when the job has made steps."""
from __future__ import annotations

import gc
from typing import Any

import torch

from .._errors import PushPullError
from .._job import Job

_SCHEDULERS: tuple[Any, ...] = (getattr(torch.optim.lr_scheduler, "LRScheduler", None) or getattr(torch.optim.lr_scheduler, "_LRScheduler"),
                                torch.optim.lr_scheduler.ReduceLROnPlateau)


class LateSchedules:
    """Finds schedulers that stand at their beginning: nobody has told them where the job is.

    Those that make a step for each batch must have made those of the job, the others at least one for each epoch that is over.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        optimizers = {id(each) for ours in job._optimizers for each in (ours, getattr(ours, "_optimizer", None))}
        kept = {id(each) for each in job._state._entries.values()} if job._state is not None else set()
        # An optimizer does not know its schedulers.
        self._schedulers = [each for each in gc.get_objects() if issubclass(type(each), _SCHEDULERS) and id(each) not in kept
                            and id(getattr(each, "optimizer", None)) in optimizers]
        self._seen: list[int] = []
        self._epoch, self._step = 0, 0  # of then

    def check(self, epoch: int) -> bool:
        """Before a batch; `epoch` is the job's. Returns whether to call again, before the next batch of the epoch."""
        made: list[int] = [each.last_epoch for each in self._schedulers]
        step, steps = self._job.step, self._job.step - self._step
        for number, scheduler in enumerate(self._schedulers):
            in_batch = made[number] - self._seen[number] if self._seen and epoch == self._epoch else 0
            if made[number] < epoch or made[number] * steps < step * in_batch:
                raise PushPullError(
                    f"step {step}: {type(scheduler).__name__} has made {made[number]} steps, and this program began with step "
                    f"{self._job.start_step} of the job, which is in epoch {epoch}: it would train with learning rates of the job's "
                    "beginning. Keep it in pushpull.torch.State(scheduler=scheduler), or make its steps up to here before the first batch",
                    "FAILED_PRECONDITION")
        is_first, self._seen, self._epoch, self._step = not self._seen, made, epoch, step
        return is_first and bool(made)
