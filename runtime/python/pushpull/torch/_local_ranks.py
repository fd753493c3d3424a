# SPDX-License-Identifier: Apache-2.0
"""One worker in several processes, its local ranks, which torchrun starts: usually one for each GPU."""
from __future__ import annotations

import ctypes
import datetime
import mmap
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, TypeVar

import torch
import torch.distributed

from .. import _engine
from .._collectives import barrier
from .._errors import PushPullError
from .._job import Job, current_job, join, refuse_second_process
from .._job import init as join_alone

Result = TypeVar("Result")

dist: Any = torch.distributed  # untyped in some versions of torch
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def init(timeout: float = 300.0, *, rank_timeout: float = 1800.0) -> Job:
    """Joins the job like `pushpull.init`; under torchrun the processes that it has started are together one worker.

        spec.command: [torchrun, --standalone, --nproc-per-node=gpu, PROGRAM]

        job = pp.init()
        model.to(torch.device("cuda", job.local_rank))

    Every process calls it, makes the same DistributedOptimizer and sampler, and runs the same loop. A step's samples of the
    worker are divided among its ranks. Their gradients are summed, by NCCL between GPUs and by gloo between processes on CPUs;
    rank 0 pushes the sums and receives new values for all. So the other workers and the servers see one worker, and if a process
    fails, torchrun ends all of them.

    Rank 0 is a member of the job. Only there may a program use `job.store`, values and messages between workers, and reports:
    `if job.local_rank == 0: job.report_loss(...)`. `job.samples` is not available: use ElasticSampler or ElasticDataLoader.

    timeout       seconds to join
    rank_timeout  seconds that the ranks wait for each other, for example while rank 0 measures the accuracy. It also is the
                  timeout of the default process group, if the program has not made one before

    Raises the errors of `pushpull.init`, in all ranks, and PushPullError INVALID_ARGUMENT (torchrun has started processes on
    several hosts: a worker is on one).
    """
    if os.environ.get("LOCAL_WORLD_SIZE", "1") in ("", "1"):
        return join_alone(timeout)
    refuse_second_process(os.environ)
    ranks = LocalRanks(rank_timeout)
    engine = _Follower(ranks) if ranks.rank > 0 else _leader(ranks, lambda: _engine.EngineJob(dict(os.environ), timeout))
    return join(Job(os.environ, engine, ranks))


def job_of_one_process(trainer: str) -> Job:
    """The current job. Raises ValueError if this process is one of several local ranks, which `trainer` cannot train with."""
    job = current_job()
    if job.local_ranks > 1:
        raise ValueError(f"{trainer}: this worker has {job.local_ranks} local ranks, and each would train as the whole worker; start "
                         "one process for each worker, without torchrun (spec.workers.gpusPerWorker: 1)")
    return job


def has_collectives(job: Job) -> bool:
    """Whether the workers can tell each other values: in mode Sync without backup workers. All workers call it before a step."""
    try:
        barrier(job=job)
    except PushPullError as error:
        if error.code == "FAILED_PRECONDITION":
            return False
        raise
    return True


