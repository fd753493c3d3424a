# SPDX-License-Identifier: Apache-2.0
"""Joining a job, its steps and samples."""
from __future__ import annotations

import atexit
import contextlib
import json
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Optional, Protocol, Union

import numpy
import numpy.typing

from . import _engine
from ._command import PROGRAM
from ._errors import PushPullError, Released
from ._state import State
from ._store import Store


@dataclass(frozen=True)
class Shard:
    """This worker's samples in one step.

    step      number of the step
    epoch     of the data set, from 0
    position  samples of the epoch that earlier steps have consumed
    total     samples of this step over all workers
    count     this worker's share of them, the weight of its gradients. May be 0: push nevertheless
    indices   int64, shape (count,): positions in the epoch's order of samples. The program chooses that order, the same in
              all workers
    """

    step: int
    epoch: int
    position: int
    total: int
    count: int
    indices: numpy.typing.NDArray[numpy.int64]


class _StepsWithJob(Protocol):
    """An optimizer whose steps are those of the job."""

    def _before_start(self) -> None: ...
    def _after_start(self) -> None: ...
    def _push_nothing(self) -> None: ...
    def _detach(self) -> None: ...
    def _refuse_reading(self) -> None: ...
    def _allow_present(self) -> None: ...
    def _finish_pushes(self, is_last: bool) -> None: ...
    def wait(self) -> None: ...


