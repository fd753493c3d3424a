# SPDX-License-Identifier: Apache-2.0
"""Which sample of a data set each position of an epoch is: the same in all workers, whenever they join."""
from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Optional, Union

import numpy
import torch.utils.data
from torch.utils.data.distributed import DistributedSampler

from .._collectives import all_gather
from .._errors import PushPullError
from .._job import Job

# In a job restored with another version of NumPy too (NEP 19).
_Random = numpy.random.RandomState
_NUM_VALUES = 32  # of a data set, which workers compare


class _Checked:
    """What all workers must have in common: they divide positions, and each takes the samples that it has there."""

    def __init__(self, argument: str, drawn: int, dataset: Any) -> None:
        self._argument = argument
        values = _some_values(dataset)[:_NUM_VALUES]
        self._has_in_common = numpy.array([drawn, _split_of(dataset), *values, *[0.0] * (_NUM_VALUES - len(values))])

    def check_is_common(self, job: Job, timeout: Optional[float]) -> None:
        """Before a job's first step: compares what the workers have. Raises ValueError in all of them if it differs."""
        if not self._has_in_common.any() or job.start_step > 0 or job.step > 0 or job.local_rank > 0:
            return
        try:
            every = all_gather(self._has_in_common, timeout=timeout, job=job)
        except PushPullError as error:
            if error.code == "FAILED_PRECONDITION":  # the mode has no collectives
                return
            raise
        # Values may be computed, on machines that round differently.
        if len(set(every[:, 1])) > 1 or not numpy.allclose(every[:, 2:], every[0, 2:], rtol=1e-2, atol=1e-3, equal_nan=True):
            raise ValueError("dataset: the workers have different ones, and the job would divide them wrongly: call torch.manual_seed(0), "
                             "or use generator=torch.Generator().manual_seed(0), before random_split and random data, in all workers alike")
        if len(set(every[:, 0])) > 1:
            raise ValueError(f"{self._argument}: the workers draw different indices, and the job would divide them wrongly: make the "
                             "sampler from the same numbers in all of them, with torch.manual_seed(...) before a random split")


class Order(_Checked):
    """The samples in their order, or a permutation of each epoch."""

    unit = "sample"

    def __init__(self, num_samples: int, shuffle: bool, seed: int, dataset: Any) -> None:
        super().__init__("dataset", 0, dataset)
        self.length = num_samples
        self._shuffle, self._seed = shuffle, seed
        self._epoch, self._permutation = -1, numpy.empty(0, numpy.int64)

    def take(self, epoch: int, ranges: Iterable[tuple[int, int]]) -> list[Any]:
        """What is at these positions: first one, count."""
        if not self._shuffle:
            return [index for first, count in ranges for index in range(first, first + count)]
        if self._epoch != epoch:
            self._epoch, self._permutation = epoch, _Random([self._seed, epoch]).permutation(self.length)
        return [index for first, count in ranges for index in self._permutation[first:first + count].tolist()]


class DrawnOrder(_Checked):
    """What a sampler of torch or of the program yields in each epoch: indices, or with `batch_sampler` batches of them.

    Every worker draws all of it, with the same random numbers: those of torch, numpy.random, random and of the generators in
    the sampler are seeded with `seed` and the epoch meanwhile.
    """

    def __init__(self, argument: str, sampler: Iterable[Any], seed: int, dataset: Any) -> None:
        self.unit = "batch" if argument == "batch_sampler" else "sample"
        self._sampler, self._seed = sampler, seed
        self._parts = list(_samplers_in(sampler))
        for part in self._parts:
            if isinstance(part, DistributedSampler) and part.num_replicas > 1:
                raise ValueError(f"{argument}: a DistributedSampler has the samples of one rank, and the job divides them itself: "
                                 "leave it out; shuffle=True is the default")
        if not isinstance(sampler, Sized):
            raise TypeError(f"{argument}: {type(sampler).__name__} has no length, and may be endless: the job divides the positions of "
                            "an epoch; give it __len__, or leave it out (shuffle=True) and pass epochs")
        self._epoch, self._drawn = 0, self._draw(0)
        self.length = len(self._drawn)
        text = repr(self._drawn)
        super().__init__(argument, zlib.crc32(text.encode()), dataset)
        if repr(self._draw(0)) != text:
            raise ValueError(f"{argument}: {type(sampler).__name__} yields something else each time, although torch, numpy.random, "
                             "random and its own generators had the same seeds, so no two workers would have the same order: draw "
                             "with a torch.Generator in an attribute, or from what set_epoch(epoch) is told")

    def take(self, epoch: int, ranges: Iterable[tuple[int, int]]) -> list[Any]:
        if self._epoch != epoch:
            self._epoch, self._drawn = epoch, self._draw(epoch)
        if len(self._drawn) != self.length:
            raise ValueError(f"{self._argument}: it has yielded {len(self._drawn)} times in epoch {epoch}, and {self.length} times in "
                             "epoch 0: the job divides as many positions in each epoch; pad or cut it to one length")
        return [each for first, count in ranges for each in self._drawn[first:first + count]]

    def _draw(self, epoch: int) -> list[Any]:
        with _same_random_numbers(int(_Random([self._seed, epoch]).randint(2**31)), self._parts):
            for part in self._parts:
                if hasattr(part, "set_epoch"):
                    part.set_epoch(epoch)
            return list(self._sampler)


