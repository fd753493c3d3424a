# SPDX-License-Identifier: Apache-2.0
"""Jobs that a program starts on this machine: pushpull.local and pushpull.spawn. Run as package_test.py is."""
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from typing import Callable

import numpy as np
import pushpull

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_SECONDS = 30.0


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not is_true():
        assert time.monotonic() < deadline, what
        pause.wait(0.01)


def processes_of(workdir: pathlib.Path) -> list[int]:
    """`pushpull run`, coordinator, servers and workers."""
    endpoints = json.loads((workdir / "endpoints.json").read_text())
    return [int((workdir / "lock").read_text()), *(endpoint["pid"] for endpoint in endpoints)]


def is_running(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# --- What workers run ---


def add_up(job: pushpull.Job, steps: int) -> tuple[int, float]:
    w = np.zeros(4, np.float32)
    job.store.register("w", w, reduce="sum")
    job.start()
    for step in job.steps(steps):
        job.store.push_pull("w", np.full(4, job.worker + 1, np.float32))
    return job.worker, float(w[0])


def fail_in_worker_1(job: pushpull.Job) -> None:
    job.store.register("w", np.zeros(4, np.float32))
    job.start()
    if job.worker == 1:
        raise LookupError("no such sample")
    for step in job.steps(10):
        job.store.push_pull("w", np.ones(4, np.float32))


def crash_once(job: pushpull.Job, folder: str) -> str:
    first = pathlib.Path(folder, "crashed")
    if not first.exists():
        first.touch()
        os._exit(7)
    return add_up(job, 3) and "restarted"


def train_for_ever(job: pushpull.Job) -> None:
    job.store.register("w", np.zeros(4, np.float32))
    job.start()
    print("training", flush=True)
    for step in job.steps(1 << 60):
        job.store.push_pull("w", np.ones(4, np.float32))


def local_for_ever(folder: str) -> None:
    with pushpull.local(workdir=folder) as job:
        train_for_ever(job)


def spawn_for_ever(folder: str) -> None:
    pushpull.spawn(train_for_ever, workdir=folder)


class LocalTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        temporary = unittest.mock.patch.object(tempfile, "tempdir", str(self.folder / "temporary"))
        (self.folder / "temporary").mkdir()
        temporary.start()
        self.addCleanup(temporary.stop)
        self.printed = io.StringIO()
        printed = contextlib.redirect_stderr(self.printed)
        printed.__enter__()
        self.addCleanup(printed.__exit__, None, None, None)

    def temporary_files(self) -> list[pathlib.Path]:
        return list((self.folder / "temporary").iterdir())

    def assert_ended(self, processes: list[int]) -> None:
        wait_until(lambda: not any(map(is_running, processes)), f"of {processes} some still run")

    def start_for_ever(self, name: str) -> tuple[subprocess.Popen, list[int]]:
        """A process that trains until it is stopped, and the processes of its job."""
        process = subprocess.Popen([sys.executable, __file__, name, str(self.folder / "work")], text=True, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        for line in process.stdout:
            if "training" in line:
                return process, processes_of(self.folder / "work")
        raise AssertionError("it has ended")

    def test_local_job_trains_in_this_process(self) -> None:
        w, gradient = np.zeros(10, np.float32), np.empty(10, np.float32)

        with pushpull.local(servers=2) as job:
            job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
            job.start()
            for step in job.steps(100):
                gradient[:] = 2 * (w - 3)
                job.store.push_pull("w", gradient)

        self.assertLess(abs(w - 3).max(), 1e-5)
        self.assertRegex(self.printed.getvalue(), "(?m)^local: succeeded after .*, 100 steps")
        self.assertEqual(self.temporary_files(), [])

    def test_local_job_ends_after_an_exception(self) -> None:
        with self.assertRaisesRegex(KeyError, "mine"):
            with pushpull.local(servers=1, workdir=self.folder / "work"):
                processes = processes_of(self.folder / "work")
                raise KeyError("mine")

        self.assertEqual(len(processes), 4)
        self.assert_ended(processes)
        self.assertEqual(self.temporary_files(), [])

    def test_nothing_goes_on_after_the_block(self) -> None:
        before = set(os.listdir("/proc/self/task"))
        for error in (None, SystemExit, KeyboardInterrupt, ValueError):
            with contextlib.suppress(SystemExit, KeyboardInterrupt, ValueError), pushpull.local() as job:
                add_up(job, 3)
                if error is not None:
                    raise error
            wait_until(lambda: set(os.listdir("/proc/self/task")) <= before, f"a thread is left after {error}")
            self.assertNotIn("no coordinator", self.printed.getvalue())

    def test_clean_end_prints_nothing_alarming(self) -> None:
        for ends in (lambda job: None, lambda job: add_up(job, 3)):
            with pushpull.local(settings={"spec.servers.replication": 1}) as job:
                ends(job)

        for words in ("is lost", "no coordinator", "no copy", "no connection"):
            self.assertNotIn(words, self.printed.getvalue())

    def test_wrong_setting_is_named(self) -> None:
        with self.assertRaisesRegex(ValueError, "^spec.servers.replicas: must be between 0 and 1024, is -1$"):
            with pushpull.local(servers=-1):
                pass
        with self.assertRaisesRegex(ValueError, "spec.sync.mode.*Slow"):
            pushpull.spawn(add_up, args=(1,), settings={"spec.sync.mode": "Slow"})

    def test_local_job_that_fails_names_its_logs(self) -> None:
        with self.assertRaises(pushpull.PushPullError) as failed:
            with pushpull.local(servers=1, settings={"spec.restart.backoffLimit": 0}, workdir=self.folder / "work") as job:
                w = np.zeros(4, np.float32)
                job.store.register("w", w)
                job.start()
                endpoints = json.loads((self.folder / "work/endpoints.json").read_text())
                os.kill(next(e["pid"] for e in endpoints if e["role"] == "server"), signal.SIGKILL)
                job.store.push_pull("w", np.ones_like(w)).wait(PATIENCE_SECONDS)

        self.assertEqual(failed.exception.code, "UNAVAILABLE")
        self.assertIn(f"logs: {self.folder}/work/logs", str(failed.exception))

    def test_spawn_returns_what_each_worker_returns(self) -> None:
        results = pushpull.spawn(add_up, workers=3, args=(5,))

        self.assertEqual(results, [(0, 6.0), (1, 6.0), (2, 6.0)])
        self.assertEqual(self.temporary_files(), [])

    def test_spawn_without_servers(self) -> None:
        results = pushpull.spawn(add_up, workers=3, servers=0, args=(5,), settings={"spec.sync.mode": "AllReduce"})

        self.assertEqual(results, [(0, 6.0), (1, 6.0), (2, 6.0)])

    def test_exception_in_a_worker_is_raised_with_its_traceback(self) -> None:
        with self.assertRaises(pushpull.PushPullError) as failed:
            pushpull.spawn(fail_in_worker_1, workers=2, servers=1)

        self.assertEqual((failed.exception.code, failed.exception.peer), ("ABORTED", "worker-1"))
        self.assertRegex(str(failed.exception), r"(?s)^worker-1: LookupError: no such sample.*in fail_in_worker_1\n.*logs: ")

    def test_worker_that_crashes_is_restarted(self) -> None:
        results = pushpull.spawn(crash_once, workers=1, servers=1, args=(str(self.folder),),
                                 settings={"spec.restart.initialDelaySeconds": 0})

        self.assertEqual(results, ["restarted"])

    def test_ctrl_c_ends_everything(self) -> None:
        for name in ("local_for_ever", "spawn_for_ever"):
            with self.subTest(name):
                process, processes = self.start_for_ever(name)

                process.send_signal(signal.SIGINT)

                printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
                self.assertEqual(process.returncode, -signal.SIGINT, printed)
                self.assertEqual([pid for pid in processes if is_running(pid)], [])

    def test_nothing_is_left_when_the_process_is_killed(self) -> None:
        for name in ("local_for_ever", "spawn_for_ever"):
            with self.subTest(name):
                process, processes = self.start_for_ever(name)

                process.kill()

                self.assert_ended(processes)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background without it
    globals()[sys.argv[1]](sys.argv[2])