class Job:
    """One worker's membership in a training job, from `pushpull.init`.

    As a context manager it leaves the job at the end of the block, and ends the process with `exit_code` if that is not 0
    or if the job or this process has to end. After another exception it closes the job: the other workers continue without
    this one, as after a crash.
    """

    def __init__(self, environment: Mapping[str, str], engine: Any, local_ranks: Any = None) -> None:
        """Of `pushpull.init` and pushpull.torch. `local_ranks`: the processes of this worker, if it has several."""
        self._environment = dict(environment)
        self._engine: _engine.EngineJob = engine
        self._local_ranks = local_ranks
        self._share_of_rank = 1 / self.local_ranks  # of the worker's samples in the step
        self.store = Store(self._engine)
        self._exit_code = 0
        self._worker = 0
        self._has_started = False
        self._has_ended = False
        self._has_left = False
        # What pushpull.torch adds: see _commit_step.
        self._optimizers: list[_StepsWithJob] = []
        self._stepped: list[object] = []
        self._is_last_of_step = True  # of the micro-batches that the sampler has handed out
        self._has_samples = False
        self._ends_epoch = False  # with the samples that the sampler has handed out
        self._rounds: Any = None  # of optimizers on the workers
        self._round_in_batch = 0  # steps made with the samples that the sampler has handed out
        self._commit: Optional[_engine.Handle] = None
        self._step_in_use: Optional[int] = None
        self._last_step = 0  # that was in use
        self._state: Optional[State] = None  # of the program
        self._num_epochs = 0
        self._members: list[int] = []
        self._is_nothing_left = False  # when this worker began
        self._is_empty_step = False
        self._is_pushed = False  # by all optimizers, in the step under way
        self._is_after_epoch = False  # `epochs` has handed out one of which only what stands after the inner loop is to run
        self._epoch: Optional[int] = None  # which `epochs` has handed out
        self._is_before_first = False  # this worker has joined others, and has made no step
        self._past: Optional[str] = None  # why the program may not use the job now: it is in an epoch that is over
        _open_jobs.add(self)

    def use_samples(self, num_samples: int, *, batch: int, epochs: int = 1, global_batch: bool = False,
                    drop_last: bool = False) -> None:
        """Divides `num_samples` samples among the workers, `epochs` times. Before `start`, with the same values in all workers.

        batch         samples per step of each worker; with `global_batch`, of all workers together. spec.workers.globalBatch
                      replaces it
        drop_last     an epoch ends before a step that would not be full

        A job that is restored trains until it has had as many `epochs`, and takes another `num_samples` from the next epoch on.

        Raises PushPullError INVALID_ARGUMENT (a number is 0), FAILED_PRECONDITION (after `start`).
        """
        self._engine.use_samples(num_samples, epochs, batch, global_batch, drop_last)
        self._num_epochs = epochs
        self._has_samples = True

    def start(self, timeout: float = 300.0) -> None:
        """Registers the tensors. Blocks until every worker has done so and the tensors have the job's values.

        Raises PushPullError INVALID_ARGUMENT (a name or a setting is wrong, or another worker registered the tensor
        differently), DEADLINE_EXCEEDED (not all servers and workers are there). End the process after an error; after
        Ctrl-C too, which ends the membership.
        """
        self._has_started = True
        for optimizer in self._optimizers:
            optimizer._before_start()
        self._engine.start(timeout)
        if self._state is not None:
            self._state._begin()
        for optimizer in self._optimizers:
            optimizer._after_start()
        self._is_before_first = self._has_samples and self._engine.has_joined_others()

    def steps(self, end: int, timeout: Optional[float] = None) -> Iterator[int]:
        """The numbers of this worker's steps before `end`. Each ends with `store.wait(timeout)`.

        They begin later than 0 if this worker joins or replaces another, and skip steps that the job made without it (backup
        workers). Raises Released if the worker is released, PushPullError FAILED_PRECONDITION if a tensor was left out of the
        step, see `Store.push_pull`, and the errors of `Handle.wait`.
        """
        while self.step < end:
            if self.is_released:
                self._end_as_released()
            self._use_step(self.step)
            try:
                yield self.step
            finally:
                self._use_step(None)
            self._keep_state()
            self._engine.end_step()
            self.store.wait(timeout)
            self._end_state_step()

    def samples(self, timeout: Optional[float] = None) -> Iterator[Shard]:
        """This worker's samples, step by step, until the data set is done; within `epochs`, until the epoch is.

        Push all tensors in each step, even if `count` is 0, and do not wait: a step ends by committing its samples and calling
        `store.wait(timeout)`. Pushes within it have the weight `count`.

        Raises Released if the worker is released, PushPullError FAILED_PRECONDITION (no `use_samples`, or before `start`; the job
        has another data set, because it was restored within an epoch or the workers differ), DATA_LOSS (the job's position is
        damaged), and those of `Handle.wait`.
        """
        if self.local_ranks > 1:
            raise PushPullError(f"samples: the worker has {self.local_ranks} processes; use ElasticSampler or ElasticDataLoader of "
                                "pushpull.torch, which divide its samples among them", "FAILED_PRECONDITION")
        while True:
            part = self._next_samples(timeout, self._epoch)
            if part.is_over or (self._epoch is not None and part.epoch > self._epoch):
                return
            ranges = [numpy.arange(first, first + count, dtype=numpy.int64) for first, count in part.ranges]
            indices = numpy.concatenate(ranges) if ranges else numpy.empty(0, numpy.int64)
            self.store._weight = float(part.count)
            self._is_before_first = False
            self._use_step(part.step)
            try:
                yield Shard(part.step, part.epoch, part.position, part.total, part.count, indices)
            finally:
                self.store._weight = 1.0
                self._use_step(None)
            self.store._has_pushed = False
            self._keep_state()
            committed = self._engine.commit_samples()
            self.store.wait(timeout)
            committed.wait(timeout)
            self._end_state_step()

    def epochs(self) -> Iterator[int]:
        """The numbers of the epochs that remain, from 0: the present one first, for a worker that joins or resumes.

            for epoch in job.epochs():
                for share in job.samples(): ...
                ...                                  # once for each epoch, in every worker that is there at its end

        A worker that begins with the first step of an epoch gets the one before it too, without samples: what stands after the inner
        loop runs in it as in the others, which do it at that time. An epoch whose loop the program leaves with `break` is not over:
        the next number is the same. Raises like `samples`, and RuntimeError if the program has made no step in an epoch.
        """
        self._start_once()
        before: Optional[tuple[int, int]] = None
        try:
            while True:
                part = self._engine.samples()
                self._end_if_released(part)
                ended = part.epoch - 1 if part.position == 0 else -1
                self._is_before_first = False
                if self._epoch is None and ended >= 0:
                    self._epoch, self._is_after_epoch = ended, True
                elif part.is_over:
                    return
                else:
                    self._epoch = part.epoch
                if before == (self._epoch, self.step):
                    raise RuntimeError(f"epochs: the program has made no step in epoch {self._epoch}, which therefore goes on: iterate over the "
                                       "loader, or job.samples(), in every epoch")
                before = self._epoch, self.step
                yield self._epoch
                self._is_after_epoch = False
        finally:
            self._epoch = None

    def buffer(self, shape: Union[int, tuple[int, ...]]) -> numpy.typing.NDArray[numpy.float32]:
        """Memory for gradients that servers on this host read in place: float32 of `shape`, zeros, page-aligned.

        Allocate one buffer for all gradients and use views of it. It may outlive the job. Raises PushPullError
        RESOURCE_EXHAUSTED.
        """
        dims = (shape,) if isinstance(shape, int) else shape
        values: numpy.typing.NDArray[numpy.float32] = numpy.asarray(self._engine.buffer(math.prod(dims)))
        return values.reshape(dims)

    def report_loss(self, loss: float, *, samples: int = 1, step: Optional[int] = None) -> None:
        """Reports the loss of a step, by default this one, over `samples` samples: for progress, report and metrics."""
        self._engine.report_loss(self.step if step is None else step, loss, samples)

    def report_result(self, name: str, value: float) -> None:
        """Reports a figure for `final` in the report, such as "accuracy".

        Raises PushPullError INVALID_ARGUMENT if `name` has more than 300 bytes of UTF-8, or for the 1,025th name.
        """
        self._engine.report_result(name, value)

    @property
    def is_traced(self) -> bool:
        """Whether a `pushpull trace` is in progress, which records what `trace_span` and `span` name."""
        return bool(self._engine.is_traced)

    def trace_span(self, name: str, begin_ns: int, end_ns: int) -> None:
        """For `pushpull trace`: names what the program did from `begin_ns` to `end_ns`, by `time.monotonic_ns()`. Never blocks."""
        self._engine.trace_span(name, begin_ns, end_ns)

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """For `pushpull trace`: names what the program does within, such as "load". Costs a microsecond without a trace."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            if self.is_traced:
                self.trace_span(name, begin, time.monotonic_ns())

    def status(self, timeout: float = 10.0) -> dict[str, Any]:
        """What the coordinator knows of the job: step, epoch, servers, workers, staleness and the other keys of
        `pushpull status --json` (docs/interfaces.md). Blocks; starts a process for some milliseconds.

        Raises PushPullError UNAVAILABLE (the coordinator does not answer), DEADLINE_EXCEEDED.
        """
        command = [PROGRAM, "status", "--json", "--coordinator", self._environment["PUSHPULL_COORDINATOR"]]
        try:
            done = subprocess.run(command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise PushPullError(f"the coordinator has not answered within {timeout:g} s", "DEADLINE_EXCEEDED") from None
        if done.returncode != 0:
            raise PushPullError(done.stderr.strip(), "UNAVAILABLE")
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def tell_to_end(self) -> None:
        """Makes the worker leave after its step, to be replaced: this process must end. For programs that handle SIGTERM."""
        self._engine.tell_to_end()

    def leave(self, timeout: float = 60.0) -> None:
        """Leaves the job: nobody waits for this worker any more. Blocks until the coordinator has confirmed it.

        Raises PushPullError DEADLINE_EXCEEDED (not confirmed yet: call again, or end the process), or those of `Handle.wait`.
        """
        if self._has_left:
            return
        self._finish_steps()
        self._engine.leave(timeout)
        self._has_left = True

    def end(self, timeout: float = 60.0) -> None:
        """Leaves and closes the job. Waits for the last step, as long as the other workers live, and up to `timeout` seconds for the
        coordinator. A script that reaches its last line, or ends with exit code 0, has the same effect.

        If another process has to continue (SIGTERM), ends this one with exit code 143; an earlier uncaught error with the code
        CANCELLED does the same. Errors as in `leave`.
        """
        self.leave(timeout)
        code = self.exit_code
        self.close()
        if code != 0:
            raise SystemExit(code)

    def close(self) -> None:
        """Ends the membership as a crash would, if it has not left. Arrays of `buffer` stay valid."""
        try:
            self._exit_code, self._worker = self._engine.exit_code, self._engine.worker
        except PushPullError:  # already closed
            return
        self._detach()
        self._engine.close()
        _open_jobs.discard(self)
        if os.environ.get(_MEMBER) == f"{os.getpid()} {_worker_of(self._environment)}":
            del os.environ[_MEMBER]

    def _detach(self) -> None:
        """Models and optimizers are the program's own from now on."""
        if self._has_ended:
            return
        self._has_ended = True
        for optimizer in self._optimizers:
            optimizer._detach()

    def _finish_steps(self) -> None:
        """Waits until all that the program has pushed counts."""
        for optimizer in self._optimizers:
            optimizer._finish_pushes(True)
            optimizer.wait()
        if self._has_samples and self.store._has_pushed:  # of a loop that the program has left
            self._commit_samples()
        self._finish_commit()

    def _close_at_exit(self, has_failed: bool) -> None:
        """The interpreter ends. The engine leaves the job if nothing has failed and the exit code is 0, else ends like a crash."""
        leaves = False
        if not has_failed and not self._has_left:
            try:
                self._finish_steps()
                leaves = True
            except PushPullError as error:
                print(f"pushpull: the program is at its end and cannot leave the job: {error}", file=sys.stderr)
        self._engine.close_at_exit(leaves)

    def _next_samples(self, timeout: Optional[float], epoch: Optional[int]) -> Any:
        """This worker's samples of its next step. In Async it waits for them, at most until `epoch` is over."""
        while True:
            samples = self._engine.samples()
            self._members = samples.members
            self._end_if_released(samples)
            if samples.has_step or samples.is_over or (epoch is not None and samples.epoch > epoch):
                return samples
            self._engine.commit_samples().wait(timeout)

    def _end_if_released(self, samples: Any) -> None:
        """Ends the program of a worker that gets no samples any more, although the data set has some. Says so if there was none from the
        start."""
        if samples.is_over and samples.epoch >= self._num_epochs and self.start_step > 0 and self.step == self.start_step:
            self._say_nothing_is_left(samples.epoch)
        if samples.is_over and samples.epoch < self._num_epochs and self.is_released:
            self._end_as_released()

    def _say_nothing_is_left(self, epochs: int) -> None:
        if not self._is_nothing_left:
            self._is_nothing_left = True
            logging.getLogger("pushpull").warning("nothing is left to do: the job has trained its %d epochs, up to step %d; to go on, pass "
                                                  "more epochs than %d, and to begin anew give the job another name", epochs, self.step,
                                                  self._num_epochs)

    def _end_as_released(self) -> NoReturn:
        self.leave()
        self._detach()
        raise Released(self.exit_code)

    def _keep_state(self) -> None:
        """With the step under way, whose body has run, unless it has no samples for this worker."""
        if self._state is not None:
            (self._state._follow if self._is_empty_step else self._state._push)()

    def _end_state_step(self) -> None:
        """The step is over, and its values are there."""
        self._is_empty_step = self._is_pushed = False
        if self._state is not None:
            self._state._end_step()

    def _complete_step(self) -> None:
        """Before a wait for the step under way, in modes in which that comes when the program has pushed everything."""
        if self._state is None or not self._is_pushed or not self._state._has_whole_steps:
            return
        self._is_pushed = False
        self._keep_state()
        if self._has_samples:
            self._commit = self._engine.commit_samples()

    def _check_is_present(self, call: str) -> None:
        """Raises PushPullError if the program is in an epoch that was over when this worker began, and ends it if all were."""
        if self._past is None:
            return
        if self._is_nothing_left:
            self._end_as_released()
        text = f"{call}: {self._past}"
        self._end_for_good(text)
        raise PushPullError(text, "FAILED_PRECONDITION")

    def _check_may_call(self, call: str) -> None:
        """Raises PushPullError if the other workers do not make this call of all workers now."""
        self._check_is_present(call)
        if self._is_before_first:
            raise PushPullError(f"{call}: this worker has joined others, which are at step {self.step} and made their calls before the first "
                                "step long ago: make such a call only `if job.start_step == 0`, or within the loop over the samples; a "
                                "value that a worker needs to begin belongs into pushpull.State(...)", "FAILED_PRECONDITION")
        if self._rounds is not None and self._has_started:
            self._rounds.before_call()

    # ---- steps made by optimizers of pushpull.torch, for which samplers wait ----

    def _end_for_good(self, why: str) -> None:
        """This program would end the same way again (docs/interfaces.md, section 4)."""
        self._tell_supervisor(f"pushpull-final: {why}")

    def _ask_for_restart(self, why: str) -> None:
        """All members of the job start again when this process has ended with an error (docs/interfaces.md, section 4)."""
        self._tell_supervisor(f"pushpull-restart: {why}")

    def _tell_supervisor(self, text: str) -> None:
        path = self._environment.get("PUSHPULL_TERMINATION_LOG")
        if path:
            with open(path, "w") as message:
                message.write(text)

    def _use_step(self, step: Optional[int]) -> None:
        """Collectives belong to this step; None: to the next one."""
        self._step_in_use = step
        if step is not None:
            self._last_step = step
            if self._state is not None:
                self._state._begin_step()
        self._engine.use_step(step)

    def _start_once(self) -> None:
        if not self._has_started:
            self.start()

    def _commit_step(self, optimizer: object) -> None:
        """Called when `optimizer` has pushed its tensors. After the last optimizer the samples of the step are committed."""
        self._stepped.append(optimizer)
        if len(self._stepped) < len(self._optimizers):
            return
        self._stepped.clear()
        self.store._has_pushed = self._is_pushed = True
        if self._has_samples and self._state is None:  # which is kept when the body of the loop is over
            self._commit = self._engine.commit_samples()

    def _commit_samples(self) -> None:
        """Reports that this worker's samples of the step are done, unless the optimizers have done so."""
        for optimizer in self._optimizers:
            optimizer._finish_pushes(self._ends_epoch)
        self._round_in_batch = 0
        self.store._has_pushed = False
        if self._commit is None or self._state is not None:
            self._keep_state()
        if self._commit is None:
            self._commit = self._engine.commit_samples()

    def _keep_samples(self, timeout: Optional[float]) -> None:
        """Before a further step with the same samples: the one before is over, and this worker goes on with them."""
        if self._has_samples and self._round_in_batch > 0:
            self._keep_state()
            self._engine.commit_samples(False).wait(timeout)
            self._end_state_step()

    def _finish_commit(self, timeout: Optional[float] = None) -> None:
        """Waits until the samples of the last step count; then those of the next step are known."""
        if self._commit is not None:
            self._commit.wait(timeout)
            self._commit = None

    def _push_nothing(self) -> None:
        """Makes a step in which this worker has no samples."""
        self._is_empty_step = True
        for optimizer in self._optimizers:
            optimizer._push_nothing()
        if not self._optimizers:
            self.store._push_nothing()

    @property
    def step(self) -> int:
        """Number of the next push; valid while none is in progress."""
        return self._engine.next_step

    @property
    def start_step(self) -> int:
        """This worker's first step; valid after `start`."""
        return self._engine.start_step

    @property
    def worker(self) -> int:
        """Index of this worker, from 0; also after `close`."""
        try:
            return self._engine.worker
        except PushPullError:
            return self._worker

    @property
    def workers(self) -> int:
        """spec.workers.replicas."""
        return self._engine.workers

    @property
    def members(self) -> list[int]:
        """Indices of the workers among whom the samples of the present step are divided, ascending: those who are there now.

        Between two steps those of the next one, who take part in a call of all workers. Needs ElasticDataLoader, ElasticSampler or
        `use_samples`, whose first samples have been asked for: before, and without a data set, it is empty.
        """
        return list(self._members)

    @property
    def is_ring(self) -> bool:
        """Whether the workers sum their gradients among themselves, without servers (mode AllReduce)."""
        return "PUSHPULL_RING" in self._environment

    @property
    def local_rank(self) -> int:
        """Index of this process among those of the worker: 0, unless pushpull.torch.init was called under torchrun."""
        return int(self._local_ranks.rank) if self._local_ranks is not None else 0

    @property
    def local_ranks(self) -> int:
        """Number of processes of this worker."""
        return int(self._local_ranks.size) if self._local_ranks is not None else 1

    @property
    def is_released(self) -> bool:
        """Whether the worker must leave: the job is smaller now, or the process has to end (SIGTERM)."""
        return self._engine.is_released

    @property
    def exit_code(self) -> int:
        """The exit code for this process: 0, or 143 if another process has to continue."""
        try:
            return self._engine.exit_code
        except PushPullError:
            return self._exit_code

    def __reduce__(self) -> Any:
        """In another process it is no member, as after a fork: a data set that has it may go to a DataLoader's processes."""
        return _job_of_parent, ()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            if error is None:
                self.leave()
        except PushPullError as failed:
            error = failed
            raise
        finally:
            code = self.exit_code
            if not isinstance(error, SystemExit):  # the process ends, and the job with it
                self.close()
            told_to_end = isinstance(error, PushPullError) and error.code == "CANCELLED"
            if told_to_end or (error is None and code != 0):
                raise SystemExit(code)


