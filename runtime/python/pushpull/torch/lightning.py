# SPDX-License-Identifier: Apache-2.0
"""A strategy for the Trainer of Lightning; needs the package `lightning`."""
from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator
from typing import Any, Optional

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment  # type: ignore[import-not-found, unused-ignore]
from lightning.pytorch import Trainer  # type: ignore[import-not-found, unused-ignore]
from lightning.pytorch.strategies import ParallelStrategy  # type: ignore[import-not-found, unused-ignore]
from lightning.pytorch.utilities.model_helpers import is_overridden  # type: ignore[import-not-found, unused-ignore]
from lightning.pytorch.utilities.rank_zero import rank_zero_only  # type: ignore[import-not-found, attr-defined, unused-ignore]
from torch.utils.data import DistributedSampler, SequentialSampler

from .. import _collectives
from .._errors import PushPullError
from .._job import Job
from ._local_ranks import has_collectives, job_of_one_process
from ._optimizer import DistributedOptimizer


class _Environment(LightningEnvironment):  # type: ignore[misc, unused-ignore]
    """This process's identity: a worker of the job, which for Lightning is alone on its node."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def global_rank(self) -> int:
        return self._job.worker

    def world_size(self) -> int:
        return self._job.workers

    def local_rank(self) -> int:
        return 0

    def node_rank(self) -> int:
        return self._job.worker

    def set_global_rank(self, rank: int) -> None:
        pass  # the job has its own

    def set_world_size(self, size: int) -> None:
        pass


class PushPullStrategy(ParallelStrategy):  # type: ignore[misc, unused-ignore]
    """Trains a LightningModule together with the other workers of the job.

        pushpull.init()
        trainer = lightning.Trainer(strategy=PushPullStrategy(), accelerator="cpu", max_epochs=3)  # or "gpu", devices=1
        trainer.fit(module, loader)
        pushpull.current_job().end()

    codec, clip_norm, optimizer_on  as in DistributedOptimizer

    Lightning gives each worker its share of the data set (DistributedSampler), according to the number of workers in the manifest.
    gradient_clip_val, accumulate_grad_batches, schedulers, callbacks, bf16 and, on the workers, 16-mixed work.

    With "auto" the optimizer runs on the workers if the module has several, or optimizes manually, if it clips gradients by value or
    in configure_gradient_clipping, and with 16-mixed; "servers" raises ValueError for the last three.

    From the first training step on what is logged with sync_dist=True, metrics of torchmetrics, and decisions to stop and to save are
    those of all workers; without sync_dist a metric is this worker's. After the job's end, before `fit`, and in modes other than Sync
    everything is this worker's own. Worker 0 writes logs and checkpoints, which have the optimizer's state, even if it runs on the servers.

    Fitting raises PushPullError like DistributedOptimizer, and FAILED_PRECONDITION in a worker that joins a job that has made steps:
    Lightning would begin with its first batch. Continue in a new job, with fit(ckpt_path=...). The strategy raises ValueError in a
    worker with several local ranks; all_gather(sync_grads=True) raises ValueError.
    """

    strategy_name = "pushpull"
    is_distributed = True  # Lightning divides the data set

    def __init__(self, codec: str = "none", clip_norm: Optional[float] = None, optimizer_on: str = "auto") -> None:
        self._job = job_of_one_process("PushPullStrategy")
        super().__init__(cluster_environment=_Environment(self._job))
        self._wrapped: list[DistributedOptimizer] = []
        self._codec, self._clip_norm, self._optimizer_on = codec, clip_norm, optimizer_on
        self._is_training = False  # whether this worker has begun its first step, and with it the others
        self._has_collectives = False
        self._has_failed = False
        self._taken: Optional[tuple[Any, Any]] = None  # the Trainer's limit of the gradient's norm
        logging: Any = rank_zero_only
        logging.rank = self._job.worker  # of whom worker 0 writes

    @property
    def root_device(self) -> torch.device:
        devices: list[torch.device] = self.parallel_devices or [torch.device("cpu")]
        return devices[0]

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self._job.workers, "rank": self._job.worker}

    @property
    def _module(self) -> Any:
        """The LightningModule, whose type is known only with Lightning."""
        return self.lightning_module

    def process_dataloader(self, dataloader: Any) -> Any:
        """Keeps the order of a training set that the program does not shuffle; Lightning shuffles each that it divides."""
        sampler = getattr(dataloader, "sampler", None)
        given = sys._getframe(2).f_locals.get("dl")  # that of the program, in FitLoop.setup_data
        if isinstance(sampler, DistributedSampler) and isinstance(getattr(given, "sampler", None), SequentialSampler):
            sampler.shuffle = False
        return dataloader

    def model_to_device(self) -> None:
        """Moves the module to the first of the Trainer's devices; a worker has one."""
        self._module.to(self.root_device)

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Wraps the optimizers. The job starts with the first forward pass, after Lightning has loaded a checkpoint."""
        super().setup_optimizers(trainer)
        optimizers: list[torch.optim.Optimizer] = getattr(self, "optimizers")  # its type is known only with Lightning
        scaler: Any = getattr(self.precision_plugin, "scaler", None)
        place = self._place(trainer, len(optimizers), scaler)
        limits = [self._clip_norm, self._take_clip_norm(trainer)]
        clip_norm = min((each for each in limits if each is not None), default=None)
        self._wrapped = [DistributedOptimizer(each, model=self._module, codec=self._codec, clip_norm=clip_norm, scaler=scaler,
                                              optimizer_on=place) for each in optimizers]
        self.optimizers = list(self._wrapped)
        for config in self.lr_scheduler_configs:
            for each in self._wrapped:
                if config.scheduler.optimizer is each._optimizer:
                    config.scheduler.optimizer = each  # so that it sees the steps
        for module in self._module.modules():
            if hasattr(module, "distributed_available_fn") and hasattr(module, "dist_sync_fn"):  # a metric of torchmetrics
                module.distributed_available_fn = self._is_with_others
                module.dist_sync_fn = lambda value, group=None: self._gather(value)

    def _place(self, trainer: Trainer, num_optimizers: int, scaler: Any) -> str:
        """Where the optimizers run. Raises ValueError for what the servers cannot do, if they are wanted."""
        module = self._module
        refused = {'gradient_clip_algorithm="value"': bool(trainer.gradient_clip_val) and trainer.gradient_clip_algorithm == "value",
                   "configure_gradient_clipping": is_overridden("configure_gradient_clipping", module),
                   'precision="16-mixed"': scaler is not None}
        for name, is_used in refused.items():
            if is_used and self._optimizer_on == "servers":
                raise ValueError(f"{name}: servers limit the norm of the mean gradient (gradient_clip_val), and do nothing else with "
                                 'gradients; pass optimizer_on="workers" to PushPullStrategy')
        if self._optimizer_on == "auto" and (any(refused.values()) or num_optimizers > 1 or not module.automatic_optimization):
            return "workers"
        return self._optimizer_on

    def _take_clip_norm(self, trainer: Trainer) -> Optional[float]:
        """The Trainer's limit of the norm, which the wrapped optimizer applies in its place."""
        is_norm = trainer.gradient_clip_algorithm in (None, "norm")
        if not trainer.gradient_clip_val or not is_norm or is_overridden("configure_gradient_clipping", self._module):
            return None
        self._taken = (trainer, trainer.gradient_clip_val)
        trainer.gradient_clip_val = None
        return float(self._taken[1])

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """For Lightning's checkpoints."""
        return optimizer.state_dict()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Before the first step of this worker, checks that it is the job's first one for this Trainer."""
        if self._is_training or not self._wrapped:
            return
        self._job._start_once()
        at = self._module.trainer.global_step
        if self._job.start_step > 0 and at != self._job.start_step:
            raise PushPullError(f"Trainer.fit: this worker has joined at step {self._job.start_step} of the job, and Lightning's Trainer is at "
                                f"step {at}, with its own order of samples and schedules; train in a new job, and pass "
                                "fit(ckpt_path=...) to continue from a checkpoint of Lightning", "FAILED_PRECONDITION")
        self._has_collectives = has_collectives(self._job)
        self._is_training = True

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Gradients add up on this worker."""
        with contextlib.ExitStack() as blocked:
            for each in self._wrapped:
                blocked.enter_context(each.no_sync())
            yield

    # ---- what the workers tell each other ----

    def _is_with_others(self) -> bool:
        """Whether all workers are in the training loop, where they make the same calls, and the job's mode has collectives."""
        return self._is_training and self._has_collectives and not self._job._has_ended

    def barrier(self, name: Optional[str] = None) -> None:
        """Waits for the other workers, if all are training."""
        if self._is_with_others():
            _collectives.barrier(job=self._job)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of worker `src`, if all are training."""
        if not self._is_with_others():
            return obj
        return pickle.loads(_collectives.broadcast(pickle.dumps(obj), src, job=self._job))

    def reduce(self, tensor: Any, group: Optional[Any] = None, reduce_op: Optional[Any] = "mean") -> Any:
        """Of all workers, if all are training."""
        if not self._is_with_others():
            return tensor
        values = torch.as_tensor(tensor).detach()
        operation = str(reduce_op or "mean").lower().rsplit(".", 1)[-1]  # of a name, or of torch.distributed.ReduceOp
        operation = "mean" if operation == "avg" else operation
        sent = values.to("cpu", torch.float64 if operation == "mean" else values.dtype, copy=True).reshape(-1)
        reduced = torch.as_tensor(_collectives.all_reduce(sent, operation, job=self._job)).reshape(values.shape)
        return reduced.to(values.device, values.dtype if values.is_floating_point() or operation != "mean" else None)

    def all_gather(self, tensor: torch.Tensor, group: Optional[Any] = None, sync_grads: bool = False) -> torch.Tensor:
        """Of all workers, one after the other, if all are training; else this worker's own in all places."""
        if sync_grads and tensor.requires_grad:
            raise ValueError("all_gather: gradients do not pass from worker to worker; pass sync_grads=False")
        if not self._is_with_others():
            own: torch.Tensor = tensor.detach().expand(self._job.workers, *tensor.shape)
            return own
        gathered: torch.Tensor = torch.stack(self._gather(tensor.detach()))
        return gathered

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Their shapes may differ."""
        gathered = _collectives.all_gather(pickle.dumps(tensor.detach().cpu()), job=self._job)
        return [pickle.loads(each).to(tensor.device) for each in gathered]

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Whether all workers, or any of them, decide so, if all are training."""
        if not self._is_with_others():
            return decision
        return bool(_collectives.all_reduce(int(decision), "min" if all else "max", job=self._job))

    # ---- the end ----

    def on_exception(self, exception: BaseException) -> None:
        """What this worker has of a step is not to be waited for."""
        self._has_failed = True

    def teardown(self) -> None:
        """Waits until the module has the values after the last step."""
        if self._taken is not None:
            self._taken[0].gradient_clip_val = self._taken[1]
            self._taken = None
        if self._has_failed:  # the module stays where it is: to move it, its values would be waited for
            self.precision_plugin.teardown()
            getattr(self, "accelerator").teardown()
            return
        for each in self._wrapped:
            each.wait()
            if each.runs_on_servers:  # which have the gradients; Lightning would move them to the CPU
                for parameter in self._module.parameters():
                    parameter.grad = None
        super().teardown()
