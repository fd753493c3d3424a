# SPDX-License-Identifier: Apache-2.0
"""The device privateuseone of torch, a stand-in for a GPU (fake_accelerator.cc), with the interface of torch.cuda.

`build(folder)` compiles it; importing this module with FAKE_ACCELERATOR=FILE in the environment loads it.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.utils import cpp_extension

SOURCE = pathlib.Path(__file__).with_suffix(".cc")
# Later versions take the device for the machine's accelerator only under another name.
DEVICE = "fake" if hasattr(torch.utils, "rename_privateuse1_backend") else "privateuseone"
IS_LOADED = "FAKE_ACCELERATOR" in os.environ


def build(folder: pathlib.Path) -> pathlib.Path:
    """The compiled stand-in, in `folder` from an earlier call if it is newer than its source."""
    library = folder / f"fake_accelerator-{torch.__version__}.so"
    if library.exists() and library.stat().st_mtime > SOURCE.stat().st_mtime:
        return library
    folder.mkdir(parents=True, exist_ok=True)
    headers = [f"-I{path}" for path in cpp_extension.include_paths()]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w",
                    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", *headers, *libraries,
                    str(SOURCE), "-o", str(library), "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
    return library


class Stream:
    def __init__(self, device: Any = None, number: Optional[int] = None) -> None:
        self.number = torch.ops.fake_accelerator.new_stream() if number is None else number

    def wait_stream(self, other: "Stream") -> None:
        event = Event()
        event.record(other)
        self.wait_event(event)

    def wait_event(self, event: "Event") -> None:
        torch.ops.fake_accelerator.wait_in_stream(self.number, event.number)

    def synchronize(self) -> None:
        torch.ops.fake_accelerator.wait_for_stream(self.number)


class Event:
    def __init__(self, **_: Any) -> None:
        self.number = torch.ops.fake_accelerator.new_event()

    def record(self, stream: Stream) -> None:
        torch.ops.fake_accelerator.record(self.number, stream.number)

    def synchronize(self) -> None:
        torch.ops.fake_accelerator.wait_for_event(self.number)


def current_stream(_: Any = None) -> Stream:
    return Stream(number=torch.ops.fake_accelerator.current_stream())


@contextlib.contextmanager
def stream(chosen: Stream) -> Iterator[None]:
    before = torch.ops.fake_accelerator.current_stream()
    torch.ops.fake_accelerator.set_stream(chosen.number)
    try:
        yield
    finally:
        torch.ops.fake_accelerator.set_stream(before)


# torch calls these of every device type.

def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def manual_seed_all(seed: int) -> None:
    """The CPU computes, with its own generator."""


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    pass


if IS_LOADED:
    if DEVICE != "privateuseone":
        torch.utils.rename_privateuse1_backend(DEVICE)
    torch.ops.load_library(os.environ["FAKE_ACCELERATOR"])
    torch._register_device_module(DEVICE, sys.modules[__name__])


# ---- wrong use, for the stand-in's own test ----

def read_without_waiting() -> None:
    values = torch.ones(3, device=DEVICE)
    with stream(Stream()):
        values.cpu()


def free_too_early() -> None:
    values, side = torch.ones(3, device=DEVICE), Stream()
    side.wait_stream(current_stream())
    with stream(side):
        values.add(1)
    del values
    torch.ones(3, device=DEVICE)


def free_host_memory() -> None:
    values = torch.empty(3, device=DEVICE)
    values.copy_(torch.ones(3), non_blocking=True)
    values.sum().item()
    values.cpu()
