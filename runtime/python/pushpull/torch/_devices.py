# SPDX-License-Identifier: Apache-2.0
"""Copies between the memory of an accelerator and that of the host, in order with the device's other work."""
from __future__ import annotations

import concurrent.futures
from typing import Any, Callable, Optional, TypeVar

import torch

Result = TypeVar("Result")


class Copies:
    """The copies of one device. Thread-compatible.

    Needs torch.TYPE with Stream, Event, stream and current_stream, as torch.cuda has them. Raises ValueError without.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        module: Any = getattr(torch, device.type, None)
        missing = [name for name in ("Stream", "Event", "stream", "current_stream") if not hasattr(module, name)]
        if missing:
            raise ValueError(f"a parameter on {device}: torch.{device.type} has no {', '.join(missing)}; move the model to a CUDA "
                             "or ROCm device, or to the CPU")
        self._module = module
        # The host waits without using the CPU; only torch.cuda lets it choose.
        self._event_options = {"blocking": True} if device.type == "cuda" else {}
        # Beside the backward pass, whose later kernels would delay a copy on its own stream.
        self._stream = self._module.Stream(device=device)
        self._waiting = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="pp-copies")

    def to_host(self, host: torch.Tensor, source: Optional[torch.Tensor],
                then: Callable[[], Result]) -> concurrent.futures.Future[Result]:
        """Copies `source`, as the work enqueued so far leaves it, and calls `then`, on another thread, once `host` has it.

        Never blocks if `host` is page-locked. Without `source` `host` becomes zeros; `then` is called when the work enqueued so
        far is done. `source` must not be changed before.
        """
        done = self._module.Event(**self._event_options)
        self._stream.wait_stream(self._module.current_stream(self.device))
        with self._module.stream(self._stream):
            if source is None:
                host.zero_()
            else:
                host.copy_(source, non_blocking=True)
            done.record(self._stream)

        def wait(_: Optional[torch.Tensor]) -> Result:
            done.synchronize()
            return then()

        # `source` goes along: its device gives memory to others as soon as nothing refers to it.
        return self._waiting.submit(wait, source)


def locked_floats(count: int, device: torch.device) -> torch.Tensor:
    """Zeros of the host, float32, page-locked where torch can do that: then the device copies without the CPU.

    Raises RuntimeError of torch if the system lets it lock no more memory.
    """
    return torch.zeros(count, pin_memory=device.type == "cuda")
