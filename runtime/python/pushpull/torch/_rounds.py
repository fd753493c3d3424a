# SPDX-License-Identifier: Apache-2.0
"""Gradients whose optimizers run on the workers: after each backward pass they are the workers' mean."""
from __future__ import annotations

import enum
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
from ._saved import SavedState, load, pack, state_of, unpack
from ._tensors import DTYPES, Buffer, Memory, Tensor, Waits, check_dense, to_mean

_PLAIN: Any = {"dtype": torch.float32, "device": "cpu"}  # whatever the program's default is
_NOBODY = 1e9  # above the number of passes of any worker
_FINGERPRINT_EVERY = 8  # rounds
_ALIKE = 1e-4  # processors may round differently
_SMALL = 1e-3  # magnitude of an element below which rounding may be a larger part
_NO_FINGERPRINT, _NOT_FINITE = 3e38, 1e38  # above every sum of magnitudes
_PIECE = 32 << 20  # bytes of a broadcast
_COUNTERS = 64  # elements; a larger buffer of integers or truth values is a constant, such as a mask


class MeanGradient:
    """A parameter that belongs to the program, and its gradient, the workers' mean of which is received."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, setups: list[Setup]) -> None:
        self.name = name
        self.parameter = parameter
        self.setup = setups[0]
        self._setups = setups  # of the optimizers that have it; if there is none, of those whose model has it
        self.is_complete = False  # whether this backward pass has completed the gradient
        self._received: Optional[torch.Tensor] = None  # `parameter.grad` with the last mean
        self._pushed: Optional[tuple[torch.Tensor, int]] = None  # `parameter.grad` and its version then
        self._scale = 1.0  # of the loss, by which the program's gradient is multiplied
        self._gradient: Tensor

    def register(self, gradient: Tensor) -> None:
        """Adds `gradient`, which receives the mean."""
        self._gradient = gradient
        gradient.register(self.setup.waits.job, Sum(), self.setup.codec)

    def bind(self, engine: _engine.EngineJob) -> None:
        self._gradient.bind(engine)

    def push(self, samples: float) -> Optional[torch.Tensor]:
        """Pushes `parameter.grad`. With a scaler the result is whether it is finite; if not, pushes zeros."""
        grad = None if self.is_local() else self.parameter.grad
        check_dense(self.name, grad)
        if grad is not None and grad.requires_grad:
            raise RuntimeError(f'gradient of parameter "{self.name}": backward(create_graph=True) leaves the mean of all workers, which has '
                               "no graph; call it in optimizer.no_sync(), or use torch.autograd.grad(..., create_graph=True)")
        self._gradient.wait(self.setup.waits.timeout)
        self._pushed = None if grad is None else (grad, grad._version)
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
        self._check_unchanged()
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

    def _check_unchanged(self) -> None:
        """Raises RuntimeError if the backward pass has changed the gradient since it was sent."""
        pushed, self._pushed = self._pushed, None
        if pushed is not None and (self.parameter.grad is not pushed[0] or pushed[0]._version != pushed[1]):
            raise RuntimeError(f'gradient of parameter "{self.name}": a hook that was registered after DistributedOptimizer, or a backward '
                               "pass within the backward pass (checkpoint with use_reentrant=True), has changed it after it had been sent: "
                               "register hooks before DistributedOptimizer, or change gradients after backward(), which then are the "
                               "workers' mean")

    @property
    def has_gradient(self) -> bool:
        """Whether any worker had one in the last round."""
        return self._gradient.has_gradient

    def is_local(self) -> bool:
        """Whether its gradient stays on this worker now (`no_sync`)."""
        return all(setup.is_local() for setup in self._setups)

    def is_by_hand(self) -> bool:
        """Whether the program has set `parameter.grad` to another tensor since it received the mean."""
        return self.parameter.grad is not None and self.parameter.grad is not self._received and not self.is_local()


class _Sharing(enum.IntEnum):
    """When a worker shares the state, or that it lacks it."""

    LACKING = 0
    AT_START = 1  # of the job
    BEFORE_CALL = 2  # of all workers, between two steps
    IN_ROUND = 3


class Rounds:
    """The rounds of a job: each backward pass, outside of `no_sync`, is a step of the job for all its tensors.

    A round begins with the first gradient that is complete and ends with the backward pass. Optimizers run between rounds. Who
    joins gets parameters and optimizers from another worker, which waits in this one's first round: see `_join`.
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
        self._saved: SavedState
        self._is_saved = True  # whether what the program has after the last round is pushed
        self._noted: dict[str, torch.Tensor] = {}  # counters as they were then
        self._has_state = True  # parameters and optimizers are those of the job
        self._seen: Optional[_Header] = None  # of a round that has not begun, if this worker has joined in it
        self._introduced = -1  # the last round whose header is pushed
        self._shared_before = -1  # the last round before which workers were asked whether they lack the state
        self._finite: Optional[Tensor] = None  # with a scaler: whether the gradients of all workers are
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
        header, finite = (torch.zeros(size, **_PLAIN) for size in (len(_Header._fields) + 2 * len(found), 1))
        memory = Memory(self._job, [*parameters, *(owner[key] for _, owner, key in averaged.values()), header, finite])
        taken = list(self._job.store.names)
        for each in found.values():
            each.name = unique_names([each.name], taken)[each.name]
            taken.append(each.name)
            each.register(memory.tensor(f"{each.name}.gradient", torch.zeros_like(contiguous(each.parameter))))
        self._gradients = found
        for name, owner, key in averaged.values():
            unique = unique_names([name], taken)[name]
            taken.append(unique)
            mean = memory.tensor(unique, contiguous(owner[key]))
            mean.register(self._job, Sum())
            self._buffers.append(Buffer(owner, key, mean, self._waits))
            _barrier.hold(owner[key], self._buffers[-1])
        self._header = memory.tensor("pushpull-torch round", header)
        self._header.register(self._job, Sum(), reduce="min")
        if any(setup.scaler is not None for setup in self._setups):
            self._finite = memory.tensor("pushpull-torch finite", finite)
            self._finite.register(self._job, Sum(), reduce="min")
        self._saved = SavedState(self._job, self._setups, self._parameters(), self._counters())
        self._saved.register()

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {each.name: each.parameter for each in self._gradients.values()}

    def _counters(self) -> dict[str, torch.Tensor]:
        """By name, buffers that have no mean, such as of batch norm's batches."""
        models = [setup.model for setup in self._setups if setup.model is not None]
        return {name: buffer for model in models for name, buffer in model.named_buffers()
                if not buffer.is_floating_point() and buffer.numel() <= _COUNTERS}

    def _note_counters(self) -> None:
        """The next forward pass changes them, and is a part of the next round."""
        self._noted = {name: counter.clone() for name, counter in self._counters().items()}

    def _setups_of(self, parameter: torch.nn.Parameter) -> list[Setup]:
        naming = [setup for setup in self._setups if any(each is parameter for each in setup.named.values())]
        having = [setup for setup in naming if any(each is parameter for _, each, _ in setup.trained())]
        return having or naming

    def after_start(self) -> None:
        engine = self._job._engine
        try:
            engine.check_state()
        except PushPullError as error:
            raise PushPullError(f'optimizer_on="workers": {error}. Leave out spec.sync.gated, backupWorkers and other modes, or pass '
                                'optimizer_on="servers" with SGD, Adagrad, Adam or AdamW', error.code) from None
        for each in self._gradients.values():
            each.bind(engine)
        for buffer in self._buffers:
            buffer.bind(engine)
        self._header.bind(engine)
        if self._finite is not None:
            self._finite.bind(engine)
        self._saved.bind(engine)
        self._number = self._job.start_step
        self._note_counters()
        if self._number == 0:
            self._saved.take_values()
            self._share_state(_Sharing.AT_START)
        else:
            self._join()
        self._note_counters()

    def _join(self) -> None:
        """Begins with what another worker has, which waits for this one in the round; if all begin, with what a checkpoint has."""
        self._has_state = False
        self._push_header()
        sharing = self._share_state()
        if sharing != _Sharing.BEFORE_CALL:  # else they are between two steps, and their headers come later
            self._seen = self._receive_header()
        if self._seen is not None and 0 < self._seen.before < _NOBODY:
            raise PushPullError(f"step {self._number}: this worker has joined while the others make backward pass {int(self._seen.before) + 1} "
                                "of a batch; end the process: its replacement joins again", "ABORTED")
        if sharing == _Sharing.LACKING and not self._saved.restore(self._number):
            why = (f"step {self._number}: the parameters and the optimizer's state are lost: they were in the workers, which have all been "
                   "lost at once. All members of the job start again, from its newest checkpoint (spec.checkpoint)")
            self._job._ask_for_restart(why)
            raise PushPullError(why, "DATA_LOSS")
        self._has_state = True
        self._job._engine.use_step(self._number)  # until the round begins: its header is pushed

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

    def before_call(self) -> None:
        """The program is about to make a call of all workers. A worker that has joined waits for the state, and cannot make it before."""
        step = self._job._step_in_use
        if self._job._has_samples and not self._has_begun and step in (None, self._number) and self._shared_before < self._number:
            self._share_state(_Sharing.BEFORE_CALL)

    def check_whole(self, call: str) -> None:
        """Raises RuntimeError if an exception has cut off the backward pass of the round."""
        if self._has_begun and not _is_in_backward():
            raise RuntimeError(f"{call}: an exception ended the backward pass of step {self._number} after some of its gradients had been "
                               "sent, and the other workers wait for the rest: let the exception end the process, or run a backward pass "
                               "that may fail in optimizer.no_sync()")

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
        if self._finite is not None:
            self._finite.gradient.fill_(float(all(map(bool, self._are_finite))))
            self._finite.push(1.0, 0.0)
        if self._seen is None:
            self._seen = self._receive_header()
            if self._seen.lacks_state < 0 and self._shared_before < self._number:
                self._share_state()  # who has joined computes its gradients with it
        seen, self._seen = self._seen, None
        is_finite = self._are_all_finite()
        for each in self._gradients.values():
            each.receive(is_finite)
        for buffer in self._buffers:
            buffer.end_push()
            _barrier.await_value(buffer.buffer)
        if _barrier.has_compiled_code():
            self._receive_buffers()
        self._has_begun = False
        self._check_alike(seen)
        self._number += 1
        self._is_saved = False
        self._note_counters()
        self._job._round_in_batch += self._job._has_samples
        self._job.store._has_pushed = True

    def finish(self, setup: Setup) -> None:
        """The optimizer is about to use the gradients. Makes a round if the program has set some itself (torch.autograd.grad)."""
        found = (self._gradients.get(id(parameter)) for group in setup.optimizer.param_groups for parameter in group["params"])
        if any(each is not None and each.is_by_hand() for each in found):
            self._begin(self._job.store._weight)
            self.end()

    def wait(self) -> None:
        """Blocks until the buffers have the workers' mean, and what was pushed for a checkpoint has arrived."""
        if self._has_begun:
            return
        self._saved.wait(self._waits.timeout)
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
        self.push_state()
        self._job._keep_samples(self._waits.timeout)
        self._has_begun, self._samples = True, samples
        if self._introduced < self._number:
            self._push_header()
        else:  # when this worker joined
            self._job._engine.use_step(self._job._step_in_use)
        self._are_finite.clear()

    def push_state(self, is_last: bool = False) -> None:
        """For checkpoints: what the program has between two rounds. `is_last`: no further round is expected."""
        if is_last and self._introduced == self._number and not self._has_begun:  # it has joined in a round that the program does not make
            self.make_empty()
            is_last = not any(each.has_gradient for each in self._gradients.values())  # else it lacks the optimizer's step
        if self._has_begun or self._is_saved:
            return
        self._saved.push(self._number - 1, self._job._engine.take_save(is_last), self._noted, self._waits.timeout)
        self._is_saved = True

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
        self._header.gradient[:len(_Header._fields)] = torch.tensor(_Header(
            lacks_state=0.0 if self._has_state else -1.0, settings=settings, settings_negated=-settings,
            before=before if self._has_state else _NOBODY, before_negated=-before if self._has_state else _NOBODY), **_PLAIN)
        self._fingerprint(self._header.gradient[len(_Header._fields):].view(2, -1))
        self._introduced = self._number
        self._header.push(1.0, 0.0)

    def _fingerprint(self, sums: torch.Tensor) -> None:
        """In some rounds, and in the last one of an epoch, the sum of each parameter's magnitudes, and its negative."""
        if not self._has_state or (self._number % _FINGERPRINT_EVERY and not self._job._ends_epoch):
            sums.fill_(_NO_FINGERPRINT)
            return
        with torch.no_grad():
            of_each = torch._foreach_norm([each.parameter.detach() for each in self._gradients.values()], 1)
            for place, each in enumerate(of_each):
                sums[0, place] = each
        sums[0].nan_to_num_(_NOT_FINITE, _NOT_FINITE).clamp_(max=_NOT_FINITE)
        torch.neg(sums[0], out=sums[1])

    def _check_equal(self) -> None:
        """Raises PushPullError if a parameter differs between workers."""
        least, negated = self._header.value[len(_Header._fields):].view(2, -1)
        if not self._gradients or least[0] >= _NO_FINGERPRINT:
            return
        sizes = torch.tensor([each.parameter.numel() for each in self._gradients.values()], **_PLAIN)
        difference, allowed = -negated - least, _ALIKE * (_SMALL * sizes - negated)
        place = int((difference / allowed).argmax())
        if difference[place] > allowed[place]:
            name = list(self._gradients.values())[place].name
            text = (f'step {self._number}: parameter "{name}" differs between workers, by {float(-difference[place] / negated[place]):.1g} of the '
                    "sum of its magnitudes: one worker has changed a parameter, a gradient or the optimizer's state in a way of its own (random "
                    "numbers, a condition on its index or its own loss). Make the same changes in all workers")
            self._job._end_for_good(text)
            raise PushPullError(text, "FAILED_PRECONDITION")

    def _receive_header(self) -> _Header:
        self._header.wait(self._waits.timeout)
        return _Header(*self._header.value[:len(_Header._fields)].tolist())

    def _are_all_finite(self) -> bool:
        if self._finite is None:
            return True
        self._finite.wait(self._waits.timeout)
        return bool(self._finite.value > 0)

    def _check_alike(self, seen: _Header) -> None:
        """Raises PushPullError if the other workers are elsewhere in their batch, or parameters would no longer be equal in all."""
        if seen.lacks_state == 0:
            self._check_equal()
        if seen.before != -seen.before_negated and seen.before < _NOBODY:
            raise PushPullError(f"step {self._number}: workers make different numbers of backward passes with a batch: {int(seen.before)} "
                                f"before this one, elsewhere {int(-seen.before_negated)}. All must make as many; a worker for which a "
                                "batch has no samples makes one: pass drop_last=True to ElasticDataLoader", "FAILED_PRECONDITION")
        if seen.lacks_state == 0 and seen.settings != -seen.settings_negated:
            self._raise_difference()

    def _share_state(self, when: _Sharing = _Sharing.IN_ROUND) -> _Sharing:
        """Gives parameters and optimizers as they are before this round to those who lack them. Returns when those who have them do,
        LACKING if nobody has.

        At the start of the job those of the first worker count, and each has an optimizer of its own.
        """
        engine, timeout = self._job._engine, self._waits.timeout
        content, is_start = numpy.zeros(0, numpy.uint8), when == _Sharing.AT_START
        self._shared_before = self._number
        engine.use_step(self._number)  # others may have joined the step that follows
        try:
            while True:
                own = when if self._has_state else _Sharing.LACKING
                workers, _, _, gathered = engine.all_gather(numpy.array([own], numpy.uint8), timeout)
                states = dict(zip(workers, map(_Sharing, numpy.asarray(gathered).tolist())))
                having = [worker for worker, state in states.items() if state != _Sharing.LACKING]
                if not having:
                    return _Sharing.LACKING
                if len(having) == len(workers) and (not is_start or len(workers) == 1):
                    return when
                if having[0] == self._job.worker:
                    content = self._pack(is_start)
                try:
                    received = self._broadcast(content, having[0])
                    break
                except PushPullError as error:
                    if error.code != "NOT_FOUND":  # the worker has died: another one has it
                        raise
        finally:
            engine.use_step(self._job._step_in_use)
        if having[0] != self._job.worker and (is_start or not self._has_state):
            load(self._setups, {**self._parameters(), **self._counters()}, unpack(received.tobytes()))
        return states[having[0]]

    def _pack(self, is_start: bool) -> Any:
        state = state_of(self._setups, self._parameters(), self._noted)
        if is_start:
            state["optimizers"] = []
        return numpy.frombuffer(bytearray(pack(state)), numpy.uint8)

    def _broadcast(self, content: Any, source: int) -> Any:
        length = int(broadcast(numpy.array([len(content)], numpy.int64), source, timeout=self._waits.timeout, job=self._job)[0])
        received = content if self._job.worker == source else numpy.zeros(length, numpy.uint8)
        for begin in range(0, length, _PIECE):
            broadcast(received[begin:begin + _PIECE], source, timeout=self._waits.timeout, job=self._job)
        return received

    def _raise_difference(self) -> None:
        self._job._engine.use_step(self._number)
        try:
            every = [text.decode() for text in all_gather(_settings_of(self._setups).encode(), job=self._job)]
        finally:
            self._job._engine.use_step(self._job._step_in_use)
        others = next(text for text in every if text != every[0])
        first, other = next((a, b) for a, b in zip(every[0].splitlines(), others.splitlines()) if a != b)
        raise PushPullError(f"step {self._number}: the optimizers' settings differ between workers: {first}; elsewhere {other}. Each worker "
                            "runs the optimizer, so give all the same settings, and call step() in all or in none. In a worker that has "
                            "joined (job.start_step above 0) make the steps of its schedulers up to there before its first step. If "
                            "schedulers step once a batch, pass drop_last=True to ElasticDataLoader: a worker for which a step has no "
                            "samples does not run the loop's body",
                            "FAILED_PRECONDITION")


class _Header(NamedTuple):
    """What the workers of a round tell each other: of each number all get the least."""

    lacks_state: float  # -1 if someone does: who has joined
    settings: float  # a number for all hyperparameters
    settings_negated: float
    before: float  # how many rounds were made with the batch before
    before_negated: float


def _is_in_backward() -> bool:
    current: Any = getattr(getattr(torch, "_C"), "_current_graph_task_id", None)  # torch 2; before, no hook could call the optimizer
    return current is not None and current() != -1


def _settings_of(setups: list[Setup]) -> str:
    """The hyperparameters of all optimizers, a line for each parameter group, and how many steps they have made."""
    lines = []
    for setup in setups:
        lines.append(f"{type(setup.optimizer).__name__}, steps: {setup.num_steps}")
        for number, group in enumerate(setup.optimizer.param_groups):
            values = {key: value.item() if isinstance(value, torch.Tensor) else value for key, value in group.items() if key != "params"}
            numbers = {key: value for key, value in sorted(values.items()) if isinstance(value, (bool, int, float, tuple, list))}
            lines.append(f"{type(setup.optimizer).__name__}, parameter group {number}: {numbers}")
    return "\n".join(lines)