class LocalRanks:
    """The processes of this worker. Every rank makes the same calls in the same order, one at a time."""

    def __init__(self, timeout: float) -> None:
        self.rank, self.size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        if int(os.environ["WORLD_SIZE"]) != self.size:
            raise PushPullError(f"torchrun has started {os.environ['WORLD_SIZE']} processes, {self.size} of them here: a worker of "
                                "the job is on one host; start each with `torchrun --standalone`", "INVALID_ARGUMENT")
        _end_with_parent()
        limit = datetime.timedelta(seconds=timeout)
        self._made_default = not dist.is_initialized()
        if self._made_default:
            dist.init_process_group("gloo", timeout=limit)
        self._hosts = dist.new_group(backend="gloo", timeout=limit)
        self._meetings = dist.new_group(backend="gloo", timeout=limit)  # beside collectives of the other groups
        has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
        self._gpus = dist.new_group(backend="nccl", timeout=limit) if has_nccl else None

    def sum_on_first(self, values: torch.Tensor) -> None:
        """On rank 0 `values`, on the CPU, become the sum over the ranks, elsewhere they become undefined. Blocks until it is done."""
        dist.reduce(values, 0, group=self._hosts)

    def copy_from_first(self, values: torch.Tensor) -> None:
        """`values`, on the CPU, become those of rank 0. Blocks until it is done."""
        dist.broadcast(values, 0, group=self._hosts)

    def sum_parts(self, values: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum over the ranks; `values` are equal parts for them, flat.

        On a GPU that is put on the current stream; otherwise blocks until it is done.
        """
        if self._has_collectives(values.device):
            part: torch.Tensor = values.new_empty(values.numel() // self.size)
            dist.reduce_scatter_tensor(part, values, group=self._gpus)
            return part
        on_host = values.cpu()
        dist.all_reduce(on_host, group=self._hosts)
        own: torch.Tensor = on_host.view(self.size, -1)[self.rank].to(values.device)
        return own

    def join_parts(self, part: torch.Tensor) -> torch.Tensor:
        """The parts of all ranks, one after the other. Blocks like `sum_parts`."""
        if self._has_collectives(part.device):
            whole: torch.Tensor = part.new_empty(part.numel() * self.size)
            dist.all_gather_into_tensor(whole, part, group=self._gpus)
            return whole
        on_host = part.cpu()
        parts = [torch.empty_like(on_host) for _ in range(self.size)]
        dist.all_gather(parts, on_host, group=self._hosts)
        joined: torch.Tensor = torch.cat(parts).to(part.device)
        return joined

    def _has_collectives(self, device: torch.device) -> bool:
        """For other accelerators torch.distributed has nothing that is sure to be there: tensors go through the host."""
        return device.type == "cuda" and self._gpus is not None

    def meet(self) -> None:
        """Blocks until all ranks have come here. May be called beside collectives, but from one thread at a time."""
        dist.barrier(group=self._meetings)

    def share_memory(self, num_bytes: int) -> mmap.mmap:
        """Zeros that all ranks have, and each may write. They are freed when no process has them."""
        if self.rank == 0:
            file = os.memfd_create("pushpull-ranks")
            os.ftruncate(file, num_bytes)
            self.share((os.getpid(), file))
        else:
            file = os.open("/proc/{}/fd/{}".format(*self.share()), os.O_RDWR)
        memory = mmap.mmap(file, num_bytes)
        self.meet()  # the others open rank 0's file
        os.close(file)
        return memory

    def share(self, value: Any = None) -> Any:
        """What rank 0 passes; blocks until it does."""
        values = [value]
        dist.broadcast_object_list(values, 0, group=self._hosts)
        return values[0]

    def close(self) -> None:
        """Ends the process groups that this object has made."""
        if self._made_default:
            dist.destroy_process_group()  # of all
            return
        for group in (self._hosts, self._meetings, self._gpus):
            if group is not None:
                dist.destroy_process_group(group)


@dataclass(frozen=True)
class _Samples:
    """What the samplers use of the engine's."""

    step: int
    epoch: int
    position: int
    total: int
    count: int
    ranges: list[tuple[int, int]]
    batch: int
    has_step: bool
    is_over: bool
    members: list[int]


class _Member(NamedTuple):
    """What all ranks know of the worker, from when they last agreed."""

    worker: int
    workers: int
    start_step: int
    next_step: int
    is_released: bool


def _leader(ranks: LocalRanks, connect: Callable[[], _engine.EngineJob]) -> _Leader:
    engine = _pass_on(ranks, connect, lambda joined: (os.getpid(), joined.worker, joined.workers))
    return _Leader(ranks, engine)


def _pass_on(ranks: LocalRanks, call: Callable[[], Result], part: Callable[[Result], object]) -> Result:
    """The result of `call`. The other ranks get the part of it that they need, or the error."""
    try:
        result = call()
    except PushPullError as error:
        ranks.share(error)
        raise
    ranks.share(part(result))
    return result


def _receive(ranks: LocalRanks) -> Any:
    received = ranks.share()
    if isinstance(received, PushPullError):
        raise received
    return received


class _Leader:
    """The engine of rank 0. Calls that the other ranks make too are passed on to them."""

    is_released = False  # as the other ranks see it: all have to leave the same loop

    def __init__(self, ranks: LocalRanks, engine: _engine.EngineJob) -> None:
        self._ranks = ranks
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def start(self, timeout: float) -> None:
        _pass_on(self._ranks, lambda: self._engine.start(timeout), lambda _: self._member())

    def samples(self, steps_ahead: int = 0) -> _Samples:
        def of_engine() -> _Samples:
            samples = self._engine.samples(steps_ahead)
            return _Samples(samples.step, samples.epoch, samples.position, samples.total, samples.count, list(samples.ranges),
                            samples.batch, samples.has_step, samples.is_over, list(samples.members))

        return _pass_on(self._ranks, of_engine, lambda samples: (samples, self._member()))

    def agree(self) -> None:
        """Every rank sees the same step, and whether the worker is released."""
        self._ranks.share(self._member())

    def leave(self, timeout: float) -> None:
        self._engine.leave(timeout)
        self._ranks.close()

    def _member(self) -> _Member:
        engine = self._engine
        self.is_released = engine.is_released
        return _Member(engine.worker, engine.workers, engine.start_step, engine.next_step, self.is_released)


class _Counted:
    """The handle of a step's samples, which rank 0 commits."""

    def wait(self, _: Optional[float]) -> None:
        pass


class _Follower:
    """Takes the place of the engine in the other ranks."""

    exit_code = 0
    is_traced = False

    def __init__(self, ranks: LocalRanks) -> None:
        self._ranks = ranks
        leader, worker, workers = _receive(ranks)
        self._member = _Member(worker, workers, 0, 0, False)
        _leave_signals_to(leader)

    def use_samples(self, *_: object) -> None:
        pass  # rank 0 does

    def end_step(self) -> None:
        pass  # rank 0 does

    def has_joined_others(self) -> bool:
        """Rank 0 makes the calls for which it matters."""
        return False

    def use_step(self, _: Optional[int]) -> None:
        pass  # of pushes, which rank 0 makes

    def start(self, _: float) -> None:
        self._member = _receive(self._ranks)

    def samples(self, steps_ahead: int = 0) -> _Samples:
        samples: _Samples
        samples, self._member = _receive(self._ranks)
        return samples

    def commit_samples(self) -> _Counted:
        return _Counted()

    def agree(self) -> None:
        self._member = self._ranks.share()

    def leave(self, _: float) -> None:
        self._ranks.close()

    def close(self) -> None:
        pass

    def close_at_exit(self, _: bool) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in _Member._fields:
            return getattr(self._member, name)
        raise PushPullError(f"{name}: this process is local rank {self._ranks.rank} of its worker, and only rank 0 is in the job: "
                            "`if job.local_rank == 0:`", "FAILED_PRECONDITION")


def _end_with_parent() -> None:
    """torchrun's processes are in sessions of their own: whoever kills torchrun does not reach them."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _leave_signals_to(leader: int) -> None:
    """torchrun sends SIGTERM to all ranks. Rank 0 then ends the step and leaves the job, and needs this rank for that."""
    if threading.current_thread() is not threading.main_thread():
        return

    def on_sigterm(number: int, _: Optional[object]) -> None:
        try:
            os.kill(leader, 0)
        except ProcessLookupError:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def leave_to_parent() -> None:
        if signal.getsignal(signal.SIGTERM) is on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, on_sigterm)
    os.register_at_fork(after_in_child=leave_to_parent)
