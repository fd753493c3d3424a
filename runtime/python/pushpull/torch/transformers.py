# SPDX-License-Identifier: Apache-2.0
"""A callback for the Trainer of Hugging Face's transformers; needs that package."""
from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Optional

import torch
from accelerate.utils import find_batch_size  # type: ignore[import-not-found, import-untyped, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from .._collectives import all_reduce
from .._errors import PushPullError
from ._local_ranks import has_collectives, job_of_one_process
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
    of the workers' mean gradient. A worker's step counts by what its loss is the mean of: labels, if the Trainer counts them
    (num_items_in_batch), otherwise samples. Give all workers the same eval_dataset: then they decide alike by its metrics. A
    worker that joins later makes the remaining steps of max_steps, and a released one stops. Losses that the Trainer logs are
    reported to the job; they are this worker's, and so is grad_norm if the optimizer runs on the servers.

    Worker 0 saves the Trainer's checkpoints, with the optimizer's state, to output_dir; worker N saves its model to
    output_dir/worker-N, where it finds it at the end (load_best_model_at_end).

    Training raises PushPullError like DistributedOptimizer, and FAILED_PRECONDITION in a worker that joins if the schedule depends
    on metrics; ValueError for fp16, whose scaled gradients are pushed before they are unscaled: use bf16; for parts of the data that
    make different numbers of steps; and for a step in which no label of this worker counts. The callback raises ValueError in a worker with several local ranks.
    """

    def __init__(self, codec: str = "none", optimizer_on: str = "auto") -> None:
        self._job = job_of_one_process("PushPullCallback")
        self._choices: dict[str, Any] = {"codec": codec, "optimizer_on": optimizer_on}
        self._optimizer: Optional[DistributedOptimizer] = None
        self._accumulation = contextlib.ExitStack()
        self._num_batches = 1  # micro-batches of the current step
        self._batches_done = 0  # of these
        self._steps = 0
        self._replaced: dict[str, Any] = {}  # the program's arguments

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **of_trainer: Any) -> None:
        """Wraps the Trainer's optimizer, and starts the job if the program has not."""
        model: torch.nn.Module = of_trainer["model"]
        optimizer = of_trainer["optimizer"]
        if args.fp16:
            raise ValueError("fp16: expected False; use bf16")
        if self._optimizer is None:
            self._weigh(_calling_trainer())
            self._optimizer = DistributedOptimizer(optimizer.optimizer, model=model, clip_norm=args.max_grad_norm or None,
                                                   **self._choices)
        optimizer.optimizer = self._optimizer
        self._replace(args, max_grad_norm=0.0)  # the wrapped optimizer clips
        if self._job.worker > 0:
            self._replace(args, output_dir=os.path.join(str(args.output_dir), f"worker-{self._job.worker}"), save_only_model=True)
        self._job._start_once()
        self._optimizer._allow_reading()  # the Trainer measures the norm of this worker's gradients
        self._steps = self._job.start_step
        if self._steps == 0:
            self._check_alike(state.max_steps)
        self._catch_up(of_trainer["lr_scheduler"], self._steps - state.global_step)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Lets the gradients of all micro-batches but the last add up on this worker."""
        assert self._optimizer is not None
        self._batches_done = 0
        if self._num_batches > 1:
            self._accumulation.enter_context(self._optimizer.no_sync())

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """Called after each micro-batch except the last; before the last, ends the accumulation."""
        self._batches_done += 1
        if self._batches_done == self._num_batches - 1:
            self._accumulation.close()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stops when the job's steps are done or this worker is released."""
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
        for name, value in self._replaced.items():
            setattr(args, name, value)

    def _replace(self, args: TrainingArguments, **values: Any) -> None:
        """Until the end of the training."""
        for name, value in values.items():
            self._replaced[name] = getattr(args, name)
            setattr(args, name, value)

    def _weigh(self, trainer: Trainer) -> None:
        """From now on, when the Trainer has the micro-batches of a step, their weight in the workers' mean is known."""
        take = trainer.get_batch_samples

        def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
            batches, num_items = take(*args, **kwargs)
            if not batches:
                return batches, num_items
            self._num_batches = len(batches)
            # The loss is a mean over these, so the mean over the workers has to be, too.
            weight = float(sum(find_batch_size(batch) or 1 for batch in batches)) if num_items is None else float(num_items)
            if not weight > 0:
                raise ValueError(f"train_dataset: no label counts (all are -100) in a batch of this worker, after step {self._steps}, "
                                 "and the mean over them is 0 / 0; leave out samples without labels")
            self._job.store._weight = weight
            return batches, num_items
        setattr(trainer, "get_batch_samples", get_batch_samples)

    def _check_alike(self, max_steps: int) -> None:
        """Raises ValueError if the workers' parts of the data make different numbers of steps: some would go on without the others."""
        if not has_collectives(self._job):
            return
        least, most = (all_reduce(max_steps, of, job=self._job) for of in ("min", "max"))
        if least != most:
            raise ValueError(f"train_dataset: this worker's part makes {max_steps} steps, and others make {least} to {most}; leave samples "
                             "out so that the parts of all workers have as many batches, or pass max_steps to TrainingArguments")

    def _catch_up(self, schedule: Any, steps: int) -> None:
        """Makes the steps of the schedule that the job has made before this worker has joined."""
        if steps > 0 and hasattr(schedule, "best"):  # ReduceLROnPlateau, GreedyLR
            raise PushPullError(f"lr_scheduler_type: this worker has joined at step {self._job.start_step} of the job, and cannot know the "
                                "metrics by which the others have set the learning rate; use a schedule that depends on the step alone",
                                "FAILED_PRECONDITION")
        for _ in range(steps):
            schedule.step()


def _calling_trainer() -> Trainer:
    """Callbacks are not told whose they are."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        trainer = frame.f_locals.get("self")
        if isinstance(trainer, Trainer) and hasattr(trainer, "get_batch_samples"):
            return trainer
        frame = frame.f_back
    raise RuntimeError("PushPullCallback: expected a call by the Trainer of transformers 4.46 or newer; pass it in callbacks=[...]")
