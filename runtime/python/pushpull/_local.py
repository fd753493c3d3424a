# SPDX-License-Identifier: Apache-2.0
"""Jobs on this machine: `local` makes this process a job's worker, `spawn` runs a function in a job's workers.

Both run `pushpull run` as a child in its own session: Ctrl-C reaches only this process, which ends the job in order. This
process holds a lock while it lives; the workers wait for the lock, so they end the job if this process is killed.
"""
from __future__ import annotations

import collections
import contextlib
import fcntl
import json
import multiprocessing
import multiprocessing.spawn
import os
import pathlib
import pickle
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Optional, TextIO, TypeVar, Union

from ._command import PROGRAM
from ._errors import PushPullError
from ._job import Job, init, refuse_while_importing
from ._stand_in import end_of_job, wait_for_end_of

_Result = TypeVar("_Result")
_Path = Union[str, "os.PathLike[str]"]
_HERE = pathlib.Path(__file__).parent
_WRONG_USAGE = 2  # an exit code of `pushpull run`
_STOP_SECONDS = 30.0  # to end in order after a signal
_LINES_KEPT = 20
_ONLY_IN_LOGS = re.compile(r"(coordinator|(server|worker)-\d+) \| \d{4}-\S+ info |coordinator ready|\d+ servers ready|logs: ")
_PROGRESS = re.compile(r"step |starting ")
_REDRAW = "\r\033[K"


@contextlib.contextmanager
def local(servers: int = 2, *, settings: Optional[Mapping[str, Any]] = None, workdir: Optional[_Path] = None,
          timeout: float = 60.0) -> Iterator[Job]:
    """A job on this machine with this process as its worker, for the duration of a `with` block: for notebooks and tests.

        with pushpull.local(servers=2) as job:
            job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
            job.start()

    servers   processes that hold the tensors
    settings  fields of the manifest, such as {"spec.sync.deterministic": True}
    workdir   folder for logs, checkpoints and `pushpull status --workdir`. Default: a temporary one, kept only if the job fails
    timeout   seconds until the servers are ready and this process has joined

    Progress goes to sys.stderr. At the end of the block, even after an exception, this process leaves and the others end; they
    also end if this process is killed.

    Raises ValueError (a setting is wrong; the text names it) and PushPullError UNAVAILABLE (the job has failed),
    DEADLINE_EXCEEDED (it has not started in time), or what the block raises; a PushPullError names the folder of the logs.
    """
    refuse_while_importing("pushpull.local()")
    command = [sys.executable, "-I", str(_HERE / "_stand_in.py")]
    with _Run("local", command, (servers, 1), settings, workdir) as run:
        run.start()
        job = init(timeout, environment=run.wait_for_member(timeout))
        try:
            with job:
                yield job
        finally:
            job.close()  # also after SystemExit, with which `with job` leaves it to the end of the process
        run.leave()
        run.wait()


def spawn(fn: Callable[..., _Result], workers: int = 2, servers: int = 2, *, args: Sequence[Any] = (),
          settings: Optional[Mapping[str, Any]] = None, workdir: Optional[_Path] = None) -> list[_Result]:
    """Runs `fn(job, *args)` in each of `workers` processes of a job on this machine. Returns the results, by worker.

    fn, args  are pickled for new processes, as by multiprocessing's "spawn": fn must be a function of a module or a script,
              not of a notebook's cell, and a script must call spawn under `if __name__ == "__main__":`. `job` is that of
              `pushpull.init`, in a `with` block
    settings, workdir  as in `local`

    Blocks until all workers are done. Progress and the workers' output go to sys.stderr. An exception in a worker ends the job;
    a worker that crashes is restarted by the rules of spec.restart. Ctrl-C, or the end of this process, ends all processes.

    Raises ValueError (a setting is wrong; the text names it) and PushPullError ABORTED (fn has raised: `peer` is the worker,
    the text has its traceback), UNAVAILABLE (the job has failed otherwise; the text names the folder of the logs).
    """
    # Raises if a new process imports a script that calls spawn at import.
    preparation = multiprocessing.spawn.get_preparation_data("worker")
    preparation.pop("authkey", None)  # is secret
    work = pickle.dumps((preparation, pickle.dumps((fn, tuple(args)))))
    code = f"import sys; sys.path[:] = {sys.path!r}; from pushpull._local import _work; _work(sys.argv[1])"
    with _Run("spawn", [sys.executable, "-u", "-c", code], (servers, workers), settings, workdir) as run:
        (run.folder / "work").write_bytes(work)
        run.start()
        run.wait()
        files = sorted(run.folder.glob("result-*"), key=lambda file: int(file.name[len("result-"):]))
        return [pickle.loads(file.read_bytes()) for file in files]