def init(timeout: float = 300.0, *, environment: Optional[Mapping[str, str]] = None) -> Job:
    """Joins the job that `environment` describes, by default os.environ: `pushpull run` and the operator set PUSHPULL_*.

    Blocks for at most `timeout` seconds, without the interpreter lock; Ctrl-C interrupts it.

    Raises PushPullError INVALID_ARGUMENT (a variable is missing or wrong: the text names it), UNAVAILABLE and
    DEADLINE_EXCEEDED (the coordinator does not answer; may be retried), FAILED_PRECONDITION (it rejects this worker; torchrun
    has started several processes of it: see pushpull.torch.init; or the worker's process has started this one), NOT_FOUND or PERMISSION_DENIED (a file of PUSHPULL_TLS_DIR).
    """
    variables = dict(os.environ if environment is None else environment)
    if environment is None and _current is not None and _current._has_left and _worker_of(_current._environment) == _worker_of(variables):
        raise PushPullError("pushpull.init(): this process has trained in the job and left it, and would join it again, with the values "
                            "and samples that it had at its end: a job trains once. To train several models, such as one for each "
                            "fold, start a job for each, or use `with pushpull.local():` for each", "FAILED_PRECONDITION")
    refuse_second_process(variables)
    if variables.get("LOCAL_WORLD_SIZE", "1") not in ("", "1"):
        raise PushPullError(f"torchrun has started {variables['LOCAL_WORLD_SIZE']} processes of this worker, and each would join as the "
                            "whole of it: call pushpull.torch.init() in place of pushpull.init()", "FAILED_PRECONDITION")
    return join(Job(variables, _engine.EngineJob(variables, timeout)))


