# SPDX-License-Identifier: Apache-2.0
"""Values that the workers of a job agree on, over its servers: barrier, all_reduce, all_gather, broadcast."""
from __future__ import annotations

import sys
from typing import Any, Optional, TypeVar, Union, cast, overload

import numpy
import numpy.typing

from . import _engine
from ._job import Job, current_job
from ._store import Array

_AnyArray = TypeVar("_AnyArray", bound=Array)
_Number = Union[bool, int, float]


def barrier(*, timeout: Optional[float] = None, job: Optional[Job] = None) -> list[int]:
    """Waits until every worker of the step has called it; returns their indices, ascending.

    This applies to all collectives: a call within `Job.steps` or `Job.samples` belongs to their current step, before or after
    the pushes; outside of these it belongs to the next step, `Job.step`, and must precede the pushes of that step. All workers
    that contribute to the step make the same calls in the same order. A worker that joins takes part from its first step
    (`Job.start_step`), so make a call before the first step only `if job.start_step == 0`. The call stops waiting for a worker
    that dies once the job notices. All workers get the same bits, in whatever order they call and whichever server fails.

    Each call blocks for at most `timeout` seconds (None: as long as the other workers live, see `Handle.wait`), without the
    interpreter lock; Ctrl-C interrupts it. One call at a time.
    `job` defaults to that of the last `init`. Arrays and numbers: float32, float64, float16, bfloat16 (torch and DLPack),
    int32, int64, uint8, bool; at most 64 MiB.

    Raises PushPullError with the code
      DEADLINE_EXCEEDED    a worker has not called it yet, which the text names, or a server does not answer. Call again
                           with the same arguments to continue waiting
      INVALID_ARGUMENT     the workers' calls differ: names two workers and what each has called
      RESOURCE_EXHAUSTED   too large
      FAILED_PRECONDITION  before `Job.start`; spec.sync.mode is not Sync or has backup workers; another call is in progress
      UNAVAILABLE, ABORTED, CANCELLED  as in `Handle.wait`
    """
    return engine_for("barrier", job).barrier(timeout)


@overload
def all_reduce(value: float, op: str = ..., *, timeout: Optional[float] = ..., job: Optional[Job] = ...) -> float: ...
@overload
def all_reduce(value: _AnyArray, op: str = ..., *, timeout: Optional[float] = ..., job: Optional[Job] = ...) -> _AnyArray: ...


def all_reduce(value: Any, op: str = "sum", *, timeout: Optional[float] = None, job: Optional[Job] = None) -> Any:
    """The element-wise sum, mean, minimum or maximum of all workers' values, added in the order of their indices.

    value  an array (NumPy, torch, DLPack): C-contiguous, writable, in CPU memory, of the same shape and dtype in all
           workers; replaced by the result, and returned. Or a number: the result is returned
    op     "sum" (integers wrap around), "mean" (over workers, unweighted; not of integer arrays), "min", "max".
           bool: "max" is any, "min" is all

    A NaN makes its element NaN. float16 and bfloat16 are computed in float32 and rounded once, at the end. A weighted mean is
    the ratio of two sums: of weight x value, and of weight.

    Blocks and raises like `barrier`; TypeError (dtype) and ValueError (op, layout, device) for arguments.
    """
    engine = engine_for("all_reduce", job)
    if not _is_number(value):
        engine.all_reduce(value, op, timeout)
        return value
    array = _array_of(float(value) if op == "mean" else value)
    engine.all_reduce(array, op, timeout)
    return array[0].item()


