# SPDX-License-Identifier: Apache-2.0
"""State of the program's own that belongs to the job: who joins or resumes begins with it."""
from __future__ import annotations

import logging
import pickle
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import numpy

from . import _engine
from ._errors import PushPullError
from ._optimizers import Sum

if TYPE_CHECKING:
    from ._job import Job

_TENSOR = "pushpull-state"
_BYTES_LEAST = 4096
_BYTES_MOST = 256 << 10
_HEAD_BYTES = 8  # length and checksum
_WORKERS_MAX = 4096  # of a job


class State:
    """What the program keeps beside the job's tensors: schedulers, scalers, the best value so far, random generators.

        state = pushpull.State(scheduler=scheduler, best=math.inf, bad=0)
        for epoch in loader.epochs():
            for images, labels in loader: ...
            state.bad = 0 if value < state.best else state.bad + 1

    Each keyword is an entry. Numbers, text and tuples are read and set as attributes. Of an object the state is kept, and set in the
    object itself: `state_dict` (of a scheduler with the settings of its optimizer's parameter groups), `getstate` or `get_state` (the
    module random, torch.Generator), the content of a dictionary, list, set, array or small tensor, or else its attributes. All of it
    must be what pickle takes.

    A schedule that is as long as the job (OneCycleLR with total_steps) keeps its last value if the job makes a step more.

    Every step of the job keeps the entries as they are when the step's samples are asked for to be replaced by those of the next: at
    the end of the loop's body. A worker that joins, replaces another or resumes from a checkpoint has those of the step before its
    first one, from `Job.start` on. What stands after the loop over an epoch's samples runs again in a worker that begins there, so its
    changes are not lost. If the workers' values differ, those of the lowest worker are kept; in Async and Bounded, which have no common
    steps, those of whoever made the last one. A worker that has missed steps (backup workers) has those of the others from then on.

    Make it after `init` and before the job starts, once, with the same entries in every worker. It goes with ElasticDataLoader,
    ElasticSampler, `Job.steps` and `Job.samples`; with several local ranks in mode Sync without backup workers and gated steps. Entries
    are pickled in each step, and may have 256 KiB together: the state of an optimizer belongs to DistributedOptimizer, and tensors of
    the size of a parameter to the job's store.

    Raises PushPullError FAILED_PRECONDITION (there is no job, it has started, or it has a State), TypeError (an entry without a state),
    ValueError (too large), and AttributeError (an entry that was not declared; or setting one that is an object: change the object).
    With gated steps and backup workers and in AllReduce a step is over when all of it has been sent, the state too. There the loop
    raises FAILED_PRECONDITION if its body changes an entry after it has read a parameter behind `optimizer.step()`.
    """

    _job: Job
    _entries: dict[str, Any]

    def __init__(self, **entries: Any) -> None:
        from ._job import current_job  # pylint: disable=import-outside-toplevel  # which imports this module
        job = current_job()
        if job._has_started:
            raise PushPullError("State(): the job has started: make it before the first batch", "FAILED_PRECONDITION")
        if job._state is not None:
            raise PushPullError("State(): the job has one: make one with all entries", "FAILED_PRECONDITION")
        for name, entry in entries.items():
            if not isinstance(entry, _VALUES) and _access_of(entry) is None:
                raise TypeError(f"State: {name}: a {type(entry).__name__} has neither state_dict() nor attributes that could be kept; keep "
                                "its values")
        for entry in entries.values():
            _let_pass_its_end(entry)
        self.__dict__.update(_job=job, _entries=dict(entries), _kept=_Kept(job), _has_whole_steps=False, _of_step=None, _is_behind=False)
        self._kept.register(self._pack())
        job._state = self

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_entries"][name]
        except KeyError:
            raise AttributeError(f"State has no entry {name}: name it in State({name}=...)") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._entries:
            raise AttributeError(f"State has no entry {name}: name it in State({name}=...), where it gets its first value")
        if not isinstance(self._entries[name], (*_VALUES, dict, set, list)):
            raise AttributeError(f"State: {name} is an object whose state is kept: change the object, or load another state into it")
        self._entries[name] = value

    # ---- what the job calls ----

    def _begin(self) -> None:
        """The job has started: takes what it has kept, unless it begins now."""
        job = self._job
        if job.local_rank == 0:
            self.__dict__["_has_whole_steps"] = job._engine.has_whole_steps()
            if self._has_whole_steps and job.local_ranks > 1:
                raise PushPullError("State: with several local ranks it needs spec.sync.mode Sync without backupWorkers and gated: leave these "
                                    "out, or State", "FAILED_PRECONDITION")
            self._kept.bind(job._engine, self._has_whole_steps)
        if job.start_step > 0 and not self._take():
            logging.getLogger("pushpull").warning("step %d: the job has no State of the step before it; that of this program begins anew",
                                                  job.start_step)

    def _push(self) -> None:
        """For the step under way, whose body has run, or waits for the values of the step."""
        content = self._pack()
        if self._of_step is not None:
            self._check_unchanged(content)
            return
        self.__dict__["_of_step"] = content
        if self._job.local_rank == 0:
            self._kept.push(content)

    def _follow(self) -> None:
        """For a step under way that has no samples for this worker, whose body therefore does not run: takes what others make of it."""
        if not self._kept.is_awaited:
            self._kept.receive()

    def _end_step(self) -> None:
        """The step is over."""
        job = self._job
        self.__dict__["_of_step"] = None
        has_missed_steps = self._has_whole_steps and job.step != job._last_step + 1
        # What the others did between two epochs is in their state, and this program is yet to do it.
        self.__dict__["_is_behind"] = has_missed_steps and job._has_samples and job._engine.samples().position > 0
        if self._kept.is_awaited or (has_missed_steps and not self._is_behind):
            self._kept.is_awaited = False
            self._take()

    def _begin_step(self) -> None:
        if self._is_behind:
            self.__dict__["_is_behind"] = False
            self._take()

    def _check_unchanged(self, content: bytes) -> None:
        """Raises PushPullError if the body has changed an entry since the step had to be sent with those that were."""
        if content == self._of_step:
            return
        before = pickle.loads(self._of_step)
        changed = next((name for name, entry in pickle.loads(content).items() if pickle.dumps(entry) != pickle.dumps(before[name])), "")
        raise PushPullError(f"State: step {self._job._last_step}: the loop's body has changed {changed} after it had read a parameter behind "
                            "optimizer.step(). That waits for the step, which with spec.sync.gated, backupWorkers and in AllReduce has to be "
                            "sent before, with the state: change the entries first (scheduler.step()), or read parameters in front of "
                            "optimizer.step()", "FAILED_PRECONDITION")

    def _take(self) -> bool:
        """Gives the entries what the job has kept; False: nothing."""
        content = self._kept.read() if self._job.local_rank == 0 else b""
        if self._job.local_ranks > 1:
            content = self._job._local_ranks.share(content)
        if content:
            self._load(content)
        return bool(content)

    def _pack(self) -> bytes:
        return pickle.dumps({name: _state_of(entry) for name, entry in self._entries.items()}, protocol=4)

    def _load(self, content: bytes) -> None:
        kept: dict[str, Any] = pickle.loads(content)
        for name in self._entries.keys() - kept.keys():
            logging.getLogger("pushpull").warning("State: the job has no %s: it begins anew", name)
        for name in self._entries.keys() & kept.keys():
            access = _access_of(self._entries[name])
            if access is None:
                self._entries[name] = kept[name]
            else:
                access.load(kept[name])


