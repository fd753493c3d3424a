# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers that the local ranks of a worker share, and their sums."""
from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Optional, TypeVar, Union

import torch

from .. import _engine
from .._errors import PushPullError
from ._devices import SerialThread, SideStream
from ._local_ranks import LocalRanks
from ._rank_memory import Layout, RankMemory
from ._sent import PushedParameter, sent
from ._settings import learning_rate
from ._tensors import Tensor, Waits, check_dense

Result = TypeVar("Result")


class RankMember:
    """What rank 0 has in the job for a tensor of the ranks.

    tensor  its gradient and value are on the host, for an accelerator in memory that the ranks share
    group   of a parameter; None for a buffer
    """

    def __init__(self, tensor: Tensor, group: Optional[dict[str, Any]]) -> None:
        self._tensor = tensor
        self._group = group

    def bind(self, engine: _engine.EngineJob) -> None:
        self._tensor.bind(engine)

    def push(self, samples: float) -> None:
        """Pushes what the gradient's memory has."""
        self._tensor.push(samples, 0.0 if self._group is None else learning_rate(self._group))

    def push_sum(self, gradient: torch.Tensor, samples: float, timeout: Optional[float]) -> None:
        self._tensor.wait(timeout)
        self._tensor.gradient.copy_(gradient)
        self.push(samples)

    def wait(self, timeout: Optional[float]) -> torch.Tensor:
        """The value, as it is after the last push. Afterwards the gradient's memory may be written."""
        self._tensor.wait(timeout)
        return self._tensor.value


class _OfRanks:
    """What every local rank has. On rank 0 the job has it too, by its `member`."""

    member: Optional[RankMember]
    sums: Optional[RankSums] = None

    def bind(self, engine: _engine.EngineJob) -> None:
        if self.member is not None:
            self.member.bind(engine)


class RankParameter(_OfRanks, PushedParameter):
    """A parameter of this rank. Its new values come from RankSums, in `step`."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any],
                 member: Optional[RankMember]) -> None:
        super().__init__(name, parameter, group)
        self.member = member
        self.contribution: Optional[torch.Tensor] = None

    @property
    def values(self) -> torch.Tensor:
        values: torch.Tensor = self.parameter.data
        return values

    def _send(self, grad: Optional[torch.Tensor], samples: float) -> None:
        """Adds `grad` to the worker's sum, which rank 0 pushes."""
        assert self.sums is not None
        check_dense(self.name, grad)
        self.contribution = None if grad is None else grad.detach()
        self.sums.add(self, samples)
        if grad is not None and not grad.requires_grad:
            sent(grad, self)


class RankBuffer(_OfRanks):
    """A buffer of this rank."""

    def __init__(self, name: str, buffer: torch.Tensor, member: Optional[RankMember]) -> None:
        self.name = name
        self.values = buffer
        self.member = member

    @property
    def contribution(self) -> torch.Tensor:
        return self.values

    def push(self, samples: float) -> None:
        """Adds the buffer to the worker's mean, which rank 0 pushes."""
        assert self.sums is not None
        self.sums.add(self, samples)


Shared = Union[RankParameter, RankBuffer]


class _Bucket:
    """Tensors of one dtype and device that travel together."""

    def __init__(self, ranks: LocalRanks, layout: Layout, tensors: list[Shared]) -> None:
        self._ranks = ranks
        self._layout = layout
        self.tensors = tensors
        self.missing = len(tensors)  # those of the step whose gradient is not complete yet

    def sum(self, share: float, samples: float, timeout: Optional[float]) -> Optional[Callable[[], None]]:
        """Sums the ranks' contributions, on the current stream. The result ends it, which waits for the device and the ranks."""
        raise NotImplementedError

    def pass_on(self, timeout: Optional[float]) -> None:
        """The tensors of all ranks become the new values. Blocks rank 0 until it has them."""
        raise NotImplementedError

    def _contributions(self, share: float) -> torch.Tensor:
        parts = (torch.zeros_like(each.values) if each.contribution is None or share == 0 else each.contribution.detach()
                 for each in self.tensors)
        together: torch.Tensor = self._layout.join(parts).mul_(share)
        return together

    def _take(self, values: torch.Tensor) -> None:
        for each, part in zip(self.tensors, self._layout.split(values)):
            each.values.copy_(part)


class _SumsOnFirst(_Bucket):
    """On the CPU rank 0 has the sums, pushes them, and broadcasts new values."""

    def sum(self, share: float, samples: float, timeout: Optional[float]) -> None:
        sums = self._contributions(share)
        self._ranks.sum_on_first(sums)
        for each, part in zip(self.tensors, self._layout.split(sums)):
            if each.member is not None:
                each.member.push_sum(part, samples, timeout)

    def pass_on(self, timeout: Optional[float]) -> None:
        for each in self.tensors:
            if each.member is not None:
                value = each.member.wait(timeout)
                if value.data_ptr() != each.values.data_ptr():  # of a parameter it is the same memory
                    each.values.copy_(value)
        values = self._layout.join(each.values for each in self.tensors)
        self._ranks.copy_from_first(values)
        if self._ranks.rank > 0:
            self._take(values)


