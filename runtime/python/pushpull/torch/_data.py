# SPDX-License-Identifier: Apache-2.0
"""Data sets that the workers of a job divide among themselves while it trains, for DataLoaders."""
from __future__ import annotations

import math
import numbers
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from typing import Any, NamedTuple, Optional, Union

import torch.utils.data

from .._errors import PushPullError
from .._job import Job, current_job
from ._order import DrawnOrder, Order, order_of
from ._schedules import LateSchedules

_Ranges = tuple[tuple[int, int], ...]  # first position in the epoch's order, count
_BATCH_SIZE = 64


class _Part(NamedTuple):
    """This process's samples in a step: all of the worker's, or those of a local rank."""

    epoch: int
    of_worker: _Ranges
    num_of_worker: int  # samples
    ranges: _Ranges
    num_samples: int  # above 0: a rank for which there is none has some that do not count
    share: float  # of the worker's samples


class _MicroBatch(NamedTuple):
    part: _Part
    number: int


class _Steps:
    """This worker's parts of the job's steps, epoch by epoch."""

    def __init__(self, order: Union[Order, DrawnOrder], batch_size: int, epochs: int, accumulate: int, drop_last: bool) -> None:
        for name, value in (("batch_size", batch_size), ("epochs", epochs), ("accumulate", accumulate)):
            if value is None and name == "batch_size":
                raise ValueError("batch_size=None: the job divides samples, so pass their number for each worker and step; a data set of "
                                 "whole batches needs batch_size=1 and a collate_fn that takes them out of the list")
            if not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"{name}: expected 1 or more, got {value}")
        self.job: Job = current_job()
        if self.job._has_samples:
            raise PushPullError("ElasticDataLoader: the job has a data set already: make one loader for what trains, of a data set whose "
                                "items have the samples of both; use torch's DataLoader to evaluate", "FAILED_PRECONDITION")
        if self.job._has_started:
            raise PushPullError("ElasticDataLoader: the job has started, with the first forward pass of the model, zero_grad() or step(): "
                                "make the loader before it", "FAILED_PRECONDITION")
        if order.unit == "batch":
            batch_size = self.job.local_ranks  # of these batches, one for each
        self._per_worker = batch_size * accumulate
        self._batch = self._per_worker * self.job.workers  # of all workers
        if drop_last and order.length < self._batch:
            raise ValueError(f"drop_last=True: a step of {self.job.workers} workers has {self._batch} samples, and the data set has "
                             f"{order.length}: no step would be full; leave it out, or lower batch_size")
        self.job.use_samples(order.length, batch=self._per_worker, epochs=epochs, drop_last=drop_last)
        self.accumulate = accumulate
        self.timeout: Optional[float] = None
        self.fraction = 1.0  # of the part that is in the current micro-batch
        self._order, self._epochs, self._drop_last = order, epochs, drop_last
        # As in the job's division: nobody has a single sample, except of batches of one.
        self._least = 2 if order.unit == "sample" and batch_size > 1 else 1
        self._iterations = 0  # epochs that the program has iterated over
        self._has_begun = False  # the program has been in the job's present epoch
        self._late_schedules: Optional[LateSchedules] = None  # to be checked in the first steps of a program that begins late
        self._is_under_way = False  # a part has been handed out
        self._is_checked = False  # the order

    def __len__(self) -> int:
        """Micro-batches per epoch, if the set of workers does not change."""
        steps = self._order.length / self._batch
        return (max(1, math.floor(steps)) if self._drop_last else math.ceil(steps)) * self.accumulate

    def parts(self) -> Iterator[_Part]:
        """Parts of the next epoch: what is left of it for the job, nothing if the job is past it.

        Yields each part once the previous step counts. Makes the steps in which this worker has no samples.
        """
        job = self.job
        job._start_once()
        self._end_past()
        job._is_before_first = False
        if job._epoch is not None:
            self._iterations = job._epoch
        if self._iterations >= self._epochs:
            self._refuse()
        if not self._is_checked:
            self._late_schedules = LateSchedules(job) if job.start_step > 0 else None
            self._order.check_is_common(job, self.timeout)
            self._is_checked = True
        if self._is_under_way and self._has_pushed():  # an iteration that ended early
            self._finish_step()
        samples = self._next()
        while not samples.is_over and samples.epoch <= self._iterations:
            self._has_begun = True
            left = self._order.length - samples.position - samples.total
            job._ends_epoch = left <= 0 or (self._drop_last and left < self._batch)
            job._use_step(samples.step)
            try:
                if samples.count == 0:
                    job._push_nothing()
                else:
                    self._check_schedules(samples.epoch)
                    yield self._hand_out(self._part_of(samples))
                    self._check_pushed(samples.step)
            finally:
                job._use_step(None)
            self._finish_step()
            samples = self._next()
        if not self._has_begun and job._epoch is None:  # `epochs` had the present one, even if others have taken all of its samples
            self._note_past(samples)
        self._iterations += 1

    def _next(self) -> Any:
        """This worker's samples of the next step. Ends the program of a released worker."""
        samples = self.job._next_samples(self.timeout, self._iterations)
        self._batch = samples.batch or self._batch
        return samples

    def _check_schedules(self, epoch: int) -> None:
        if self._late_schedules is not None and not self._late_schedules.check(epoch):
            self._late_schedules = None

    def _note_past(self, samples: Any) -> None:
        """The program is after an epoch that was over when this worker began. If the next one has not begun, all is as it was then."""
        if self._iterations >= samples.epoch - (samples.position == 0) or self._iterations + 1 == self._epochs:
            return
        # Without numbers, by which the launcher would take two tries for different ends.
        self.job._past = (
            "this epoch was over when this worker began, and the parameters and the other workers are at a later one. What the program does "
            "after an epoch would happen with the present values, such as an early stop. Write `for epoch in loader.epochs():` in place of "
            "`for epoch in range(...):`, which begins with the present epoch, and keep schedulers, the best value and the like in "
            "pushpull.torch.State(...)")
        for optimizer in self.job._optimizers:
            optimizer._refuse_reading()

    def _end_past(self) -> None:
        if self.job._past is not None:
            self.job._past = None
            for optimizer in self.job._optimizers:
                optimizer._allow_present()

    def parts_ahead(self) -> Iterator[_Part]:
        """This worker's next part and, if the set of workers does not change, the following parts of the epoch.

        Call it while no step is in progress.
        """
        samples = self.job._engine.samples()
        epoch = samples.epoch
        while samples.epoch == epoch and not samples.is_over:
            if samples.count > 0:
                yield self._part_of(samples)
            ahead = samples.step + 1 - self.job._engine.samples().step
            samples = self.job._engine.samples(max(ahead, 0))

    def micro_batches(self, part: _Part) -> Iterator[_MicroBatch]:
        """The micro-batches of the current part."""
        batches = self.split(part)
        for number, batch in enumerate(batches):
            self.fraction = len(batch) / part.num_samples
            self.job._is_last_of_step = number == len(batches) - 1
            yield _MicroBatch(part, number)

    def split(self, part: _Part) -> list[list[int]]:
        """The indices of each micro-batch."""
        indices = self._order.take(part.epoch, part.ranges)
        # As many in every local rank: loaders ask for their next samples together.
        of_worker = sum(count for _, count in part.of_worker)
        micro_batches = min(self.accumulate, max(1, of_worker // (self.job.local_ranks * self._least)))
        ends = [number * len(indices) // micro_batches for number in range(micro_batches + 1)]
        batches = [indices[begin:end] for begin, end in zip(ends, ends[1:])]
        return batches if self._order.unit == "sample" else [[index for batch in one for index in batch] for one in batches]

    def _part_of(self, samples: Any) -> _Part:
        if self._order.unit == "batch" and samples.count > self._per_worker:
            raise ValueError(f"batch_sampler: a step has {samples.batch} of its batches (spec.workers.globalBatch), and a worker takes "
                             f"{self._per_worker}: leave out globalBatch, or pass sampler and batch_size")
        ranges: _Ranges = tuple(samples.ranges)
        sharers = min(self.job.local_ranks, max(1, samples.count // self._least))
        rank, counts = self.job.local_rank, self.job.local_rank < sharers
        begin, end = ((rank * samples.count // sharers, (rank + 1) * samples.count // sharers) if counts
                      else (0, min(samples.count, self._least)))
        taken = _cut(ranges, begin, end - begin)
        of_worker, own = self._num_samples(samples.epoch, ranges), self._num_samples(samples.epoch, taken)
        return _Part(samples.epoch, ranges, of_worker, taken, own, own / of_worker if counts else 0.0)

    def _num_samples(self, epoch: int, ranges: _Ranges) -> int:
        if self._order.unit == "batch":
            return sum(len(batch) for batch in self._order.take(epoch, ranges))
        return sum(count for _, count in ranges)

    def _hand_out(self, part: _Part) -> _Part:
        self.job.store._weight = float(part.num_of_worker)
        self.job._share_of_rank = part.share
        self.job.store._has_pushed = False
        self._is_under_way = True
        return part

    def _has_pushed(self) -> bool:
        return self.job._commit is not None or self.job.store._has_pushed

    def _check_pushed(self, step: int) -> None:
        if not self._has_pushed():
            raise RuntimeError(f"samples of the next step were asked for, but nothing was pushed in step {step}: call "
                               "optimizer.step() after every batch, without no_sync(); for gradients of N batches in one step pass "
                               "accumulate=N to the loader. To evaluate, or for update_bn, use a torch DataLoader. Only "
                               "pushpull.torch.ElasticDataLoader can load ahead")

    def _refuse(self) -> None:
        """The program iterates more often than it has said."""
        raise RuntimeError(f"the job's data set has ended: epochs={self._epochs}, and this is iteration {self._iterations + 1} of the "
                           "loader, which would be empty. Pass the number of iterations that the program makes, such as epochs=5 "
                           f"for a loop of 5 epochs; a loop of N steps needs epochs=math.ceil(N / {len(self)}) and "
                           "`while job.step < N`")

    def _finish_step(self) -> None:
        """Waits until the samples of the step count and those of the next one are known."""
        self.job._commit_samples()
        self.job.store.wait(self.timeout)
        self.job._finish_commit(self.timeout)
        self.job._end_state_step()
        self.job.store._weight = 1.0
        self.job._share_of_rank = 1 / self.job.local_ranks
        self.job._is_last_of_step = True
        self._is_under_way = False


def _cut(ranges: _Ranges, begin: int, count: int) -> _Ranges:
    """`count` of the positions in `ranges`, without the first `begin` of them."""
    cut = []
    for first, length in ranges:
        skipped = min(begin, length)
        taken = min(count, length - skipped)
        if taken > 0:
            cut.append((first + skipped, taken))
        begin, count = begin - skipped, count - taken
    return tuple(cut)


class _HasSteps:
    """What ElasticSampler and ElasticDataLoader both have."""

    _steps: _Steps

    def __len__(self) -> int:
        return len(self._steps)

    def epochs(self) -> Iterator[int]:
        """The epochs that remain, from 0: in a worker that joins or resumes beginning with the job's present one.

            for epoch in loader.epochs():
                for images, labels in loader: ...
                validate()

        What stands after the inner loop runs once for each epoch, in every worker that is there when it ends. A worker that begins with
        the first step of an epoch gets the one before it too, without batches, so that it takes part. See pushpull.Job.epochs.
        """
        return self._steps.job.epochs()

    @property
    def is_last_of_step(self) -> bool:
        """Whether the gradients of the latest micro-batch end the step."""
        return self._steps.job._is_last_of_step

    @property
    def fraction_of_step(self) -> float:
        """The micro-batch's share of this worker's samples in the step: the factor for its mean loss."""
        return self._steps.fraction

    @property
    def step_timeout(self) -> Optional[float]:
        """Seconds that the other workers have to make a step; None: as long as they live."""
        return self._steps.timeout

    @step_timeout.setter
    def step_timeout(self, seconds: Optional[float]) -> None:
        self._steps.timeout = seconds


class ElasticSampler(_HasSteps, torch.utils.data.Sampler[list[int]]):
    """Batches of indices for a DataLoader: each step's samples are divided among the workers at that time.

        loader = DataLoader(train, batch_sampler=pp.ElasticSampler(train, batch_size=64, epochs=3))
        for epoch in loader.epochs():
            for images, labels in loader: ...

    dataset     the data set, or its length
    batch_size  samples per worker and step. spec.workers.globalBatch replaces it, for all workers together
    epochs      of the whole job: how often the program iterates. One iteration more is an error. `epochs()` gives those that remain
    shuffle     a new order in each epoch, the same in all workers with the same `seed`
    accumulate  micro-batches per step. Each has about `batch_size` samples; only `optimizer.step()` after the last one counts
    sampler     indices of each epoch in place of `shuffle`, as in DataLoader: of torch or the program's own, with a length. Every
                worker draws all of them; `seed` and the epoch seed torch, numpy.random, random and generators in its attributes
                meanwhile, and `set_epoch` is called
    drop_last   an epoch ends before a step that would not be full

    An iteration is an epoch of the job: the rest of it if this worker joins or replaces another within it. If this worker is released,
    it raises pushpull.Released. An iteration that ends early continues in the next one. Each sample counts
    exactly once in an epoch, even if workers come and go, and with spec.sync.gated even if one fails. In a step without
    samples for this worker the sampler pushes zeros by itself; the last step of an epoch goes to fewer workers rather than give
    one a single sample. The number of batches depends on the workers; `len` assumes the current ones.

    Construct it before the job starts, with the same arguments in every worker; the job is pushpull.current_job(). Only for
    loaders without processes (num_workers=0); `ElasticDataLoader` can have them. A worker may take long between two steps, for
    instance to evaluate the model while the others wait in their next step: they wait as long as it lives. The attribute
    `step_timeout` sets a limit, in seconds; spec.sync.stallSeconds reports who is late.

    Raises PushPullError FAILED_PRECONDITION (the job has started or has a data set; it was restored within an epoch that has
    another number of samples, or with another drop_last), ValueError and TypeError (an argument), RuntimeError (samples are
    requested before the previous step was pushed, or after the last epoch), and the errors of `Handle.wait`.
    """

    def __init__(self, dataset: Union[int, Sized], batch_size: int = _BATCH_SIZE, *, epochs: int = 1, shuffle: Optional[bool] = None,
                 seed: int = 0, accumulate: int = 1, sampler: Optional[Iterable[Any]] = None, drop_last: bool = False) -> None:
        order = order_of(dataset, shuffle=shuffle, seed=seed, sampler=sampler)
        self._steps = _Steps(order, batch_size, epochs, accumulate, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        # DataLoader's iterator is the caller. With processes it would take batches of future steps.
        loader = sys._getframe(1).f_locals.get("loader")
        return self._batches(loader.num_workers if isinstance(loader, torch.utils.data.DataLoader) else 0)

    def _batches(self, num_workers: int) -> Iterator[list[int]]:
        if num_workers > 0:
            raise RuntimeError(f"num_workers={num_workers}: who has which samples of a step is known when it comes; use "
                               "pushpull.torch.ElasticDataLoader, which loads ahead and checks it")
        for part in self._steps.parts():
            batches = self._steps.split(part)
            for micro_batch in self._steps.micro_batches(part):
                yield batches[micro_batch.number]


class _Ahead:
    """Batches of indices for a loader with processes, which requests them before their steps begin."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self.planned: deque[_MicroBatch] = deque()  # requested, in order, beginning with the loader's next one

    def __iter__(self) -> Iterator[list[int]]:
        for part in self._steps.parts_ahead():
            for number, indices in enumerate(self._steps.split(part)):
                self.planned.append(_MicroBatch(part, number))
                yield indices

    def __len__(self) -> int:
        return len(self._steps)


class ElasticDataLoader(_HasSteps, torch.utils.data.DataLoader[Any]):
    """A DataLoader whose batches are divided among the workers of the job like those of an ElasticSampler.

        loader = pp.ElasticDataLoader(train, batch_size=64, epochs=3, num_workers=2)
        for epoch in loader.epochs():
            for images, labels in loader: ...

    Arguments up to `drop_last` are those of ElasticSampler, the others those of DataLoader. `shuffle` defaults to True.

    batch_sampler  yields whole batches, as in DataLoader, in place of batch_size, shuffle, sampler and drop_last. Each worker
                   takes one of them for each micro-batch; the weight of a step is the number of samples in them. Every worker
                   draws all of them, as with `sampler`

    With num_workers above 0, data are loaded ahead for the job's current set of workers. When a worker joins, leaves or fails,
    data that no longer belong to this worker are dropped and loading starts over, so that batches are always those of the step.
    That starts new processes, unless persistent_workers is True. With backup workers it can happen after any step.

    `timeout` is DataLoader's; the attribute `step_timeout` is as in ElasticSampler.
    Raises the errors of ElasticSampler and DataLoader, and ValueError (in_order=False).
    """

    def __init__(self, dataset: Any, batch_size: int = _BATCH_SIZE, *, epochs: int = 1, shuffle: Optional[bool] = None, seed: int = 0,
                 accumulate: int = 1, sampler: Optional[Iterable[Any]] = None, drop_last: bool = False,
                 batch_sampler: Optional[Iterable[Any]] = None, **loader_arguments: Any) -> None:
        if not loader_arguments.get("in_order", True):
            raise ValueError("in_order: expected True: batches are those of the job's steps")
        if batch_sampler is not None:
            if batch_size not in (_BATCH_SIZE, 1, getattr(batch_sampler, "batch_size", None)):
                raise ValueError(f"batch_size={batch_size}: the batches are those of batch_sampler; leave out batch_size")
            if drop_last:
                raise ValueError("drop_last=True: the batches are those of batch_sampler; leave out drop_last, or give it to that")
        order = order_of(dataset, shuffle=shuffle, seed=seed, sampler=sampler, batch_sampler=batch_sampler)
        self._steps = _Steps(order, batch_size, epochs, accumulate, drop_last)
        self._ahead = _Ahead(self._steps)
        super().__init__(dataset, batch_sampler=self._ahead, **loader_arguments)
        if batch_sampler is None:  # for programs that count samples; DataLoader itself refuses it beside a batch_sampler
            object.__setattr__(self, "batch_size", batch_size)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        planned = self._ahead.planned
        batches: Optional[Iterator[Any]] = None
        for part in self._steps.parts():
            for micro_batch in self._steps.micro_batches(part):
                if batches is None or (self.num_workers > 0 and (not planned or planned[0] != micro_batch)):
                    batches = None  # ends its processes
                    planned.clear()
                    batches = super().__iter__()
                batch = next(batches)
                planned.popleft()
                yield batch