def refuse_second_process(variables: Mapping[str, str]) -> None:
    """Raises PushPullError FAILED_PRECONDITION if this process would join in place of the worker's process, which has started it."""
    refuse_while_importing("pushpull.init()")
    pid, _, worker = os.environ.get(_MEMBER, "").partition(" ")
    if worker == _worker_of(variables) and int(pid) != os.getpid() and _is_running(int(pid)):
        raise PushPullError(f"pushpull.init(): process {pid} has joined as this worker and has started this process, which would take "
                            "its place: a worker is one process. Call it in one of them; in a script whose processes are started by "
                            "multiprocessing's \"spawn\", under `if __name__ == \"__main__\":`", "FAILED_PRECONDITION")


def refuse_while_importing(call: str) -> None:
    """Raises PushPullError FAILED_PRECONDITION in a new process of multiprocessing that imports the script of the one that started it."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise PushPullError(f"{call}: this process was started by multiprocessing (such as a DataLoader with \"spawn\"), is importing "
                            "the script again, and is no worker: put what the script does under `if __name__ == \"__main__\":`",
                            "FAILED_PRECONDITION")


def _worker_of(variables: Mapping[str, str]) -> str:
    return f"{variables.get('PUSHPULL_INDEX')} {variables.get('PUSHPULL_COORDINATOR')}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# The variable by which a process knows that the one that started it has joined: its process id, and the worker.
_MEMBER = "PUSHPULL_MEMBER"


def join(job: Job) -> Job:
    """Makes it the job of this process."""
    global _current
    _current = job
    os.environ[_MEMBER] = f"{os.getpid()} {_worker_of(job._environment)}"
    if sys.excepthook is not _end_if_told:
        _excepthooks.append(sys.excepthook)
        sys.excepthook = _end_if_told
    return job


def current_job() -> Job:
    """The job of the last `init` of this process. Raises PushPullError FAILED_PRECONDITION if there is none."""
    if _current is None:
        raise PushPullError("this process is in no job: call pushpull.init() first", "FAILED_PRECONDITION")
    return _current


def _end_if_told(kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """For a script without a `with` block that has to end during a wait: uses the job's exit code, without a traceback."""
    global _has_failed
    _has_failed = True
    if isinstance(error, PushPullError) and error.code == "CANCELLED" and _current is not None:
        print(error, file=sys.stderr)
        raise SystemExit(_current.exit_code)
    _excepthooks[-1](kind, error, trace)
    if _current is not None and _current._is_after_epoch:
        print(f"pushpull: epoch {_current._epoch} was over when this worker began: the loop over its samples had none, and what stands after "
              "it must do without values of the loop's body", file=sys.stderr)
    if _current is not None and _current._past is not None and _current._past not in str(error):
        print(f"pushpull: {_current._past}", file=sys.stderr)
        _current._end_for_good(f"{error!r}: {_current._past}")