class _Kept:
    """The tensor of the job in which each step keeps a byte string, each byte as a number.

    The servers keep, of each number, the largest: with the worker's place in it, those of the lowest worker.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._numbers: Any = None
        self._value: Any = None
        self._pushing: Optional[_engine.BoundPush] = None
        self._receiving: Optional[_engine.BoundPush] = None
        self.is_awaited = False  # what the other workers make of the step under way

    def register(self, content: bytes) -> None:
        if len(content) > _BYTES_MOST:
            raise ValueError(f"State: the entries have {len(content)} bytes, and each step keeps at most {_BYTES_MOST}: the state of an "
                             "optimizer belongs to DistributedOptimizer, large tensors to job.store")
        size = _HEAD_BYTES + _BYTES_LEAST
        while size < _HEAD_BYTES + 2 * len(content):
            size *= 2
        self._numbers = numpy.zeros(size, numpy.float32)
        self._value = numpy.zeros(size, numpy.float32)
        if self._job.local_rank == 0:
            options = _engine.TensorOptions()
            options.optimizer, options.keeps_value = Sum().spec(), False
            options.reduce = "max"
            self._job._engine.add(_TENSOR, self._value, options)

    def bind(self, engine: _engine.EngineJob, receives_always: bool) -> None:
        self._receiving = engine.bind(_TENSOR, self._numbers, self._value)
        self._pushing = engine.bind(_TENSOR, self._numbers, self._value if receives_always else None)

    def push(self, content: bytes) -> None:
        assert self._pushing is not None
        if len(content) > self._numbers.size - _HEAD_BYTES:
            raise ValueError(f"State: the entries have {len(content)} bytes, and at the start they had less than "
                             f"{(self._numbers.size - _HEAD_BYTES) // 2}: keep what grows elsewhere")
        head = len(content).to_bytes(4, "little") + zlib.crc32(content).to_bytes(4, "little")
        self._numbers[:len(head) + len(content)] = numpy.frombuffer(head + content, numpy.uint8)
        self._numbers[:len(head) + len(content)] += 256 * (_WORKERS_MAX - self._job.worker)
        self._job.store._handles[_TENSOR, "push"] = self._pushing.push(1.0, 0.0)

    def receive(self) -> None:
        self.is_awaited = True
        if self._receiving is not None:  # in the first local rank
            self._job.store._handles[_TENSOR, "push"] = self._receiving.push(0.0, 0.0, False)

    def read(self) -> bytes:
        """Empty: nothing was kept."""
        content: bytes = (self._value.astype(numpy.int64) & 0xFF).astype(numpy.uint8).tobytes()
        length, checksum = int.from_bytes(content[:4], "little"), int.from_bytes(content[4:8], "little")
        kept = content[_HEAD_BYTES:_HEAD_BYTES + length]
        return kept if zlib.crc32(kept) == checksum else b""


class _Access(NamedTuple):
    """How the state of something that the program holds is read, and set in place."""

    read: Callable[[], Any]
    load: Callable[[Any], Any]


_VALUES = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), numpy.generic)


def _access_of(entry: Any) -> Optional[_Access]:
    """None: the entry is a value, which is replaced, or nothing that can be kept."""
    for read, load in (("state_dict", "load_state_dict"), ("getstate", "setstate"), ("get_state", "set_state")):
        if hasattr(entry, read) and hasattr(entry, load):
            plain = _Access(getattr(entry, read), getattr(entry, load))
            groups = getattr(getattr(entry, "optimizer", None), "param_groups", None)
            return plain if groups is None else _with_groups(plain, groups)
    if isinstance(entry, _VALUES):
        return None
    if isinstance(entry, numpy.random.Generator):
        return _Access(lambda: entry.bit_generator.state, lambda state: setattr(entry.bit_generator, "state", state))
    if isinstance(entry, (dict, set, list)):
        return _Access(lambda: entry, lambda kept: _refill(entry, kept))
    if hasattr(entry, "__array__"):  # of NumPy and torch
        return _Access(lambda: entry, lambda kept: entry.__setitem__(..., kept))
    if hasattr(entry, "__dict__") and not callable(entry):
        return _Access(lambda: dict(vars(entry)), lambda kept: vars(entry).update(kept))
    return None


def _refill(entry: Any, kept: Any) -> None:
    entry.clear()
    entry.extend(kept) if isinstance(entry, list) else entry.update(kept)


def _with_groups(scheduler: _Access, groups: list[dict[str, Any]]) -> _Access:
    """With what a scheduler has set in its optimizer: most compute the next value from it, and none sets it when it is loaded.

    Functions, which some of torch 1 have in their state, are the program's own.
    """
    def read() -> Any:
        state = scheduler.read()
        if isinstance(state, dict):
            state = {key: value for key, value in state.items() if not callable(value)}
        return state, [{key: value for key, value in group.items() if key != "params"} for group in groups]

    def load(state: Any) -> None:
        scheduler.load(state[0])
        for group, kept in zip(groups, state[1]):
            group.update({key: value for key, value in kept.items() if key not in group or group[key] != value})
    return _Access(read, load)


def _let_pass_its_end(entry: Any) -> None:
    """A schedule of a number of steps, such as OneCycleLR, raises in a step more, and a worker that is lost may add one to an epoch."""
    kind = type(entry)
    if not hasattr(entry, "total_steps") or not hasattr(entry, "last_epoch") or hasattr(kind, "_of_pushpull"):
        return

    def step(self: Any, *args: Any, **more: Any) -> None:
        if self.last_epoch < self.total_steps:
            kind.step(self, *args, **more)
            return
        logging.getLogger("pushpull").warning("%s has made its total_steps=%d, and the job makes more, as after the loss of a worker: the "
                                              "learning rate stays as it is", kind.__name__, self.total_steps)
    entry.__class__ = type(kind.__name__, (kind,), {"step": step, "_of_pushpull": True, "__module__": kind.__module__})


def _state_of(entry: Any) -> Any:
    access = _access_of(entry)
    return entry if access is None else access.read()
