# SPDX-License-Identifier: Apache-2.0
"""Values that one worker of a job sends to another, over its servers: send, recv, send_recv."""
from __future__ import annotations

from typing import Any, Optional, TypeVar, Union, overload

import numpy
import numpy.typing

from ._collectives import _array_of, _is_number, _numpy_of, engine_for
from ._job import Job
from ._store import Array

_AnyArray = TypeVar("_AnyArray", bound=Array)
_Value = Union[Array, float, bytes]  # float: any number


def send(value: _Value, to: int, *, timeout: Optional[float] = None, job: Optional[Job] = None) -> None:
    """Sends a value to worker `to`, which calls `recv` or `send_recv`; returns when that worker has it.

    value  an array of any shape (NumPy, torch, DLPack): C-contiguous, in CPU memory; float32, float64, float16, bfloat16
           (torch and DLPack), int32, int64, uint8 or bool. A number. Or bytes. At most 64 MiB; left unchanged
    to     index of the receiver (`Job.worker`), which must not be this worker

    This applies to all messages: sender and receiver make their calls in the same step, which is determined as in `barrier`;
    the other workers do not take part. Messages from one worker to another arrive in the order in which they were sent; those
    of other pairs, and of the opposite direction, are independent of them. The call blocks until the receiver has asked, so
    two workers that both first `send` to each other wait for each other: use `send_recv`. `timeout` and `job` are as in
    `barrier`; only one call of these and the collectives at a time.

    The failure of a server changes nothing. A worker that joins or replaces another takes part from its `Job.start_step`;
    until then it is not among the workers of the step.

    Raises like `barrier`, in particular PushPullError with the code
      DEADLINE_EXCEEDED    the other worker has not made its call yet, or a server does not answer. Call again with the same
                           arguments to continue waiting
      NOT_FOUND            the other worker is not among the workers of this step: it has left or died, or has not joined yet,
                           or was replaced meanwhile
      INVALID_ARGUMENT     the other worker is this one; or the receiver's `out` differs in type or size from what is sent:
                           names both, in both workers
    TypeError (dtype) and ValueError (layout, device, a negative index) for arguments. After an error the receiver may have
    the value.
    """
    array, label = _packed(value)
    engine_for("send", job).send(array, _index("send: to", to), label, timeout)


@overload
def recv(from_: int, *, out: _AnyArray, timeout: Optional[float] = ..., job: Optional[Job] = ...) -> _AnyArray: ...
@overload
def recv(from_: int, *, out: None = ..., timeout: Optional[float] = ..., job: Optional[Job] = ...) -> Any: ...


def recv(from_: int, *, out: Any = None, timeout: Optional[float] = None, job: Optional[Job] = None) -> Any:
    """Returns the next value that worker `from_` sends to this one: see `send`.

    out  an array (NumPy, torch, DLPack), C-contiguous, writable, in CPU memory, with the dtype and number of elements of what
         is sent: filled and returned. Without it, returns what was sent: a NumPy array of its dtype and shape (even for a
         torch tensor; float32 for bfloat16, which NumPy does not have), a number, or bytes. From a sender in C++: a
         one-dimensional array

    Blocks and raises like `send`.
    """
    received = engine_for("recv", job).recv(_index("recv: from_", from_), out, timeout)
    return out if out is not None else _unpacked(received)


@overload
def send_recv(value: _Value, to: int, from_: int, *, out: _AnyArray, timeout: Optional[float] = ...,
              job: Optional[Job] = ...) -> _AnyArray: ...
@overload
def send_recv(value: _Value, to: int, from_: int, *, out: None = ..., timeout: Optional[float] = ..., job: Optional[Job] = ...) -> Any: ...


def send_recv(value: _Value, to: int, from_: int, *, out: Any = None, timeout: Optional[float] = None, job: Optional[Job] = None) -> Any:
    """`send` to one worker and `recv` from the same or another one at the same time: for rings and swaps.

        left = pushpull.send_recv(mine, to=(job.worker + 1) % workers, from_=(job.worker - 1) % workers)

    `value` and `to` are as in `send`, `from_` and `out` as in `recv`, whose result it returns; `out` must not overlap `value`.
    Blocks until both are done, and raises like `send`: if one of them fails, it first waits for the other, and drops what was
    received.
    """
    array, label = _packed(value)
    outgoing = (array, _index("send_recv: to", to), label)
    received = engine_for("send_recv", job).send_recv(outgoing, _index("send_recv: from_", from_), out, timeout)
    return out if out is not None else _unpacked(received)


def _index(name: str, worker: int) -> int:
    if worker < 0:
        raise ValueError(f"{name}: expected the index of a worker, 0 or more, got {worker}")
    return worker


def _packed(value: Any) -> tuple[Any, str]:
    """The value as an array, and the label from which `_unpacked` restores the value."""
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
    kind, *words = label.split() or [""]  # a sender in C++ has its own label
    flat = _numpy_of(content, dtype)
    if kind == "bytes":
        return flat.tobytes()
    if kind not in ("array", "number"):
        return flat
    values = flat.view(bool) if words[0] == "bool" else flat
    return values[0].item() if kind == "number" else values.reshape([int(length) for length in words[1:]])
