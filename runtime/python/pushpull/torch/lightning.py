# SPDX-License-Identifier: Apache-2.0
"""A strategy for the Trainer of Lightning; needs the package `lightning`."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment  # type: ignore[import-not-found, unused-ignore]
from lightning.pytorch import Trainer  # type: ignore[import-not-found, unused-ignore]
from lightning.pytorch.strategies import ParallelStrategy  # type: ignore[import-not-found, unused-ignore]

from .._job import Job
from ._local_ranks import job_of_one_process
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
        trainer = lightning.Trainer(strategy=PushPullStrategy(clip_norm=1.0), accelerator="cpu", max_epochs=3)  # or "gpu", devices=1
        trainer.fit(module, loader)
        pushpull.current_job().end()

    codec, clip_norm, optimizer_on  as in DistributedOptimizer

    For modules with automatic optimization and one optimizer. Lightning gives each worker its share of the data set
    (DistributedSampler), according to the number of workers in the manifest. Accumulation (accumulate_grad_batches), schedulers
    and bf16 work; gradient_clip_val does not, because gradients have already been pushed: pass clip_norm. Metrics are those of
    each worker, even with sync_dist. Lightning's checkpoints have the optimizer's state, even if it runs on the servers.

    Fitting raises PushPullError like DistributedOptimizer, and ValueError (more than one optimizer). The strategy raises ValueError
    in a worker with several local ranks.
    """

    strategy_name = "pushpull"
    is_distributed = True  # Lightning divides the data set

    def __init__(self, codec: str = "none", clip_norm: Optional[float] = None, optimizer_on: str = "auto") -> None:
        self._job = job_of_one_process("PushPullStrategy")
        super().__init__(cluster_environment=_Environment(self._job))
        self._wrapped: Optional[DistributedOptimizer] = None
        self._choices: dict[str, Any] = {"codec": codec, "clip_norm": clip_norm, "optimizer_on": optimizer_on}

    @property
    def root_device(self) -> torch.device:
        devices: list[torch.device] = self.parallel_devices or [torch.device("cpu")]
        return devices[0]

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self._job.workers, "rank": self._job.worker}

    def model_to_device(self) -> None:
        """Moves the module to the first of the Trainer's devices; a worker has one."""
        module: torch.nn.Module = self.lightning_module
        module.to(self.root_device)

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Wraps the optimizer. The job starts with the first forward pass, after Lightning has loaded a checkpoint."""
        super().setup_optimizers(trainer)
        optimizers: list[torch.optim.Optimizer] = getattr(self, "optimizers")  # its type is known only with Lightning
        if len(optimizers) != 1:
            raise ValueError(f"configure_optimizers: expected one optimizer, got {len(optimizers)}")
        self._wrapped = DistributedOptimizer(optimizers[0], model=self.lightning_module, **self._choices)
        self.optimizers = [self._wrapped]
        for config in self.lr_scheduler_configs:
            config.scheduler.optimizer = self._wrapped  # so that it sees the steps

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """For Lightning's checkpoints."""
        assert self._wrapped is not None
        return self._wrapped.state_dict()

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Gradients add up on this worker."""
        assert self._wrapped is not None
        with self._wrapped.no_sync():
            yield

    def barrier(self, name: Optional[str] = None) -> None:
        """Does nothing: steps wait for the other workers."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Returns this worker's own value."""
        return obj

    def reduce(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """Returns this worker's own value."""
        return tensor

    def all_gather(self, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Returns this worker's own value."""
        return tensor

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Returns this worker's own decision."""
        return decision

    def teardown(self) -> None:
        """Waits until the module has the values after the last step."""
        if self._wrapped is not None:
            self._wrapped.wait()
        super().teardown()
