# SPDX-License-Identifier: Apache-2.0
"""Values that one worker of a job sends to another, over its servers: send, recv, send_recv."""
from __future__ import annotations

from typing import Any, Optional, TypeVar, Union, overload

import numpy
import numpy.typing

from ._collectives import _array_of, _is_number
from ._job import Array, Job, current_job

_AnyArray = TypeVar("_AnyArray", bound=Array)
_Value = Union[Array, float, bytes]  # float: any number


def send(value: _Value, to: int, *, timeout: float = 60.0, job: Optional[Job] = None) -> None:
    """Sends a value to worker `to`, which calls `recv` or `send_recv`; returns when that worker has it.

    value  an array of any shape (NumPy, torch, DLPack): C-contiguous, in the memory of the CPU; float32, float64, int32,
           int64, uint8 or bool. A number. Or bytes. 64 MiB at most; left unchanged
    to     index of the receiver (`Job.worker`), another one than this worker's

    All messages: sender and receiver make their calls in the same step, which is told as in `barrier`; the other workers do
    not take part. The messages of one worker to another arrive in the order in which they were sent; those of other pairs, and
    of the opposite direction, are independent of them. The call blocks until the receiver has asked, so two workers that
    both `send` to each other first wait until their timeouts: use `send_recv`. `timeout` and `job` as in `barrier`; one call
    of these and the collectives at a time.

    A server that dies meanwhile changes nothing. A worker that joins or replaces another takes part from its
    `Job.start_step` on; until then it is not among the workers of the step.

    Raises as `barrier`, in particular PushPullError with the code
      DEADLINE_EXCEEDED    the other worker has not made its call yet, or a server does not answer. Call again with the same
                           arguments to wait on
      NOT_FOUND            the other worker is not among the workers of this step: it has left or died, or has not joined yet,
                           or was replaced meanwhile
      INVALID_ARGUMENT     the other worker is this one; or the receiver's `out` has another type or size than what is sent:
                           names both, in both workers
    TypeError (dtype) and ValueError (layout, device, a negative index) for arguments. After an error the receiver may have the value.
    """
    array, label = _packed(value)
    (job or current_job())._engine.send(array, _index("send: to", to), label, timeout)


@overload
def recv(from_: int, *, out: _AnyArray, timeout: float = ..., job: Optional[Job] = ...) -> _AnyArray: ...
@overload
def recv(from_: int, *, out: None = ..., timeout: float = ..., job: Optional[Job] = ...) -> Any: ...


def recv(from_: int, *, out: Any = None, timeout: float = 60.0, job: Optional[Job] = None) -> Any:
    """Returns the next value that worker `from_` sends to this one: see `send`.

    out  an array (NumPy, torch, DLPack), C-contiguous, writable, in the memory of the CPU, of the dtype and number of
         elements that are sent: filled and returned. Without one, of what was sent: a NumPy array of its dtype and shape
         (also for a torch tensor), a number, or bytes. Of a sender in C++: an array of one dimension

    Blocks and raises as `send`.
    """
    received = (job or current_job())._engine.recv(_index("recv: from_", from_), out, timeout)
    return out if out is not None else _unpacked(received)


@overload
def send_recv(value: _Value, to: int, from_: int, *, out: _AnyArray, timeout: float = ...,
              job: Optional[Job] = ...) -> _AnyArray: ...
@overload
def send_recv(value: _Value, to: int, from_: int, *, out: None = ..., timeout: float = ..., job: Optional[Job] = ...) -> Any: ...


def send_recv(value: _Value, to: int, from_: int, *, out: Any = None, timeout: float = 60.0, job: Optional[Job] = None) -> Any:
    """`send` to one worker and `recv` from one at the same time, the same or another: for rings and swaps.

        left = pushpull.send_recv(mine, to=(job.worker + 1) % workers, from_=(job.worker - 1) % workers)

    `value` and `to` as in `send`, `from_` and `out` as in `recv`, whose result it returns; `out` does not overlap `value`.
    Blocks until both are done, and raises as `send`: where one of them fails, the other one is awaited first, and what came is
    dropped.
    """
    array, label = _packed(value)
    outgoing = (array, _index("send_recv: to", to), label)
    received = (job or current_job())._engine.send_recv(outgoing, _index("send_recv: from_", from_), out, timeout)
    return out if out is not None else _unpacked(received)


def _index(name: str, worker: int) -> int:
    if worker < 0:
        raise ValueError(f"{name}: expected the index of a worker, 0 or more, got {worker}")
    return worker


def _packed(value: Any) -> tuple[Any, str]:
    """The value as an array, and what makes it of the array again."""
    if isinstance(value, bytes):
        return numpy.frombuffer(value, numpy.uint8), "bytes"
    if _is_number(value):
        array = _array_of(value)
        return array, f"number {array.dtype}"
    shape = getattr(value, "shape", None)
    if shape is None:
        return value, ""
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return value, f"array {dtype} {' '.join(str(int(length)) for length in shape)}"


def _unpacked(received: tuple[str, Any, str]) -> Any:
    dtype, content, label = received
    kind, *words = label.split() or [""]  # a sender in C++ has a label of its own
    flat: numpy.typing.NDArray[Any] = content.view(dtype)
    if kind == "bytes":
        return flat.tobytes()
    if kind not in ("array", "number"):
        return flat
    values = flat.view(bool) if words[0] == "bool" else flat
    return values[0].item() if kind == "number" else values.reshape([int(length) for length in words[1:]])
