# SPDX-License-Identifier: Apache-2.0
"""The form in which a checkpoint has the optimizers that run on the workers (torch/_saved.py writes it). Needs no torch."""
from __future__ import annotations

import io
import pickle
import zlib
from typing import Any, NamedTuple, Optional, Union

import numpy
import numpy.typing

from . import _engine
from ._errors import PushPullError

Floats = numpy.typing.NDArray[Any]

REST = "pushpull-torch optimizers"  # the tensor with what has no tensor of its own, pickled
LENGTH = 6  # its values in which the length and the checksum are written
_BEFORE_SLOTS = ("pushpull-torch round", "pushpull-torch finite")

# What optimizers keep beside numbers, texts and tensors.
_CLASSES = {("collections", "OrderedDict"), ("collections", "defaultdict"), ("builtins", "dict"), ("builtins", "list"),
            ("builtins", "set"), ("builtins", "complex")}


class InSlot(NamedTuple):
    """Stands for a tensor that has a tensor of its own in the checkpoint."""

    number: int


class Packed(NamedTuple):
    """Stands for a tensor in what is pickled."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


class _Unpickler(pickle.Unpickler):
    """Makes only objects that optimizers keep: a checkpoint may come from somebody else, and a pickle can call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("pushpull.torch._saved", "pushpull._program_state"):
            found = {"_InSlot": InSlot, "InSlot": InSlot, "_Packed": Packed, "Packed": Packed}.get(name)
            if found is not None:
                return found
        if (module, name) in _CLASSES:
            return super().find_class(module, name)
        raise PushPullError(f"the optimizers' state has an object of class {module}.{name}, which is not read from a checkpoint: only "
                            "numbers, texts, containers and tensors are. A job that is restored from it has the state", "INVALID_ARGUMENT")


class ProgramState:
    """What the program had beside the job's tensors.

    content  "step", "tensors" by name, "optimizers" (state_dict of each), in which InSlot and Packed stand for tensors, "names" of the
             parameters of each, by index, and "classes"
    slots    the names of the tensors that an InSlot stands for, by its number
    """

    def __init__(self, content: dict[str, Any], slots: list[str]) -> None:
        self.content = content
        self.slots = slots

    def array(self, engine: _engine.EngineCheckpoint, value: Union[InSlot, Packed]) -> Floats:
        """What `value` stands for; of half precision, as float32."""
        if isinstance(value, InSlot):
            name = self.slots[value.number]
            array = numpy.empty(next(tensor.shape for tensor in engine.tensors() if tensor.name == name), numpy.float32)
            engine.read(name, array)
            return array
        if value.dtype == "bfloat16":  # the upper half of a float32
            halves = numpy.frombuffer(value.content, numpy.uint16).astype(numpy.uint32)
            return (halves << 16).view(numpy.float32).reshape(value.shape)
        return numpy.frombuffer(value.content, value.dtype).reshape(value.shape)


def read(engine: _engine.EngineCheckpoint) -> Optional[ProgramState]:
    """None: no optimizer of the job ran on the workers. Raises PushPullError, DATA_LOSS, if the state is not that of the step."""
    names = [tensor.name for tensor in engine.tensors()]
    if REST not in names:
        return None
    shape = next(tensor.shape for tensor in engine.tensors() if tensor.name == REST)
    numbers = numpy.empty(shape, numpy.float32)
    engine.read(REST, numbers)
    content = from_numbers(numbers)
    state = _Unpickler(io.BytesIO(content)).load() if content else {}
    if state.get("step") != engine.step:
        raise PushPullError(f"{engine.folder}: lacks the optimizers' state of step {engine.step}, which the workers have not pushed; use "
                            "another checkpoint", "DATA_LOSS")
    state.setdefault("names", [])  # those written by early versions lack them
    state.setdefault("classes", [])
    first = 1 + max(names.index(name) for name in _BEFORE_SLOTS if name in names)
    return ProgramState(state, names[first:names.index(REST)])


def from_numbers(numbers: numpy.typing.NDArray[numpy.float32]) -> bytes:
    """Empty: nothing was written, or something else."""
    head = sum(int(value) << 16 * place for place, value in enumerate(numbers[:LENGTH].tolist()))
    length = head & (1 << 64) - 1
    pairs = numbers[LENGTH:LENGTH + (length + 1) // 2].astype(numpy.uint16)
    content = pairs.tobytes()[:length]
    return content if zlib.crc32(content) == head >> 64 else b""
