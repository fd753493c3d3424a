# SPDX-License-Identifier: Apache-2.0
"""Work for an accelerator beside that of the program, and copies between its memory and that of the host."""
from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Callable, Optional, TypeVar

import torch

Result = TypeVar("Result")

ALIGNMENT = 64  # bytes: each tensor's memory on the host begins on its own cache line


class SerialThread:
    """A thread that makes calls one after the other. It may hang in one: the process can end nevertheless."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[..., Result], *arguments: Any) -> Future[Result]:
        future: Future[Result] = Future()

        def complete() -> None:
            try:
                future.set_result(call(*arguments))
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(complete)
        return future

    def _run(self) -> None:
        while True:
            self._calls.get()()


class SideStream:
    """A stream of a device, for work beside the program's. For the CPU, which has none, every call does nothing.

    Needs torch.TYPE with Stream, Event, stream and current_stream, as torch.cuda has them. Raises ValueError without.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = None
        if device.type == "cpu":
            return
        self._module = getattr(torch, device.type, None)
        missing = [name for name in ("Stream", "Event", "stream", "current_stream") if not hasattr(self._module, name)]
        if missing:
            raise ValueError(f"a parameter on {device}: torch.{device.type} has no {', '.join(missing)}; move the model to a CUDA "
                             "or ROCm device, or to the CPU")
        self._stream = self._module.Stream(device=device)

    def begin_after_current(self) -> None:
        """What is put on this stream from now on is after what the calling thread has put on its current one."""
        if self._module is not None:
            self._stream.wait_stream(self._module.current_stream(self.device))

    def end_before_current(self) -> None:
        """What the calling thread puts on its current stream from now on is after what is on this one."""
        if self._module is not None:
            self._module.current_stream(self.device).wait_stream(self._stream)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Makes it the calling thread's current stream."""
        if self._module is None:
            yield
            return
        with self._module.stream(self._stream):
            yield

    def record(self) -> Any:
        """An event on an accelerator's stream; `synchronize` blocks the host until the stream has come there."""
        # The host waits without using the CPU; only torch.cuda lets it choose.
        event = self._module.Event(**({"blocking": True} if self.device.type == "cuda" else {}))
        event.record(self._stream)
        return event


class Copies:
    """The copies of one accelerator to the host. Thread-compatible. Raises ValueError as SideStream does."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Beside the backward pass, whose later kernels would delay a copy on its own stream.
        self._stream = SideStream(device)
        self._waiting = SerialThread("pp-copies")

    def to_host(self, host: torch.Tensor, source: Optional[torch.Tensor],
                then: Callable[[], Result]) -> Future[Result]:
        """Copies `source`, as the work enqueued so far leaves it, and calls `then`, on another thread, once `host` has it.

        Never blocks if `host` is page-locked. Without `source` `host` becomes zeros; `then` is called when the work enqueued so
        far is done. `source` must not be changed before.
        """
        self._stream.begin_after_current()
        with self._stream.use():
            if source is None:
                host.zero_()
            else:
                host.copy_(source, non_blocking=True)
            done = self._stream.record()

        def wait(_: Optional[torch.Tensor]) -> Result:
            done.synchronize()
            return then()

        # `source` goes along: its device gives memory to others as soon as nothing refers to it.
        return self._waiting.submit(wait, source)


def locked_floats(count: int, device: torch.device) -> torch.Tensor:
    """Zeros of the host, float32, page-locked where torch can do that: then the device copies without the CPU.

    Raises RuntimeError of torch if the system lets it lock no more memory.
    """
    return torch.zeros(count, dtype=torch.float32, device="cpu", pin_memory=device.type == "cuda")


def lock_pages(memory: torch.Tensor, device: torch.device) -> None:
    """Page-locks memory of the host that torch has not allocated, until the process ends, where torch can do that.

    Raises RuntimeError if the system lets it lock no more memory.
    """
    if device.type != "cuda":
        return
    cuda: Any = torch.cuda
    num_bytes = memory.numel() * memory.element_size()
    with cuda.device(device):
        error = int(cuda.cudart().cudaHostRegister(memory.data_ptr(), num_bytes, 0))
    if error != 0:
        raise RuntimeError(f"cudaHostRegister: error {error} for {num_bytes} bytes; raise the limits of memory and of locked memory "
                           "(ulimit -l)")