class _SumsInParts(_Bucket):
    """Each rank has a part of the sums on its accelerator, and copies that to the host, over a link of its own.

    Rank 0 pushes from there when all parts are there. New values go the other way.
    """

    def __init__(self, ranks: LocalRanks, layout: Layout, tensors: list[Shared], memory: RankMemory, stream: SideStream) -> None:
        super().__init__(ranks, layout, tensors)
        self._gradients, self._values = (flat.view(ranks.size, -1)[ranks.rank] for flat in memory.of_bucket(layout))
        self._stream = stream

    def sum(self, share: float, samples: float, timeout: Optional[float]) -> Callable[[], None]:
        part = self._ranks.sum_parts(self._contributions(share))
        self._gradients.copy_(part, non_blocking=True)
        copied = self._stream.record()

        def push(_: torch.Tensor = part) -> None:  # the accelerator gives memory to others as soon as nothing refers to it
            copied.synchronize()
            self._ranks.meet()
            for each in self.tensors:
                if each.member is not None:
                    each.member.push(samples)

        return push

    def pass_on(self, timeout: Optional[float]) -> None:
        for each in self.tensors:
            if each.member is not None:
                each.member.wait(timeout)
        self._ranks.meet()
        part = self._values.to(self._layout.device, non_blocking=True)
        self._take(self._ranks.join_parts(part))


class RankSums:
    """Sums what the local ranks contribute to a step, for rank 0, which pushes the sums, and passes new values on.

    A bucket is summed on a thread, and on a device on a stream beside the backward pass, as soon as it is complete here and the
    buckets before it have been summed: all ranks need the same order, and their backward passes may differ in theirs. Another
    thread waits for the device, while the next bucket is summed. Then comes `end_step`, then `pass_on_values`. Contributions may
    come from any thread; the other calls from one.

    memory  of `tensors`, the buckets included
    """

    def __init__(self, waits: Waits, tensors: dict[str, Shared], memory: RankMemory) -> None:
        self._waits = waits
        self._job = waits.job
        self._ranks: LocalRanks = self._job._local_ranks
        self._streams = {device: SideStream(device) for device in {layout.device for layout in memory.layouts}}
        self._buckets = [self._bucket(layout, [tensors[name] for name in layout.shapes], memory) for layout in memory.layouts]
        self._bucket_of = {id(each): bucket for bucket in self._buckets for each in bucket.tensors}
        self._lock = threading.Lock()
        self._next = 0  # the bucket that is summed next
        self._sums: list[Future[Optional[Future[None]]]] = []
        self._summing = SerialThread("pp-ranks")
        self._pushing = SerialThread("pp-parts")
        for each in tensors.values():
            each.sums = self

    def _bucket(self, layout: Layout, tensors: list[Shared], memory: RankMemory) -> _Bucket:
        if layout.device.type == "cpu":
            return _SumsOnFirst(self._ranks, layout, tensors)
        return _SumsInParts(self._ranks, layout, tensors, memory, self._streams[layout.device])

    def add(self, tensor: Shared, samples: float) -> None:
        """What this rank contributes is complete, and must not change before the step ends. `samples` are all of the worker's."""
        self._streams[tensor.values.device].begin_after_current()
        share = self._job._share_of_rank if samples > 0 else 0.0
        with self._lock:
            self._bucket_of[id(tensor)].missing -= 1
            while self._next < len(self._buckets) and self._buckets[self._next].missing == 0:
                self._sums.append(self._summing.submit(self._sum, self._buckets[self._next], share, samples, self._waits.timeout))
                self._next += 1

    def end_step(self) -> None:
        """Blocks until rank 0 has begun to push all sums."""
        for each in self._sums:
            pushed = self._finish(each)
            if pushed is not None:
                self._finish(pushed)
        for bucket in self._buckets:
            bucket.missing = len(bucket.tensors)
        for stream in self._streams.values():
            stream.end_before_current()  # gradients stay until they have been summed
        self._sums.clear()
        self._next = 0

    def pass_on_values(self) -> None:
        """The ranks' tensors become the values after the last step. Blocks rank 0 until it has them."""
        if not self._job._has_samples:  # otherwise the sampler does it
            engine: Any = self._job._engine
            engine.agree()
        for bucket in reversed(self._buckets):
            bucket.pass_on(self._waits.timeout)

    def _sum(self, bucket: _Bucket, share: float, samples: float, timeout: Optional[float]) -> Optional[Future[None]]:
        with torch.no_grad(), self._streams[bucket.tensors[0].values.device].use():
            end = bucket.sum(share, samples, timeout)
        return None if end is None else self._pushing.submit(end)

    def _finish(self, work: Future[Result]) -> Result:
        try:
            return work.result(self._waits.timeout)
        except FutureTimeout:
            raise PushPullError(f"local rank {self._ranks.rank} of {self._ranks.size}: the gradients of this worker's processes were "
                                f"not summed within {self._waits.timeout} s: another rank has not come to the end of its step, or a device hangs",
                                "DEADLINE_EXCEEDED") from None
