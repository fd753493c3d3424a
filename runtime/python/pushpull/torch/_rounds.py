# SPDX-License-Identifier: Apache-2.0
"""Gradients whose optimizers run on the workers: after each backward pass they are the workers' mean."""
from __future__ import annotations

import io
import zlib
from typing import Any, NamedTuple, Optional

import numpy
import torch

from .. import _engine
from .._collectives import all_gather, broadcast
from .._errors import PushPullError
from .._optimizers import Sum
from . import _barrier
from ._placement import Setup, check_parameter, contiguous, statistics, unique_names
from ._tensors import DTYPES, Buffer, Memory, Tensor, Waits, check_dense, to_mean

_NOBODY = 1e9  # above the index of every worker
_PIECE = 32 << 20  # bytes of a broadcast


class MeanGradient:
    """A parameter that belongs to the program, its gradient, and the copy of its value on the servers."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, setups: list[Setup]) -> None:
        self.name = name
        self.parameter = parameter
        self.setup = setups[0]
        self._setups = setups  # of the optimizers that have it; if there is none, of those whose model has it
        self.is_complete = False  # whether this backward pass has completed the gradient
        self._received: Optional[torch.Tensor] = None  # `parameter.grad` with the last mean
        self._scale = 1.0  # of the loss, by which the program's gradient is multiplied
        self._gradient: Tensor
        self._value: Tensor

    def register(self, gradient: Tensor) -> None:
        """Adds `gradient`, which receives the mean."""
        self._gradient = gradient
        gradient.register(self.setup.waits.job, Sum(), self.setup.codec, keeps_value=False)

    def register_value(self, value: Tensor) -> None:
        """Adds `value`, which begins with the parameter's."""
        self._value = value
        value.register(self.setup.waits.job, Sum(), reduce="max")  # of equal values

    def bind(self, engine: _engine.EngineJob) -> None:
        self._gradient.bind(engine)
        self._value.bind(engine)
        self.take_value(self._value.value)

    def take_value(self, value: torch.Tensor) -> None:
        with torch.no_grad():
            self.parameter.copy_(value)

    def push_value(self) -> None:
        """Pushes the parameter as it is after the last round: for the job's checkpoints and workers that join."""
        self._value.wait(self.setup.waits.timeout)
        to_mean(self._value, self.parameter.detach(), 1.0)
        self._value.end_push(self.setup.waits.timeout)  # the optimizer may change it from now on

    def wait_for_value(self) -> None:
        self._value.wait(self.setup.waits.timeout)

    def push(self, samples: float) -> Optional[torch.Tensor]:
        """Pushes `parameter.grad`. With a scaler the result is whether it is finite; if not, pushes zeros."""
        grad = None if self.is_local() else self.parameter.grad
        check_dense(self.name, grad)
        if grad is not None and grad.requires_grad:
            raise RuntimeError(f'gradient of parameter "{self.name}": backward(create_graph=True) leaves the mean of all workers, which has '
                               "no graph; call it in optimizer.no_sync(), or use torch.autograd.grad(..., create_graph=True)")
        self._gradient.wait(self.setup.waits.timeout)
        if grad is None:
            self._gradient.push(samples, 0.0, has_gradient=False)
            return None
        source, is_finite = grad.detach(), None
        scaler = self.setup.scaler
        if scaler is not None:
            self._scale = float(scaler.get_scale())
            source = source / self._scale  # scales of workers may differ
            is_finite = source.isfinite().all()
            source = torch.where(is_finite, source, torch.zeros_like(source))
        to_mean(self._gradient, source, samples)
        return is_finite

    def receive(self, is_finite: bool) -> None:
        """`parameter.grad` becomes the mean, or infinite if a gradient of any worker is not finite."""
        tensor, timeout = self._gradient, self.setup.waits.timeout
        tensor.wait(timeout)
        self.is_complete = False
        grad = self.parameter.grad
        if not tensor.has_gradient:
            return
        if grad is None:
            grad = self.parameter.grad = torch.empty_like(self.parameter)
        grad.copy_(tensor.value, non_blocking=True)
        if not is_finite:
            grad.fill_(torch.inf)
        elif self._scale != 1.0:
            grad.mul_(self._scale)
        self._received = grad

    def is_local(self) -> bool:
        """Whether its gradient stays on this worker now (`no_sync`)."""
        return all(setup.is_local() for setup in self._setups)

    def is_by_hand(self) -> bool:
        """Whether the program has set `parameter.grad` to another tensor since it received the mean."""
        return self.parameter.grad is not None and self.parameter.grad is not self._received and not self.is_local()