def all_gather(value: Union[Array, _Number, bytes], *, timeout: Optional[float] = None, job: Optional[Job] = None) -> Any:
    """The values of all workers, in the order of their indices (which `barrier` returns).

    value  an array as in `all_reduce`, which may be read-only and is left unchanged: returns an array with a new first
           axis, of shape (workers, *shape): a torch tensor for a torch tensor, otherwise a NumPy array, which is float32 for
           bfloat16. A number: returns an array of shape (workers,). bytes, of any length in each worker: returns a list of
           bytes

    Blocks and raises like `barrier`; TypeError and ValueError as in `all_reduce`.
    """
    engine = engine_for("all_gather", job)
    if isinstance(value, bytes):
        return _gather_bytes(value, timeout, job)
    array = _array_of(value) if _is_number(value) else value
    workers, dtype, dims, taken = engine.all_gather(array, timeout)
    gathered = cast(Any, taken)
    shape = (len(workers),) if _is_number(value) else (len(workers), *dims)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        # NumPy changes the width of elements, because torch does not if there are none.
        return torch.from_numpy(gathered.view("int16" if dtype == "bfloat16" else dtype)).view(array.dtype).reshape(shape)
    return _numpy_of(gathered, dtype).reshape(shape)


@overload
def broadcast(value: bytes, root: Optional[int] = ..., *, timeout: Optional[float] = ..., job: Optional[Job] = ...) -> bytes: ...
@overload
def broadcast(value: float, root: Optional[int] = ..., *, timeout: Optional[float] = ..., job: Optional[Job] = ...) -> float: ...
@overload
def broadcast(value: _AnyArray, root: Optional[int] = ..., *, timeout: Optional[float] = ...,
              job: Optional[Job] = ...) -> _AnyArray: ...


def broadcast(value: Any, root: Optional[int] = None, *, timeout: Optional[float] = None, job: Optional[Job] = None) -> Any:
    """The value of one worker, in all of them.

    value  as in `all_reduce`: an array is replaced and returned; a number, of the same kind in all workers, is returned.
           Or bytes, of any length in each worker: those of `root` are returned
    root   index of the worker whose value is sent (`Job.worker`); default: the lowest that takes part

    Blocks and raises like `barrier`, and NOT_FOUND: `root` is not among the workers of this step; TypeError and ValueError as
    in `all_reduce`.
    """
    engine = engine_for("broadcast", job)
    if isinstance(value, bytes):
        return _broadcast_bytes(value, root, timeout, job)
    if not _is_number(value):
        engine.broadcast(value, root, timeout)
        return value
    array = _array_of(value)
    engine.broadcast(array, root, timeout)
    return array[0].item()


def engine_for(call: str, job: Optional[Job]) -> _engine.EngineJob:
    """Raises PushPullError FAILED_PRECONDITION if the other workers do not make the call now."""
    chosen = job or current_job()
    chosen._check_may_call(call)
    return chosen._engine


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, numpy.number, numpy.bool_))


def _array_of(number: Any) -> numpy.typing.NDArray[Any]:
    return numpy.array([number])


def _numpy_of(content: Any, dtype: str) -> numpy.typing.NDArray[Any]:
    """The bytes as values of this dtype: bfloat16, which NumPy does not have, as float32."""
    is_bfloat16 = dtype == "bfloat16"
    values: numpy.typing.NDArray[Any] = content.view("uint16" if is_bfloat16 else dtype)
    return (values.astype(numpy.uint32) << 16).view(numpy.float32) if is_bfloat16 else values


def _gather_bytes(value: bytes, timeout: Optional[float], job: Optional[Job]) -> list[bytes]:
    lengths = all_gather(numpy.array([len(value)], numpy.int64), timeout=timeout, job=job)[:, 0]
    padded = numpy.zeros(int(lengths.max()), numpy.uint8)
    padded[:len(value)] = numpy.frombuffer(value, numpy.uint8)
    rows = all_gather(padded, timeout=timeout, job=job)
    return [row[:length].tobytes() for row, length in zip(rows, lengths)]


def _broadcast_bytes(value: bytes, root: Optional[int], timeout: Optional[float], job: Optional[Job]) -> bytes:
    length = broadcast(numpy.array([len(value)], numpy.int64), root, timeout=timeout, job=job)
    content = numpy.zeros(int(length[0]), numpy.uint8)
    if len(value) == content.size:
        content[:] = numpy.frombuffer(value, numpy.uint8)
    return broadcast(content, root, timeout=timeout, job=job).tobytes()
