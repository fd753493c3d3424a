# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes for tests: starts programs, waits for what they do, and leaves nothing behind.

PUSHPULL_BIN and PROBE_WORKER name the programs under test; CTest sets both. By hand, from the
repository's root: `python3 -m unittest discover tests/integration/process -p "*_test.py"`. PUSHPULL_TEST_PATIENCE
multiplies every deadline here, for programs that sanitizers make slow; CTest sets it too.

No test asks whether a job is still running when it acts: a probe's job is paced by its
--step-milliseconds until `LocalJob.finish`, which lets it run to its end at full speed.

Every process that a test starts carries a tag in its environment, which its children inherit, however
deep and in whatever process group: so "no process of the job is left" is one look at /proc.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
import uuid
from typing import Any, Callable, Optional

PUSHPULL = os.path.abspath(os.environ.get("PUSHPULL_BIN", "build/release/pushpull"))
PROBE = os.path.abspath(os.environ.get("PROBE_WORKER", "build/release/tests/probe_worker"))
TAG = "PUSHPULL_TEST_TAG"
# The slowest start seen on two busy cores is about two seconds.
START_SECONDS = 30.0
COMMAND_SECONDS = 60.0
PATIENCE = float(os.environ.get("PUSHPULL_TEST_PATIENCE", "1"))
LONG_JOB_STEPS = 1_000_000
_LOOK_SECONDS = 0.02


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The condition's first true value; AssertionError, naming `what`, after the deadline."""
    deadline = time.monotonic() + PATIENCE * seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {PATIENCE * seconds} s: {what}")
        pause.wait(_LOOK_SECONDS)


