# SPDX-License-Identifier: Apache-2.0
"""The tensors of a job."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional, Protocol, Union

import numpy
import numpy.typing

from . import _engine
from ._optimizers import Optimizer, Sum


class _HasDLPack(Protocol):
    def __dlpack__(self, *arguments: Any, **more: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


Array = Union[numpy.typing.NDArray[Any], _HasDLPack]


class Store:
    """The tensors of a job: `Job.store`.

    Thread-safe, except that the pushes of one tensor must come from one thread, in the order of their steps.
    """

    def __init__(self, engine: _engine.EngineJob) -> None:
        self._engine = engine
        self._weight = 1.0
        self._learning_rate = 0.0
        self._has_pushed = False  # since the sampler has reset it
        self._values: dict[str, Array] = {}
        self._row_dims: dict[str, int] = {}  # of row-sparse tensors
        self._handles: dict[tuple[str, str], _engine.Handle] = {}

    @property
    def names(self) -> list[str]:
        """Of the tensors that are registered so far."""
        return [*self._values, *self._row_dims]

    def register(self, name: str, value: Array, *, optimizer: Optimizer = Sum(), reduce: str = "mean", codec: str = "none",
                 keeps_value: bool = True, clip_norm: float = 0.0) -> None:
        """Adds a tensor, before `Job.start`. Never blocks.

        value        float32, float16 or bfloat16 (torch and DLPack), any shape, C-contiguous, writable. Not copied: the
                     package keeps it allocated until the job is closed. It has the initial value (that of the first worker
                     counts) and, after `Job.start`, the job's. Gradients have its dtype. Servers add in float32 and keep
                     float32 values and optimizer state, also in checkpoints; workers receive values rounded to this dtype
        optimizer    the optimizer that the servers run once per step: SGD, Adagrad, Adam, AdamW; Sum: none
        reduce       how the gradients of a step are combined: "mean" (weighted by samples), "sum", "min", "max"; and with the
                     optimizer Sum in mode Sync "prod", "and", "or" (logical: 1 where all, or any, differ from 0, else 0)
        codec        of gradients on the wire: "none", "fp16", "bf16", "int8", "topk", "onebit"; float32 tensors only
        keeps_value  `value`, and after each push_pull its `out`, stay as the library has left them. This is the job's copy
                     of last resort if a server is lost
        clip_norm    above 0: the reduced gradients of a step are scaled by min(1, clip_norm / (norm + 1e-6)), where norm is
                     the L2 norm over all tensors with a clip_norm, as torch.nn.utils.clip_grad_norm_ does. Must be equal in
                     all of them, and each worker must push all of them in every step. Mode Sync only

        Register tensors in the order in which the forward pass uses them: they travel in this order. Every worker must
        register the same ones.

        Raises TypeError (dtype) and ValueError (shape, order, name, device), which name the tensor, what was expected and
        what was passed; PushPullError FAILED_PRECONDITION after `Job.start`.
        """
        options = _engine.TensorOptions()
        options.optimizer = optimizer.spec()
        options.reduce, options.codec = reduce, codec
        options.keeps_value = keeps_value
        options.clip_norm = clip_norm
        self._engine.add(name, value, options)
        self._values[name] = value

    def register_rows(self, name: str, rows: int, dim: int, *, optimizer: Optimizer, value: Optional[Array] = None,
                      init: str = "zeros", scale: float = 0.0, seed: int = 0, evict_after: int = 0,
                      reduce: str = "mean") -> None:
        """Adds a row-sparse tensor, before `Job.start`: rows with 64-bit keys, of which a step touches a few. Never blocks.

        rows         how many rows there will be, at least 1; a part of the tensor holds at most twice its share of them. Keys may
                     be any numbers
        dim          values per row, 1 to 2,048
        optimizer    the optimizer that the servers run on the rows that a step pushes, and no others: SGD, Adagrad, Adam, AdamW.
                     Adam and AdamW work like torch.optim.SparseAdam; momentum and weight decay act on a row when it is pushed
        value        the rows with keys 0 to rows - 1: float32, shape (rows, dim), C-contiguous; those of the first worker
                     count. Read during `Job.start`, not copied before and not written. Default: every row begins as `init`
        init, scale  values of a row that has not been pushed: "zeros"; "uniform" from -scale to scale; "normal" with mean 0 and
                     standard deviation `scale`. Such a row takes no memory until its first push
        seed         for `init`: the values depend on seed, key and column alone
        evict_after  above 0: a row that has not been pushed for this many steps is removed with its optimizer state, at most an
                     eighth of that later; it begins anew with `init`
        reduce       how the gradients of a step are combined: "mean" (weighted by samples; a worker that does not push a row
                     counts as a gradient of 0) or "sum"

        No worker has a copy of the rows: use spec.servers.replication or checkpoints. Mode Sync without backup workers and
        gated steps. Every worker must register the same tensors, with the same settings.

        Raises TypeError and ValueError as in `register`; PushPullError FAILED_PRECONDITION after `Job.start`. `Job.start` raises
        INVALID_ARGUMENT for settings that do not fit each other.
        """
        options = _engine.TensorOptions()
        options.optimizer = optimizer.spec()
        options.reduce, options.init = reduce, init
        options.rows = _engine.RowSpec()
        options.rows.scale, options.rows.seed, options.rows.evict_after = scale, seed, evict_after
        self._engine.add_rows(name, (rows, dim), value, options)
        self._row_dims[name] = dim

    def push_rows(self, name: str, keys: Array, gradient: Array, *, samples: Optional[float] = None,
                  lr: Optional[float] = None) -> _engine.Handle:
        """Adds gradients of some rows to the current step of a row-sparse tensor. Never blocks on the network.

        Every worker calls it once per step, even without rows. The handle is done when the step is.

        keys         uint64, or int64 of 0 or more; shape (n,), C-contiguous; any order. Gradients of a repeated key are added up
        gradient     float32, shape (n, dim), C-contiguous. Both are read during the call
        samples, lr  as in `push_pull`

        Raises TypeError and ValueError as in `register`; PushPullError NOT_FOUND (no such tensor), INVALID_ARGUMENT (the tensor
        is dense), RESOURCE_EXHAUSTED (this many rows do not fit: register more; if they exceed the limit only together with rows
        of earlier steps or other workers, the handle raises this and the job fails), CANCELLED (this process has to end).
        """
        handle = self._engine.push_rows(name, keys, gradient, self._options(samples, lr))
        self._has_pushed = True
        self._handles[name, "push"] = handle
        return handle

    def pull_rows(self, name: str, keys: Array, out: Optional[Array] = None, *, min_step: int = 0) -> _engine.Handle:
        """Receives rows of version `min_step` or later. Never blocks on the network.

        keys      as in `push_rows`. Read during the call
        out       float32, shape (n, dim), C-contiguous, writable: rows in the order of `keys`, written until the handle is done.
                  Default: a new NumPy array. In both cases it is `Handle.rows`
        min_step  version t is the value before step t: after waiting for a push, `job.step` is the version that it made. One pull
                  of a tensor at a time

        A row that no step has pushed has its initial values; pulling it takes no memory. Errors as in `push_rows`.
        """
        handle = self._engine.pull_rows(name, keys, out, min_step)
        self._handles[name, "pull"] = handle
        return handle

    def push_pull(self, name: str, gradient: Array, out: Optional[Array] = None, *, samples: Optional[float] = None,
                  lr: Optional[float] = None, in_place: bool = False) -> _engine.Handle:
        """Adds `gradient` to the tensor's current step and receives the new value into `out`. Never blocks.

        gradient  of the registered dtype and shape. Leave it unchanged until the handle is done
        out       likewise, written until the handle is done; must not share memory with `gradient`. Default: the array that
                  was registered
        samples   weight of this gradient in the mean, 0 or from 1e-18 to 1e18; default: the step's number of samples in
                  `Job.samples`, otherwise 1
        lr        learning rate of this step; default: that of `set_learning_rate`, otherwise as registered
        in_place  parts of the new value in memory shared with a server are not copied to `out`: `Handle.pieces`. Optimizer
                  Sum, mode Sync and float32 only

        Push each tensor once in every step, with zeros where there is no gradient, or never; and all of them before you wait
        for one. Raises TypeError and ValueError as in `register`; PushPullError NOT_FOUND (no such tensor), INVALID_ARGUMENT
        (`samples` or `lr` is out of range), CANCELLED (this process has to end: end it with `Job.exit_code`), FAILED_PRECONDITION (in Sync and AllReduce: another tensor is not pushed
        in the step under way yet, or this one was left out of an earlier step; the text names it).
        """
        target = self._values.get(name) if out is None else out
        return self._push(name, gradient, target, samples, lr, in_place)

    def push(self, name: str, gradient: Array, *, samples: Optional[float] = None,
             lr: Optional[float] = None) -> _engine.Handle:
        """Like `push_pull`, but receives nothing: the handle is done when the gradient counts."""
        return self._push(name, gradient, None, samples, lr, False)

    def pull(self, name: str, out: Optional[Array] = None, *, min_step: int = 0) -> _engine.Handle:
        """Receives the value of version `min_step` or later into `out`. Never blocks; arguments and errors as in `push_pull`.

        One pull of a tensor at a time. Version t is the value before step t, so `min_step=job.step` after a push waits for that
        step.
        """
        target = self._values.get(name) if out is None else out
        handle = self._engine.pull(name, target, min_step)
        self._handles[name, "pull"] = handle
        return handle

    def pull_optimizer_state(self, name: str, out: Array, *, min_step: int = 0) -> _engine.Handle:
        """Receives the state of the tensor's optimizer on the servers into `out`. Never blocks.

        out       float32 of shape (rows, *shape of the tensor), written until the handle is done. SGD with momentum has one
                  row, the momentum buffer; Adagrad one, the sum of squares; Adam and AdamW two, exp_avg and exp_avg_sq; Sum and
                  SGD without momentum none
        min_step  as in `pull`. One pull of a tensor at a time, of its value or its state

        After wait(), `Handle.updates` is the number of steps that the optimizer has made. Save both, and continue with
        `set_optimizer_state`. Errors as in `push_pull`.
        """
        handle = self._engine.pull_optimizer_state(name, out, min_step)
        self._handles[name, "pull"] = handle
        return handle

    def set_optimizer_state(self, name: str, state: Array, updates: int) -> None:
        """Makes a tensor's optimizer continue after `updates` steps from `state`, as received by `pull_optimizer_state`.

        Call it before `Job.start`, with the same values in every worker: the state belongs to the initial value, and that of the
        first worker counts. A job restored from a checkpoint takes the state from there. `state` is read during `Job.start`,
        not copied.

        Raises TypeError and ValueError as in `register`; PushPullError NOT_FOUND (no such tensor), FAILED_PRECONDITION after
        `Job.start`.
        """
        self._engine.set_optimizer_state(name, state, updates)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate of this worker's next pushes; for a step, that of the lowest worker counts.

        Raises ValueError unless it is above 0 and finite.
        """
        if not 0 < lr < math.inf:
            raise ValueError(f"lr: expected a finite number above 0, got {lr}")
        self._learning_rate = lr

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits for everything that was pushed and pulled since the last call; `timeout` and errors as in `Handle.wait`."""
        for key in list(self._handles):
            self._handles[key].wait(timeout)
            del self._handles[key]

    def _push(self, name: str, gradient: Array, out: Optional[Array], samples: Optional[float], lr: Optional[float],
              in_place: bool) -> _engine.Handle:
        options = self._options(samples, lr)
        options.in_place = in_place
        self._has_pushed = True
        handle = self._engine.bind(name, gradient, out).push(options)
        self._handles[name, "push"] = handle
        return handle

    def _options(self, samples: Optional[float], lr: Optional[float]) -> _engine.PushOptions:
        options = _engine.PushOptions()
        options.samples = self._weight if samples is None else samples
        options.learning_rate = self._learning_rate if lr is None else lr
        return options

    def _push_nothing(self) -> None:
        """A step without samples: zeros for every tensor, no rows."""
        for name, value in self._values.items():
            self.push_pull(name, _zeros_like(value), samples=0)
        for name, dim in self._row_dims.items():
            self.push_rows(name, numpy.empty(0, numpy.uint64), numpy.empty((0, dim), numpy.float32), samples=0)


def _zeros_like(value: Array) -> Array:
    """Zeros of the same shape and dtype; NumPy has no bfloat16."""
    new_zeros: Optional[Callable[[Any], Array]] = getattr(value, "new_zeros", None)  # of torch
    shape: tuple[int, ...] = numpy.shape(value)  # type: ignore[arg-type]
    if new_zeros is not None:
        return new_zeros(shape)
    return numpy.zeros(shape, value.dtype if isinstance(value, numpy.ndarray) else numpy.float32)