_excepthooks: list[Callable[..., Any]] = []  # the program's own
_current: Optional[Job] = None
_has_failed = False  # an exception ends the program
# A job that the program drops remains a member: it ends with the process, after the interpreter.
_open_jobs: set[Job] = set()


@atexit.register
def _close_all() -> None:
    """Lets the engine's threads end after the interpreter and before the process: see close_at_exit."""
    for job in list(_open_jobs):
        job._close_at_exit(_has_failed)


class _NoMember:
    """Replaces the engine in a process that a member has started. In a forked one, which lacks the engine's threads, any use would
    wait forever."""

    def __init__(self, text: str) -> None:
        self._text = text

    def use_step(self, _: Optional[int]) -> None:
        """Called when this process, as it ends, leaves a loop over steps that its parent is in."""

    def __getattr__(self, name: str) -> Any:
        raise PushPullError(f"{name}: this process was {self._text}", "FAILED_PRECONDITION")


def _job_of_parent() -> Job:
    job = Job({}, _NoMember("spawned by one that had called pushpull.init(), and is no member of its job: use the job in that one"))
    _open_jobs.discard(job)
    return job


def _forget_jobs() -> None:
    forked = _NoMember("forked from one that had called pushpull.init(), and is no member of its job; fork before init, or start "
                       "processes with multiprocessing's \"spawn\"")
    for job in _open_jobs:
        job._engine.close_at_exit(False)  # which leaves it to the parent: its end would wait for its threads
        job._engine = job.store._engine = forked  # type: ignore[assignment]
    _open_jobs.clear()


os.register_at_fork(after_in_child=_forget_jobs)