def order_of(dataset: Any, *, shuffle: Optional[bool], seed: int, sampler: Optional[Iterable[Any]] = None,
             batch_sampler: Optional[Iterable[Any]] = None) -> Union[Order, DrawnOrder]:
    """Raises ValueError and TypeError, which name the argument."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise TypeError("dataset: an IterableDataset is a stream without positions, which the job could divide: pass a data set with "
                        "__getitem__ and __len__; or give each worker a torch DataLoader with its part of the stream, such as "
                        "itertools.islice(stream, job.worker, None, job.workers), and make equally many steps in all workers")
    argument, given = ("sampler", sampler) if batch_sampler is None else ("batch_sampler", batch_sampler)
    if given is not None:
        if sampler is not None and batch_sampler is not None:
            raise ValueError("batch_sampler: its batches are whole ones: leave out sampler")
        if shuffle:
            raise ValueError(f"shuffle=True: the order is that of {argument}; leave out shuffle")
        return DrawnOrder(argument, given, seed, dataset)
    if not isinstance(dataset, (int, Sized)):
        raise TypeError(f"dataset: {type(dataset).__name__} has no length: the job divides the positions of an epoch; give it __len__, "
                        "or pass a sampler that has one")
    num_samples = dataset if isinstance(dataset, int) else len(dataset)
    if num_samples < 1:
        raise ValueError(f"dataset: expected 1 sample or more, got {num_samples}")
    return Order(num_samples, shuffle is not False, seed, dataset)


def _split_of(dataset: Any) -> int:
    """A number for what torch's Subset and ConcatDataset take of which data set; 0 for others."""
    if isinstance(dataset, torch.utils.data.Subset):
        return zlib.crc32(numpy.asarray(dataset.indices).tobytes(), _split_of(dataset.dataset))
    if isinstance(dataset, torch.utils.data.ConcatDataset):
        return zlib.crc32(repr([_split_of(each) for each in dataset.datasets]).encode())
    return 0


def _some_values(dataset: Any) -> list[float]:
    """Numbers for rows from all over the tensors of a TensorDataset."""
    if isinstance(dataset, torch.utils.data.Subset):
        return _some_values(dataset.dataset)
    if isinstance(dataset, torch.utils.data.ConcatDataset):
        return [value for each in dataset.datasets for value in _some_values(each)]
    if type(dataset) is not torch.utils.data.TensorDataset:
        return []
    values: list[float] = []
    for tensor in dataset.tensors:
        if tensor.layout is torch.strided and tensor.numel() > 0:
            rows = tensor.detach()[::max(len(tensor) // _NUM_VALUES, 1)]
            sizes = rows.reshape(len(rows), -1).to(torch.complex128 if rows.is_complex() else torch.float64).abs()
            values += sizes.sum(dim=1).tolist()[:_NUM_VALUES]
    return values


def _samplers_in(sampler: Any) -> Iterator[Any]:
    """It and those that it draws from."""
    yield sampler
    for value in getattr(sampler, "__dict__", {}).values():
        if isinstance(value, torch.utils.data.Sampler):
            yield from _samplers_in(value)


def _seed(value: Any, seed: int) -> None:
    if isinstance(value, torch.Generator):
        value.manual_seed(seed)
    elif isinstance(value, (random.Random, numpy.random.RandomState)):
        value.seed(seed)
    elif isinstance(value, numpy.random.Generator):
        kind: Any = type(value.bit_generator)
        value.bit_generator.state = kind(seed).state


@contextlib.contextmanager
def _same_random_numbers(seed: int, parts: Iterable[Any]) -> Iterator[None]:
    of_python, of_numpy, of_torch = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    for part in parts:
        for value in getattr(part, "__dict__", {}).values():
            _seed(value, seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        numpy.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