class Rounds:
    """The rounds of a job: each backward pass, outside of `no_sync`, is a step of the job for all its tensors.

    A round begins with the first gradient that is complete and ends with the backward pass. Optimizers run between rounds. Who
    joins begins with the values on the servers and gets the state of all optimizers from another worker in its first round.
    """

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._job = waits.job
        self._setups: list[Setup] = []
        self._gradients: dict[int, MeanGradient] = {}  # by the parameter's id
        self._buffers: list[Buffer] = []
        self._header: Tensor
        self._number = 0  # of the current round
        self._has_begun = False
        self._is_value_newer = False  # than the one on the servers
        self._has_state = True  # of the optimizers
        self._samples = 1.0
        self._are_finite: list[torch.Tensor] = []

    def add(self, setup: Setup) -> None:
        self._setups.append(setup)

    # ---- the start of the job ----

    def before_start(self) -> None:
        found: dict[int, MeanGradient] = {}
        averaged: dict[int, tuple[str, dict[str, Any], str]] = {}
        for setup in self._setups:
            for name, parameter in setup.named.items():
                if id(parameter) in found or parameter.numel() == 0 or _barrier.is_held(parameter):
                    continue
                if parameter.dtype not in DTYPES:
                    continue  # not trained so far
                found[id(parameter)] = MeanGradient(name, parameter, self._setups_of(parameter))
            for name, (owner, key) in statistics(setup.model).items():
                averaged.setdefault(id(owner[key]), (name, owner, key))
        parameters = [each.parameter for each in found.values()]
        header = torch.zeros(len(_Header._fields))
        memory = Memory(self._job, [*parameters, *parameters, *(owner[key] for _, owner, key in averaged.values()), header])
        taken = list(self._job.store.names)
        for each in found.values():
            each.name = unique_names([each.name], taken)[each.name]
            taken.append(each.name)
        # In this order they travel: what a round waits for comes first.
        for each in found.values():
            each.register(memory.tensor(f"{each.name}.gradient", torch.zeros_like(contiguous(each.parameter))))
        for each in found.values():
            each.register_value(memory.tensor(each.name, contiguous(each.parameter)))
        self._gradients = found
        for name, owner, key in averaged.values():
            unique = unique_names([name], taken)[name]
            taken.append(unique)
            mean = memory.tensor(unique, contiguous(owner[key]))
            mean.register(self._job, Sum())
            self._buffers.append(Buffer(owner, key, mean, self._waits))
            _barrier.hold(owner[key], self._buffers[-1])
        self._header = memory.tensor("pushpull-torch round", header)
        self._header.register(self._job, Sum(), reduce="min", keeps_value=False)

    def _setups_of(self, parameter: torch.nn.Parameter) -> list[Setup]:
        naming = [setup for setup in self._setups if any(each is parameter for each in setup.named.values())]
        having = [setup for setup in naming if any(each is parameter for _, each, _ in setup.trained())]
        return having or naming

    def after_start(self) -> None:
        engine = self._job._engine
        for each in self._gradients.values():
            each.bind(engine)
        for buffer in self._buffers:
            buffer.bind(engine)
        self._header.bind(engine)
        self._number = self._job.start_step
        self._has_state = self._number == 0

    # ---- a round ----

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        """A backward pass has completed the gradient of this parameter."""
        each = self._gradients.get(id(parameter))
        if each is None:
            self._check_known(parameter)
            return
        if each.is_local() or each.is_complete:  # another optimizer of the model has a hook, too
            return
        self._begin(self._job.store._weight)
        each.is_complete = True
        self._push(each)
        # Runs when the backward pass ends; the first one ends the round. One for each gradient, because a pass that an exception
        # ends runs none.
        torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def make_empty(self) -> None:
        """A round without samples."""
        for each in self._gradients.values():
            each.parameter.grad = None
        self._begin(0.0)
        self.end()

    def end(self) -> None:
        """Waits for the means. `parameter.grad` has them afterwards."""
        if not self._has_begun:
            return
        for each in self._gradients.values():
            if not each.is_complete:
                self._push(each)
        for buffer in self._buffers:
            buffer.push(self._samples)
        self._push_header()
        self._header.wait(self._waits.timeout)
        seen = _Header(*self._header.value.tolist())
        for each in self._gradients.values():
            each.receive(seen.is_finite > 0)
        for buffer in self._buffers:
            buffer.end_push()
            _barrier.await_value(buffer.buffer)
        if _barrier.has_compiled_code():
            self._receive_buffers()
        self._has_begun = False
        self._check_alike(seen)
        if seen.lacks_state < 0:
            self._share_state(int(seen.source))
        self._number += 1
        self._is_value_newer = True
        self._job._round_in_batch += self._job._has_samples
        self._job.store._has_pushed = True

    def finish(self, setup: Setup) -> None:
        """The optimizer is about to use the gradients. Makes a round if the program has set some itself (torch.autograd.grad)."""
        found = (self._gradients.get(id(parameter)) for group in setup.optimizer.param_groups for parameter in group["params"])
        if any(each is not None and each.is_by_hand() for each in found):
            self._begin(self._job.store._weight)
            self.end()

    def wait(self) -> None:
        """Blocks until the job has this worker's values, and the buffers have theirs."""
        if self._has_begun:
            return
        self.push_values()
        for each in self._gradients.values():
            each.wait_for_value()
        self._receive_buffers()

    def detach(self) -> None:
        for buffer in self._buffers:
            _barrier.release(buffer.buffer)

    def _check_known(self, parameter: torch.nn.Parameter) -> None:
        for setup in self._setups:
            for name, each in setup.named.items():
                if each is parameter:
                    check_parameter(name, parameter)

    def _begin(self, samples: float) -> None:
        if self._has_begun:
            return
        self.push_values()
        self._job._keep_samples(self._waits.timeout)
        self._has_begun, self._samples = True, samples
        self._are_finite.clear()

    def push_values(self) -> None:
        """Pushes the parameters as they are between two rounds, unless that is done."""
        if self._has_begun or not self._is_value_newer:
            return
        for each in self._gradients.values():
            each.push_value()
        self._is_value_newer = False

    def _push(self, each: MeanGradient) -> None:
        is_finite = each.push(self._samples)
        if is_finite is not None:
            self._are_finite.append(is_finite)

    def _receive_buffers(self) -> None:
        for buffer in self._buffers:
            buffer.receive()

    # ---- what the workers of a round tell each other ----

    def _push_header(self) -> None:
        settings = float(zlib.crc32(_settings_of(self._setups).encode()) & 0xFFFFFF)  # exact in float32
        before = float(self._job._round_in_batch)
        self._header.gradient.copy_(torch.tensor(_Header(
            source=float(self._job.worker) if self._has_state else _NOBODY, lacks_state=0.0 if self._has_state else -1.0,
            is_finite=float(all(map(bool, self._are_finite))), settings=settings, settings_negated=-settings,
            before=before if self._has_state else _NOBODY, before_negated=-before if self._has_state else _NOBODY)))
        self._header.push(1.0, 0.0)

    def _check_alike(self, seen: _Header) -> None:
        """Raises PushPullError if the other workers are elsewhere in their batch, or parameters would no longer be equal in all."""
        if not self._has_state and 0 < seen.before < _NOBODY:
            raise PushPullError(f"step {self._number}: this worker has joined while the others make backward pass {int(seen.before) + 1} of a "
                                "batch; end the process: its replacement joins again", "ABORTED")
        if seen.before != -seen.before_negated and seen.before < _NOBODY:
            raise PushPullError(f"step {self._number}: workers make different numbers of backward passes with a batch: {int(seen.before)} "
                                f"before this one, elsewhere {int(-seen.before_negated)}. All must make as many; a worker for which a "
                                "batch has no samples makes one: pass drop_last=True to ElasticDataLoader", "FAILED_PRECONDITION")
        if seen.lacks_state == 0 and seen.settings != -seen.settings_negated:
            self._raise_difference()

    def _share_state(self, source: int) -> None:
        """Gives parameters and optimizers as they were before this round to those who have joined."""
        if source == int(_NOBODY):  # all begin, for example from a checkpoint
            self._has_state = True
            return
        self._job._engine.use_step(self._number)  # others may have joined the step that follows
        try:
            if self._has_state:
                file = io.BytesIO()
                torch.save({"optimizers": [setup.optimizer.state_dict() for setup in self._setups],
                            "parameters": [each.parameter.detach() for each in self._gradients.values()]}, file)
                content = numpy.frombuffer(file.getvalue(), numpy.uint8).copy()
            else:
                content = numpy.zeros(0, numpy.uint8)
            length = int(broadcast(numpy.array([len(content)], numpy.int64), source, job=self._job)[0])
            received = content if self._job.worker == source else numpy.zeros(length, numpy.uint8)
            for begin in range(0, length, _PIECE):
                broadcast(received[begin:begin + _PIECE], source, job=self._job)
        finally:
            self._job._engine.use_step(None)
        if not self._has_state:
            state = torch.load(io.BytesIO(received.tobytes()), map_location="cpu", **_ANY_CONTENT)
            for setup, of_optimizer in zip(self._setups, state["optimizers"]):
                setup.optimizer.load_state_dict(of_optimizer)
            for each, value in zip(self._gradients.values(), state["parameters"]):
                each.take_value(value)
        self._has_state = True

    def _raise_difference(self) -> None:
        self._job._engine.use_step(self._number)
        try:
            every = [text.decode() for text in all_gather(_settings_of(self._setups).encode(), job=self._job)]
        finally:
            self._job._engine.use_step(None)
        others = next(text for text in every if text != every[0])
        first, other = next((a, b) for a, b in zip(every[0].splitlines(), others.splitlines()) if a != b)
        raise PushPullError(f"step {self._number}: the optimizers' settings differ between workers: {first}; elsewhere {other}. Each worker "
                            "runs the optimizer, so give all the same settings; in a worker that has joined (job.start_step above 0) make "
                            "the steps of its schedulers up to there before its first step", "FAILED_PRECONDITION")


class _Header(NamedTuple):
    """What the workers of a round tell each other: of each number all get the least."""

    source: float  # a worker that has the state of the optimizers
    lacks_state: float  # -1 if someone does
    is_finite: float  # 0 if a gradient of anyone is not
    settings: float  # a number for all hyperparameters
    settings_negated: float
    before: float  # how many rounds were made with the batch before
    before_negated: float


def _settings_of(setups: list[Setup]) -> str:
    """The hyperparameters of all optimizers, a line for each parameter group."""
    lines = []
    for setup in setups:
        for number, group in enumerate(setup.optimizer.param_groups):
            values = {key: value.item() if isinstance(value, torch.Tensor) else value for key, value in group.items() if key != "params"}
            numbers = {key: value for key, value in sorted(values.items()) if isinstance(value, (bool, int, float, tuple, list))}
            lines.append(f"{type(setup.optimizer).__name__}, parameter group {number}: {numbers}")
    return "\n".join(lines)


_ANY_CONTENT: dict[str, Any] = {"weights_only": False} if torch.__version__ >= "2" else {}
