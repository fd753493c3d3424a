# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, read without a job."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

import numpy
import numpy.typing

from . import _engine, _program_state
from ._errors import PushPullError
from ._program_state import InSlot, Packed

Floats = numpy.typing.NDArray[Any]


class Rows(NamedTuple):
    """The rows of a row-sparse tensor that steps have pushed."""

    keys: numpy.typing.NDArray[numpy.uint64]  # ascending
    rows: numpy.typing.NDArray[numpy.float32]  # (keys, dim)


class OptimizerState(NamedTuple):
    """What an optimizer keeps for a tensor.

    rows     float32: (values kept for each element, *shape of the tensor); of a row-sparse tensor (keys, values kept, dim)
    updates  the steps that it has made; None if the optimizer, on the workers, does not say
    names    of the rows, as torch.optim has them
    """

    rows: numpy.typing.NDArray[numpy.float32]
    updates: Optional[int]
    names: tuple[str, ...]


class Position(NamedTuple):
    """The position in the data set that the workers shared."""

    epoch: int  # 0-based
    position: int  # samples of the epoch that have counted
    num_samples: int
    batch: int  # samples of a step: of each worker, or of all
    is_global_batch: bool


class Checkpoint(Mapping[str, Union[Floats, Rows]]):
    """The values of a checkpoint's tensors by name: arrays in the registered shape and dtype, Rows of row-sparse tensors.

    Each access reads the tensor's files and checks their checksums. NumPy has no bfloat16: such tensors are float32 arrays with the
    values that servers keep. What pushpull.torch keeps beside the program's tensors is left out; `optimizer_state` has a part of it.

    folder      the checkpoint's own
    job         NAMESPACE/NAME of the job that has saved it
    mode        the job's spec.sync.mode
    step        the job's next one
    written_at  seconds since 1970
    names       of the tensors, in the order in which they were registered
    position    in the data set; None if the workers did not share one

    Raises PushPullError: DATA_LOSS names the file that is damaged; use another checkpoint.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self._engine = _engine.EngineCheckpoint(os.fspath(path))
        self._tensors = {tensor.name: tensor for tensor in self._engine.tensors() if tensor.role == "value"}
        self._state: Optional[_program_state.ProgramState] = None
        self.folder = self._engine.folder
        self.job = "/".join(part for part in (self._engine.job_namespace, self._engine.job) if part)
        self.mode = self._engine.mode
        self.step = self._engine.step
        self.written_at = self._engine.written_at
        self.names = list(self._tensors)
        position = self._engine.position
        self.position = None if position is None else Position(*position)

    def __getitem__(self, name: str) -> Union[Floats, Rows]:
        tensor = self._tensors[name]
        if tensor.has_rows:
            keys, values, _, _ = self._engine.read_rows(name)
            return Rows(keys, values.reshape(len(keys), tensor.shape[-1]))
        value = numpy.empty(tensor.shape, numpy.float16 if tensor.dtype == "float16" else numpy.float32)
        self._engine.read(name, value)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"Checkpoint({self.folder!r}, step={self.step}, {len(self)} tensors)"

    def shape(self, name: str) -> tuple[int, ...]:
        """As registered; of a row-sparse tensor the expected number of rows, and dim."""
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        """As registered: "float32", "float16" or "bfloat16"."""
        return str(self._tensors[name].dtype)

    def has_rows(self, name: str) -> bool:
        """Whether the tensor is row-sparse."""
        return self._tensors[name].has_rows

    def optimizer_state(self, name: str) -> OptimizerState:
        """The optimizer's state for a tensor, wherever it ran; no rows if it keeps nothing. Raises KeyError."""
        tensor = self._tensors[name]
        state = self._state_of_program()
        if state is not None and name in state.content["tensors"]:
            return self._state_on_workers(name, state)
        count, names = tensor.state_rows, _names_of(tensor)
        if tensor.has_rows:
            keys, _, states, updates = self._engine.read_rows(name)
            return OptimizerState(states.reshape(len(keys), count, tensor.shape[-1]), updates, names)
        rows = numpy.empty((count, *tensor.shape), numpy.float32)
        for number in range(count):
            self._engine.read_optimizer_state(name, number, rows[number])
        return OptimizerState(rows, self._engine.updates(name), names)

    def _state_of_program(self) -> Optional[_program_state.ProgramState]:
        if self._state is None:
            self._state = _program_state.read(self._engine)
        return self._state

    def _state_on_workers(self, name: str, state: _program_state.ProgramState) -> OptimizerState:
        shape = self.shape(name)
        for names, optimizer in zip(state.content["names"], state.content["optimizers"]):
            kept = optimizer["state"].get(names.index(name)) if name in names else None
            if isinstance(kept, dict):
                arrays = {key: state.array(self._engine, value) for key, value in kept.items() if isinstance(value, (InSlot, Packed))}
                rows = {key: array for key, array in arrays.items() if array.shape == shape and key != "step"}
                step = arrays.get("step", kept.get("step"))
                stacked = numpy.stack([*rows.values()]) if rows else numpy.empty((0, *shape), numpy.float32)
                return OptimizerState(stacked, None if step is None else int(step), tuple(rows))
        return OptimizerState(numpy.empty((0, *shape), numpy.float32), None, ())


def load_checkpoint(path: Union[str, os.PathLike[str]]) -> Checkpoint:
    """A checkpoint, without a job: that in the folder `path` or, if that has the checkpoints of one job, in itself or in NAMESPACE/JOB,
    the newest complete one.

    Raises PushPullError: NOT_FOUND if there is none, or none that was completed; INVALID_ARGUMENT names the jobs if there are several;
    DATA_LOSS names the file that is damaged.
    """
    if not os.path.isdir(path):
        raise PushPullError(f"{os.fspath(path)}: is not a folder; expected that of a checkpoint, or of a job's checkpoints", "NOT_FOUND")
    return Checkpoint(path)


def _names_of(tensor: _engine.CheckpointTensor) -> tuple[str, ...]:
    names = {_engine.OptimizerKind.SGD: ("momentum_buffer",), _engine.OptimizerKind.ADAGRAD: ("sum",)}
    return names.get(tensor.optimizer.kind, ("exp_avg", "exp_avg_sq"))[:tensor.state_rows]