def run_command(*words: Any, environment: Optional[dict[str, str]] = None,
                seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess:
    """Runs `pushpull` with these words to its end; its exit code and what it printed."""
    return subprocess.run([PUSHPULL, *(str(word) for word in words)], env=environment,
                          capture_output=True, text=True, timeout=PATIENCE * seconds, check=False)


def read_metrics(address: str) -> dict[str, float]:
    """Series with labels, as in the exposition format, to value."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def tagged_processes(tag: str) -> dict[int, str]:
    """Pid to command line of the processes that carry the tag; what has ended does not count."""
    wanted = f"{TAG}={tag}".encode()
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace")
        except OSError:  # it has just ended
            continue
    return found


class Program:
    """A started program whose output is collected by lines."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: str) -> None:
        self.command = command
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        self.process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        with self._changed:
            return "\n".join(self._lines)

    def wait_for_line(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """The first match in a line, also of one that has been printed before."""
        expression = re.compile(pattern)
        deadline = time.monotonic() + PATIENCE * seconds
        looked_at = 0
        with self._changed:
            while True:
                for line in self._lines[looked_at:]:
                    match = expression.search(line)
                    if match:
                        return match
                looked_at = len(self._lines)
                left = deadline - time.monotonic()
                if self._has_ended or left <= 0:
                    printed = "\n".join(self._lines)
                    raise AssertionError(f"no line matches {pattern!r} in:\n{printed}")
                self._changed.wait(left)

    def wait(self, seconds: float) -> int:
        """The exit code; AssertionError with the output after the deadline."""
        try:
            code = self.process.wait(PATIENCE * seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} runs after {PATIENCE * seconds} s:\n"
                                 f"{self.output}") from None
        self._reader.join(1)  # a grandchild may hold the pipe for longer
        return code

    def close(self) -> None:
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


class LocalJob:
    """A running `pushpull run`."""

    def __init__(self, launcher: Program, workdir: pathlib.Path, report: pathlib.Path,
                 let_go: Optional[pathlib.Path] = None) -> None:
        self.launcher = launcher
        self.workdir = workdir
        self._report = report
        self._let_go = let_go

    def finish(self, seconds: float = 100) -> int:
        """Lets the probes go on at full speed; the launcher's exit code."""
        assert self._let_go is not None, "not a job of paced probes"
        self._let_go.touch()
        return self.launcher.wait(seconds)

    def endpoint(self, role: str, index: int = 0) -> Optional[dict[str, Any]]:
        """Its entry of endpoints.json; None: not there."""
        try:
            entries = json.loads((self.workdir / "endpoints.json").read_text())
        except FileNotFoundError:
            return None
        wanted = [e for e in entries if e["role"] == role and e["index"] == index]
        return wanted[0] if wanted else None

    def wait_for_step(self, step: int, seconds: float = START_SECONDS) -> None:
        """Until `pushpull status` says that the job is at the step or later."""
        def reached() -> bool:
            is_over = self.launcher.process.poll() is not None
            is_there = self.status().get("step", 0) >= step
            assert is_there or not is_over, f"over before step {step}:\n{self.launcher.output}"
            return is_there
        wait_until(reached, seconds, f"step {step}")

    def status(self) -> dict[str, Any]:
        """Empty when the job does not answer yet."""
        shown = run_command("status", "--workdir", self.workdir, "--json")
        return json.loads(shown.stdout) if shown.returncode == 0 else {}

    def wait_for_status(self, phase: str, seconds: float = START_SECONDS, term: Optional[int] = None) -> dict[str, Any]:
        """Until `pushpull status` says that the job is in this phase, by the coordinator of this term where one is
        given; the status then."""
        def reached() -> dict[str, Any]:
            status = self.status()
            is_so = status.get("phase") == phase and term in (None, status.get("term"))
            return status if is_so else {}
        return wait_until(reached, seconds, f"phase {phase} in term {term or 'any'}")

    def scale(self, servers: Optional[Any] = None, *flags: Any, workers: Optional[Any] = None,
              seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess:
        """`pushpull scale` on this job; its exit code and what it printed."""
        sizes = {"--servers": servers, "--workers": workers}
        words = [word for name, size in sizes.items() if size is not None for word in (name, size)]
        return run_command("scale", "--workdir", self.workdir, *words, *flags, seconds=seconds)

    def set(self, *settings: str) -> subprocess.CompletedProcess:
        """`pushpull set` on this job; its exit code and what it printed."""
        return run_command("set", "--workdir", self.workdir, *settings)

    def signal_member(self, role: str, index: int, number: int) -> int:
        """Sends a signal to the member and returns its pid."""
        entry = wait_until(lambda: self.endpoint(role, index), START_SECONDS, f"{role}-{index}")
        os.kill(entry["pid"], number)
        return entry["pid"]

    def kill_and_await_next(self, role: str, index: int) -> None:
        """Until the launcher has started another in the place of the one that is killed here."""
        old = self.signal_member(role, index, signal.SIGKILL)
        wait_until(lambda: (self.endpoint(role, index) or {"pid": old})["pid"] != old,
                   START_SECONDS, f"another {role}-{index}")

    def await_joined(self, role: str, index: int) -> None:
        """Until the coordinator counts the process that now has this index; one that was killed does not count."""
        def joined() -> bool:
            entry = self.endpoint(role, index)
            members = self.status().get(f"{role}s", [])
            return any(m["index"] == index and m["alive"] and entry and m["pid"] == entry["pid"] for m in members)
        wait_until(joined, START_SECONDS, f"{role}-{index} joins")

    def await_steps_of_worker(self, index: int) -> None:
        """Until the coordinator knows of steps that the process which now has this index has made."""
        self.await_joined("worker", index)
        seen: list[int] = []

        def stepped() -> bool:
            seen.extend(m["step"] for m in self.status().get("workers", []) if m["index"] == index and m["alive"] and m["step"] > 0)
            return len(set(seen)) > 1
        wait_until(stepped, START_SECONDS, f"worker-{index} makes steps")

    def report(self) -> dict[str, Any]:
        return json.loads(self._report.read_text())

    def metrics(self, role: str, index: int = 0) -> dict[str, float]:
        """Series with labels, as in the exposition format, to value."""
        entry = self.endpoint(role, index)
        assert entry is not None, f"{role}-{index} has no endpoint"
        return read_metrics(entry["metrics"])


class Jobs:
    """A folder and a tag for the jobs that are started; `close` kills every process with the tag."""

    # Of every program that is started, whatever this process's own environment says.
    variables: dict[str, str] = {}

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pushpull-test-")
        self.folder = pathlib.Path(self._folder.name)
        self._let_go = self.folder / "let-go"
        self.tag = uuid.uuid4().hex[:12]
        self.job_name = f"t-{self.tag}"
        self._programs: list[Program] = []

    def close(self) -> None:
        for pid in tagged_processes(self.tag):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for program in self._programs:
            program.close()
        self._folder.cleanup()

    def __enter__(self) -> "Jobs":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def output(self) -> str:
        """What the programs have printed, one after the other."""
        return "\n".join(program.output for program in self._programs)

    def environment(self, **more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PUSHPULL_")}
        return {**inherited, **self.variables, TAG: self.tag, **more}

    def start(self, *command: Any, environment: Optional[dict[str, str]] = None) -> Program:
        words = [str(word) for word in command]
        program = Program(words, self.environment(**(environment or {})), str(self.folder))
        self._programs.append(program)
        return program

    def write_manifest(self, spec: dict[str, Any], name: str = "job.yaml",
                       job_name: Optional[str] = None) -> pathlib.Path:
        """JSON is YAML, and quotes every string."""
        manifest = {"apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingJob",
                    "metadata": {"name": job_name or self.job_name}, "spec": spec}
        path = self.folder / name
        path.write_text(json.dumps(manifest, indent=1))
        return path

    def spec(self, *probe_flags: Any, servers: int = 2, workers: int = 2,
             **more: Any) -> dict[str, Any]:
        """A spec that runs the probe worker; `more` are further fields of it."""
        return {"command": [PROBE, *(str(flag) for flag in probe_flags), "--until",
                            str(self._let_go)],
                "servers": {"replicas": servers}, "workers": {"replicas": workers}, **more}

    def long_spec(self, **more: Any) -> dict[str, Any]:
        """A job that a test ends, or that fails."""
        return self.spec("--steps", LONG_JOB_STEPS, "--step-milliseconds", 5, **more)

    def run_job(self, spec: dict[str, Any], *flags: Any,
                environment: Optional[dict[str, str]] = None, name: Optional[str] = None) -> LocalJob:
        """With a `name` it is another job beside that of the test: files and a workdir of its own."""
        suffix = f"-{name}" if name else ""
        manifest = self.write_manifest(spec, f"job{suffix}.yaml", name)
        workdir = self.folder / f"workdir{suffix}"
        report = self.folder / f"report{suffix}.json"
        self._let_go.unlink(missing_ok=True)
        launcher = self.start(PUSHPULL, "run", manifest, "--workdir", workdir, "--report", report,
                              "--progress", "none", *flags, environment=environment)
        return LocalJob(launcher, workdir, report, self._let_go)

    def wait_until_gone(self, seconds: float) -> None:
        """Until no process of this test is left."""
        try:
            wait_until(lambda: not tagged_processes(self.tag), seconds, "no process is left")
        except AssertionError as late:
            raise AssertionError(f"{late}: {tagged_processes(self.tag)}") from None


class JobTestCase(Jobs, unittest.TestCase):
    """A test that starts jobs; nothing of them is left at its end."""

    def setUp(self) -> None:
        self.open()
        self.addCleanup(self.close)

    def run_with(self, spec: dict[str, Any], **variables: str) -> LocalJob:
        """Starts a job whose processes have these environment variables, as have all that follow."""
        inherited = Jobs.environment(self)
        self.environment = lambda **more: {**inherited, **variables, **more}  # type: ignore
        return self.run_job(spec)

    def assert_refused(self, started: LocalJob, *changes: tuple[list[str], str]) -> None:
        """Each change by `pushpull set` is wrong usage, with one line that has the text beside it."""
        for settings, text in changes:
            with self.subTest(settings=settings):
                refused = started.set(*settings)

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
                self.assertIn(text, refused.stderr)


def taken_port() -> tuple[socket.socket, str]:
    """A socket that listens, which the caller closes, and its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, "127.0.0.1:%d" % listener.getsockname()[1]


def closed_port() -> str:
    """An address where nobody listens."""
    listener, address = taken_port()
    listener.close()
    return address
