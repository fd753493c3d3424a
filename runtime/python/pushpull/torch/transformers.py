# SPDX-License-Identifier: Apache-2.0
"""A callback for the Trainer of Hugging Face's transformers; needs that package."""
from __future__ import annotations

import contextlib
from typing import Any, Optional

import torch
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ._local_ranks import job_of_one_process
from ._optimizer import DistributedOptimizer


class PushPullCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Trains a Trainer's model together with the other workers of the job.

        job = pushpull.init()
        own = torch.utils.data.Subset(train, range(job.worker, len(train), job.workers))
        trainer = Trainer(model, arguments, train_dataset=own, callbacks=[PushPullCallback()])
        trainer.train()
        job.end()

    codec, optimizer_on  as in DistributedOptimizer

    The Trainer's optimizer, settings and schedule stay in use, including accumulation and max_grad_norm, which limits the norm
    of the workers' mean gradient. All workers' steps have the same weight. A worker that joins later makes the remaining steps
    of max_steps, and a released one stops. Losses that the Trainer logs are reported to the job. Checkpoints of the Trainer
    have only the model: if the optimizer runs on the servers, its state is in the job's checkpoints.

    Training raises PushPullError like DistributedOptimizer, and ValueError for fp16, whose scaled gradients are pushed
    before they are unscaled: use bf16. The callback raises ValueError in a worker with several local ranks.
    """

    def __init__(self, codec: str = "none", optimizer_on: str = "auto") -> None:
        self._job = job_of_one_process("PushPullCallback")
        self._choices: dict[str, Any] = {"codec": codec, "optimizer_on": optimizer_on}
        self._optimizer: Optional[DistributedOptimizer] = None
        self._accumulation = contextlib.ExitStack()
        self._micro_batches = 0  # of the current step
        self._steps = 0
        self._max_grad_norm = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **of_trainer: Any) -> None:
        """Wraps the Trainer's optimizer, and starts the job if the program has not."""
        model: torch.nn.Module = of_trainer["model"]
        optimizer = of_trainer["optimizer"]
        if args.fp16:
            raise ValueError("fp16: expected False; use bf16")
        if self._optimizer is None:
            self._max_grad_norm = args.max_grad_norm
            self._optimizer = DistributedOptimizer(optimizer.optimizer, model=model, clip_norm=args.max_grad_norm or None,
                                                   **self._choices)
        optimizer.optimizer = self._optimizer
        args.max_grad_norm = 0.0  # the wrapped optimizer clips
        args.save_only_model = True
        self._job._start_once()
        self._optimizer._allow_reading()  # the Trainer measures the norm of this worker's gradients
        self._steps = self._job.start_step

    def on_step_begin(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        """Lets the gradients of all micro-batches but the last add up on this worker."""
        assert self._optimizer is not None
        self._micro_batches = 0
        if args.gradient_accumulation_steps > 1:
            self._accumulation.enter_context(self._optimizer.no_sync())

    def on_substep_end(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        """Called after each micro-batch except the last; before the last, ends the accumulation."""
        self._micro_batches += 1
        if self._micro_batches == args.gradient_accumulation_steps - 1:
            self._accumulation.close()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stops when the job's steps are done or this worker is released."""
        self._accumulation.close()  # an epoch may end with fewer micro-batches
        self._steps += 1
        if self._steps >= state.max_steps or self._job.is_released:
            control.should_training_stop = True

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
               logs: Optional[dict[str, Any]] = None, **_: Any) -> None:
        """Reports the loss."""
        if logs and "loss" in logs:
            self._job.report_loss(float(logs["loss"]), step=max(self._steps - 1, 0))

    def on_train_end(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        """Waits until the model has the values after the last step."""
        assert self._optimizer is not None
        self._optimizer.wait()
        args.max_grad_norm = self._max_grad_norm