class _Run:
    """`pushpull run`, and a folder through which this process and the workers communicate:

    members   pipe: the environment of the process that stands in for this one
    alive     locked by this process
    done      exists once this process has left the job
    work      what the workers run
    result-I  what the function returned in worker I
    error-I   the exception that it raised there
    """

    def __init__(self, job: str, command: list[str], servers_and_workers: tuple[int, int],
                 settings: Optional[Mapping[str, Any]], workdir: Optional[_Path]) -> None:
        servers, workers = servers_and_workers
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
        self._workdir = self.folder / "job" if workdir is None else pathlib.Path(workdir).absolute()
        self._manifest = self.folder / "manifest.json"
        self._manifest.write_text(json.dumps({
            "apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": job},
            "spec": {"command": [word.replace("$", "$$") for word in (*command, str(self.folder))], "servers": {"replicas": servers},
                     "workers": {"replicas": workers}}}))
        self._settings = [f"{field}={json.dumps(value)}" for field, value in (settings or {}).items()]
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._printer: Optional[threading.Thread] = None
        os.mkfifo(self.folder / "members")
        self._members = os.open(self.folder / "members", os.O_RDWR | os.O_NONBLOCK)
        self._alive = open(self.folder / "alive", "w")
        fcntl.lockf(self._alive, fcntl.LOCK_EX)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self._stop()
        finally:
            self._alive.close()
            os.close(self._members)
        if not isinstance(error, PushPullError):
            shutil.rmtree(self.folder, ignore_errors=True)
        elif str(self._workdir) not in str(error):  # raised by a call in the block
            raise self._failure(str(error), error.code) from error

    def start(self) -> None:
        command = [PROGRAM, "run", str(self._manifest), "--workdir", str(self._workdir)]
        for setting in self._settings:
            command += ["--set", setting]
        # On a terminal the progress line is redrawn in place.
        output, input_end = os.openpty() if sys.stderr.isatty() else os.pipe()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=input_end, stderr=input_end,
                                         start_new_session=True)
        os.close(input_end)
        self._printer = threading.Thread(target=self._print, args=(output, sys.stderr), daemon=True)
        self._printer.start()

    def wait_for_member(self, timeout: float) -> dict[str, str]:
        """The environment of the job's worker, once it can join."""
        process = self._process
        assert process is not None
        end = os.pidfd_open(process.pid)
        try:
            ready, _, _ = select.select([self._members, end], [], [], timeout)
        finally:
            os.close(end)
        if self._members in ready:
            member: dict[str, str] = json.loads(os.read(self._members, 1 << 16).splitlines()[0])
            del member["PUSHPULL_ROLE"]  # SIGTERM ends this process, as before
            if "PUSHPULL_LOG_LEVEL" not in os.environ:
                member["PUSHPULL_LOG_LEVEL"] = "warning"
            return member
        if end in ready:
            self.wait()
        raise self._failure(f"the job has not started within {timeout:g} s", "DEADLINE_EXCEEDED")

    def leave(self) -> None:
        """Lets the process that stands in for this one end."""
        (self.folder / "done").touch()
        fcntl.lockf(self._alive, fcntl.LOCK_UN)

    def wait(self) -> None:
        """Blocks until the job has ended. Raises the error that ended it."""
        process, printer = self._process, self._printer
        assert process is not None and printer is not None
        code = process.wait()
        printer.join()
        if code == 0:
            return
        errors = sorted(self.folder.glob("error-*"), key=lambda file: file.stat().st_mtime_ns)
        if errors:  # the first is the cause
            self._lines.clear()  # they report its consequences
            error = self._failure(errors[0].read_text(), "ABORTED")
            error.peer = errors[0].name.replace("error", "worker")
            raise error
        if code == _WRONG_USAGE and not (self._workdir / "logs").exists():
            raise ValueError("\n".join(self._lines).replace(f"{self._manifest}: ", ""))
        raise self._failure("the job has failed", "UNAVAILABLE")

    def _failure(self, text: str, code: str) -> PushPullError:
        return PushPullError("\n".join([text, *self._lines, f"logs: {self._workdir}/logs"]), code)

    def _stop(self) -> None:
        process, printer = self._process, self._printer
        if process is None or printer is None:
            return
        try:
            if process.poll() is None:
                process.terminate()
                process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()  # its guardian ends the remaining processes
            process.wait()
            printer.join()

    def _print(self, output: int, terminal: TextIO) -> None:
        """Passes on what `pushpull run` prints, except lines that are in the logs."""
        line = ""
        with contextlib.suppress(OSError), open(output, "rb", buffering=0) as file:  # OSError: end of a terminal
            while data := file.read(1 << 16):
                *lines, line = (line + data.decode(errors="replace").replace("\r\n", "\n")).split("\n")
                for text in (line.rpartition(_REDRAW)[2] for line in lines):
                    if not _ONLY_IN_LOGS.match(text):
                        terminal.write(f"{_REDRAW if terminal.isatty() else ''}{text}\n")
                    if text.startswith(("pushpull: ", str(self._manifest))):
                        self._lines.append(text)
                line = line.rpartition(_REDRAW)[2]
                if _PROGRESS.match(line):
                    terminal.write(_REDRAW + line)
                terminal.flush()


def _work(folder: str) -> None:
    """The main function of a worker process of `spawn`."""
    threading.Thread(target=_end_with_starter, args=(folder,), daemon=True).start()
    worker = os.environ["PUSHPULL_INDEX"]
    try:
        fn, args = _take_work(folder)
        with init() as job:
            result = fn(job, *args)
        pathlib.Path(folder, f"result-{worker}").write_bytes(pickle.dumps(result))
    except Exception as error:
        text = f"worker-{worker}: {type(error).__name__}: {error}\n\n{traceback.format_exc()}"
        pathlib.Path(folder, f"error-{worker}").write_text(text)
        sys.exit(end_of_job(text.splitlines()[0]))


def _take_work(folder: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    preparation, work = pickle.loads(pathlib.Path(folder, "work").read_bytes())
    process: Any = multiprocessing.current_process()
    process._inheriting = True  # no processes may start while the script is imported
    try:
        multiprocessing.spawn.prepare(preparation)
        fn, args = pickle.loads(work)
    finally:
        del process._inheriting
    return fn, args


def _end_with_starter(folder: str) -> None:
    wait_for_end_of(folder)
    os._exit(end_of_job("the process that started the job is gone"))
