# SPDX-License-Identifier: Apache-2.0
"""How the tensors of a worker's local ranks travel together, and the memory of the host that the ranks share."""
from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator

import torch

from ._devices import ALIGNMENT, lock_pages
from ._local_ranks import LocalRanks

# Small tensors travel together: each collective costs some 20 us of a GPU.
_BUCKET_BYTES = 4 << 20


class Layout:
    """Where the tensors of a bucket, all of one dtype and device, are in one flat tensor, which has an equal part for each rank.

    Attributes: `dtype`, `device`, `shapes` by name; `numel` and `num_bytes` of the whole.
    """

    def __init__(self, tensors: dict[str, torch.Tensor], ranks: int) -> None:
        first = next(iter(tensors.values()))
        self.dtype, self.device = first.dtype, first.device
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._step: int = ALIGNMENT // first.element_size()
        evenly = ranks * self._step
        self.numel = -(-sum(map(self._padded, self.shapes.values())) // evenly) * evenly
        self.num_bytes = self.numel * first.element_size()
        self._zeros = torch.zeros(self.numel - sum(shape.numel() for shape in self.shapes.values()), dtype=self.dtype, device=self.device)

    def join(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """A flat tensor of `tensors`, one for each name, and zeros."""
        parts = []
        rest = self.numel
        for tensor in tensors:
            padding = self._padded(tensor.shape) - tensor.numel()
            parts += [tensor.reshape(-1), self._zeros[:padding]]
            rest -= tensor.numel() + padding
        together: torch.Tensor = torch.cat([*parts, self._zeros[:rest]])
        return together

    def split(self, flat: torch.Tensor) -> Iterator[torch.Tensor]:
        """Views of the tensors in `flat`."""
        begin = 0
        for shape in self.shapes.values():
            yield flat[begin:begin + shape.numel()].view(shape)
            begin += self._padded(shape)

    def _padded(self, shape: torch.Size) -> int:
        return -(-shape.numel() // self._step) * self._step


class RankMemory:
    """The buckets of all tensors that the local ranks sum, and memory of the host for those on accelerators.

    All ranks of the worker have this memory, page-locked where torch can do that: each copies its part of a bucket between it and
    its accelerator, and rank 0 pushes gradients from it and receives values in it. Every rank makes it, with the same tensors.

    tensors  buffers, then parameters in the order of the forward pass

    Attributes: `layouts` of the buckets, in the order in which their gradients are complete. Raises RuntimeError of torch if the
    system lets it lock no more memory.
    """

    def __init__(self, tensors: dict[str, torch.Tensor], ranks: LocalRanks) -> None:
        self.layouts = list(_layouts(dict(reversed(tensors.items())), ranks.size))
        self._buckets: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tensors: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        on_devices = [layout for layout in self.layouts if layout.device.type != "cpu"]
        if on_devices:
            memory = ranks.share_memory(2 * sum(layout.num_bytes for layout in on_devices))
            lock_pages(torch.frombuffer(memory, dtype=torch.uint8), on_devices[0].device)
            self._divide(memory, on_devices)

    def of_bucket(self, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients and values of a bucket on an accelerator, flat."""
        return self._buckets[id(layout)]

    def of_tensor(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradient and value of a tensor on an accelerator."""
        return self._tensors[name]

    def _divide(self, memory: mmap.mmap, buckets: Iterable[Layout]) -> None:
        begin = 0
        for layout in buckets:
            gradients, values = (torch.frombuffer(memory, dtype=layout.dtype, count=layout.numel, offset=offset)
                                 for offset in (begin, begin + layout.num_bytes))
            begin += 2 * layout.num_bytes
            self._buckets[id(layout)] = gradients, values
            for name, gradient, value in zip(layout.shapes, layout.split(gradients), layout.split(values)):
                self._tensors[name] = gradient, value


def _layouts(tensors: dict[str, torch.Tensor], ranks: int) -> Iterator[Layout]:
    """Buckets of about _BUCKET_BYTES, of one dtype and device, in the order of `tensors`."""
    bucket: dict[str, torch.Tensor] = {}
    kind, num_bytes = None, 0
    for name, tensor in tensors.items():
        if bucket and (num_bytes >= _BUCKET_BYTES or (tensor.dtype, tensor.device) != kind):
            yield Layout(bucket, ranks)
            bucket, num_bytes = {}, 0
        bucket[name] = tensor
        kind = tensor.dtype, tensor.device
        num_bytes += tensor.numel() * tensor.element_size()
    if bucket:
        yield Layout(bucket, ranks)
