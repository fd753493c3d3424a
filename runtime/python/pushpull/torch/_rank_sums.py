# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers that the local ranks of a worker share, and their sums."""
from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Optional, Union

import torch

from .. import _engine
from .._errors import PushPullError
from .._job import Job
from ._devices import SerialThread, SideStream
from ._local_ranks import LocalRanks
from ._tensors import Buffer, Parameter, PushedParameter

# Small tensors travel together: each collective costs some 20 us of a GPU.
_BUCKET_BYTES = 4 << 20


class _OfRanks:
    """What every local rank has. On rank 0 the job has it too, by its `member`."""

    member: Union[Parameter, Buffer, None]
    sums: Optional[RankSums] = None

    def before_start(self) -> None:
        if self.member is not None:
            self.member.before_start()

    def bind(self, engine: _engine.EngineJob) -> None:
        if self.member is not None:
            self.member.bind(engine)

    def end_push(self, timeout: float) -> None:
        if self.member is not None:
            self.member.end_push(timeout)

    def wait(self, timeout: float) -> bool:
        """New values come from RankSums."""
        return False


class RankParameter(_OfRanks, PushedParameter):
    """A parameter of this rank."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any], member: Optional[Parameter]) -> None:
        super().__init__(name, parameter, group)
        self.member = member

    @property
    def values(self) -> torch.Tensor:
        values: torch.Tensor = self.parameter.data
        return values

    @property
    def contribution(self) -> Optional[torch.Tensor]:
        grad: Optional[torch.Tensor] = self.parameter.grad
        return grad

    def push(self, samples: float, timeout: float, loss_scale: Optional[float]) -> Optional[torch.Tensor]:
        """Adds `parameter.grad` to the worker's sum, which rank 0 pushes."""
        assert self.sums is not None and loss_scale is None
        if self.parameter.grad is not None:
            self.check_dense(self.parameter.grad)
        self.remember_push(self.parameter.grad)
        self.sums.add(self, samples, timeout)
        return None


class RankBuffer(_OfRanks):
    """A buffer of this rank."""

    def __init__(self, buffer: torch.Tensor, member: Optional[Buffer]) -> None:
        self.values = buffer
        self.member = member

    @property
    def contribution(self) -> torch.Tensor:
        return self.values

    def push(self, samples: float, timeout: float) -> None:
        """Adds the buffer to the worker's mean, which rank 0 pushes."""
        assert self.sums is not None
        self.sums.add(self, samples, timeout)


Shared = Union[RankParameter, RankBuffer]


class _Bucket:
    """Tensors of one dtype and device that travel together."""

    def __init__(self, tensors: list[Shared]) -> None:
        self.tensors = tensors
        self.missing = len(tensors)  # those of the step whose gradient is not complete yet

    def contributions(self, share: float) -> torch.Tensor:
        parts = [torch.zeros_like(each.values) if each.contribution is None or share == 0 else each.contribution.detach()
                 for each in self.tensors]
        together: torch.Tensor = torch.cat([part.reshape(-1) for part in parts]).mul_(share)
        return together

    def values(self) -> torch.Tensor:
        return torch.cat([each.values.reshape(-1) for each in self.tensors])

    def take(self, values: torch.Tensor) -> None:
        for each, part in self.split(values):
            each.values.copy_(part)

    def split(self, values: torch.Tensor) -> Iterator[tuple[Shared, torch.Tensor]]:
        parts = torch.split_with_sizes(values, [each.values.numel() for each in self.tensors])
        for each, part in zip(self.tensors, parts):
            yield each, part.view(each.values.shape)


class RankSums:
    """Sums what the local ranks contribute to a step on rank 0, which pushes the sums, and passes new values on.

    A bucket is summed on a thread, and on a device on a stream beside the backward pass, as soon as it is complete here and the
    buckets before it have been summed: all ranks need the same order, and their backward passes may differ in theirs. Then comes
    `end_step`, then `pass_on_values`. Contributions may come from any thread; the other calls from one.

    tensors  those that are complete last come first: buffers, then parameters in the order of the forward pass
    """

    def __init__(self, job: Job, tensors: list[Shared]) -> None:
        self._job = job
        self._ranks: LocalRanks = job._local_ranks
        self._buckets = [_Bucket(each) for each in _together(reversed(tensors))]
        self._bucket_of = {id(each): bucket for bucket in self._buckets for each in bucket.tensors}
        self._streams = {device: SideStream(device) for device in {each.values.device for each in tensors}}
        self._lock = threading.Lock()
        self._next = 0  # the bucket that is summed next
        self._sums: list[Future[None]] = []
        self._thread = SerialThread("pp-ranks")
        for each in tensors:
            each.sums = self

    def add(self, tensor: Shared, samples: float, timeout: float) -> None:
        """What this rank contributes is complete, and must not change before the step ends. `samples` are all of the worker's."""
        self._streams[tensor.values.device].begin_after_current()
        share = self._job._share_of_rank if samples > 0 else 0.0
        with self._lock:
            self._bucket_of[id(tensor)].missing -= 1
            while self._next < len(self._buckets) and self._buckets[self._next].missing == 0:
                self._sums.append(self._thread.submit(self._sum, self._buckets[self._next], share, samples, timeout))
                self._next += 1

    def end_step(self, timeout: float) -> None:
        """Blocks until rank 0 has begun to push all sums; with GPUs other ranks only until theirs are on the stream."""
        for each in self._sums:
            self._finish(each, timeout)
        for bucket in self._buckets:
            bucket.missing = len(bucket.tensors)
        for stream in self._streams.values():
            stream.end_before_current()  # gradients stay until they have been summed
        self._sums.clear()
        self._next = 0

    def pass_on_values(self, timeout: float) -> None:
        """The ranks' tensors become the values after the last step. Blocks rank 0 until it has them."""
        if not self._job._has_samples:  # otherwise the sampler does it
            engine: Any = self._job._engine
            engine.agree()
        for bucket in reversed(self._buckets):
            for each in bucket.tensors:
                if each.member is not None:
                    each.member.wait(timeout)
            values = bucket.values()
            self._ranks.copy_from_first(values)
            if self._ranks.rank > 0:
                bucket.take(values)

    def _sum(self, bucket: _Bucket, share: float, samples: float, timeout: float) -> None:
        with torch.no_grad(), self._streams[bucket.tensors[0].values.device].use():
            sums = bucket.contributions(share)
            self._ranks.sum_on_first(sums)
            for each, part in bucket.split(sums):
                if each.member is not None:
                    each.member.push_sum(part, samples, timeout)

    def _finish(self, sum_of_bucket: Future[None], timeout: float) -> None:
        try:
            sum_of_bucket.result(timeout)
        except FutureTimeout:
            raise PushPullError(f"local rank {self._ranks.rank} of {self._ranks.size}: the gradients of this worker's processes were "
                                f"not summed within {timeout:g} s: another rank has not come to the end of its step",
                                "DEADLINE_EXCEEDED") from None


def _together(tensors: Iterable[Shared]) -> Iterator[list[Shared]]:
    """The tensors in lists of one kind with about _BUCKET_BYTES."""
    bucket: list[Shared] = []
    num_bytes = 0
    for each in tensors:
        values = each.values
        if bucket and (num_bytes >= _BUCKET_BYTES or (values.dtype, values.device) != (bucket[0].values.dtype, bucket[0].values.device)):
            yield bucket
            bucket, num_bytes = [], 0
        bucket.append(each)
        num_bytes += values.numel() * values.element_size()
    if bucket:
        yield bucket
