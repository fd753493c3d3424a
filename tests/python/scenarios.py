# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that package_test.py runs: `scenarios.py NAME`, in a folder that the job's workers share.

A scenario asserts; what it raises fails the job.
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Any, Callable, Optional

import numpy as np
import pushpull
from pushpull._command import PROGRAM

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))
PATIENCE_SECONDS = 30.0
CTRL_C_SECONDS = 0.2
END_OF_JOB = 3  # the exit code that ends a job at once


def wait_for(name: str, at_most: Optional[float] = None) -> None:
    """Until another worker has said `name`, which it must unless `at_most` is given, in seconds."""
    deadline, pause = time.monotonic() + (at_most or PATIENCE_SECONDS), threading.Event()
    while not (SHARED / name).exists():
        if time.monotonic() > deadline:
            assert at_most is not None, f"nobody said {name}"
            return
        pause.wait(0.01)


def say(name: str) -> None:
    (SHARED / name).touch()


def assert_raises(kind: type[Exception], words: list[str], call: Callable[[], Any]) -> Any:
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error!r} does not say {missing}"
        return error
    raise AssertionError(f"no {kind.__name__} that says {words}")


class OnlyDLPack:
    """An array of a library that this one knows nothing of."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def cannot_join() -> None:
    """A worker that joins in training says that it never can; the other one goes on."""
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.store.register("w", w)
        job.start()
        if job.worker == 1:
            assert job.start_step > 0
            job._end_for_good("begins at step 0 only")
            raise ValueError("begins at step 0 only")
        for step in job.steps(1_000_000):
            job.store.push_pull("w", np.ones(4, np.float32))
            if step == 3:
                subprocess.run([PROGRAM, "scale", "--coordinator", os.environ["PUSHPULL_COORDINATOR"], "--workers", "2"], check=True)
            if step > 3 and any(worker["left_out"] for worker in job.status()["workers"]):
                break


def long_result_names() -> None:
    with pushpull.init() as job:
        job.store.register("w", np.zeros(4, np.float32))
        job.start()
        error = assert_raises(pushpull.PushPullError, ["301 bytes", "at most 300"], lambda: job.report_result("x" * 301, 1))
        assert error.code == "INVALID_ARGUMENT"
        for step in job.steps(3):
            job.store.push_pull("w", np.ones(4, np.float32))
        job.report_result("x" * 300, 1)


def sums() -> None:
    """Both halves, a whole push_pull and a matrix: exact sums, in the caller's memory."""
    with pushpull.init() as job:
        store, n = job.store, job.workers
        vector, matrix = np.zeros(1000, np.float32), np.zeros((300, 400), np.float32)
        place = matrix.ctypes.data
        store.register("vector", vector, reduce="sum")
        store.register("matrix", matrix, reduce="sum")
        job.start()
        own, total = job.worker + 1, n * (n + 1) // 2
        for step in job.steps(20):
            gradient = np.arange(matrix.size, dtype=np.float32).reshape(matrix.shape) % 97
            pushed = store.push_pull("matrix", own * gradient, out=matrix)
            store.push("vector", np.full(1000, own * step, np.float32)).wait()
            store.pull("vector", out=vector, min_step=step + 1).wait(timeout=30)
            pushed.wait()
            assert pushed.done()
            np.testing.assert_array_equal(matrix, total * gradient)
            np.testing.assert_array_equal(vector, np.full(1000, total * step, np.float32))
        assert matrix.ctypes.data == place


def halves() -> None:
    """float16 both ways, also from registered memory: float32 sums, and values that float16 alone would not keep."""
    with pushpull.init() as job:
        store, n = job.store, job.workers
        total = np.zeros((30, 40), np.float16)
        kept = np.ones(100_000, np.float16)
        both = np.zeros(3, np.float16)
        store.register("total", total, reduce="sum")
        store.register("kept", kept, optimizer=pushpull.SGD(lr=1), reduce="mean")
        store.register("both", both, reduce="and")
        job.start()
        gradient = (np.arange(total.size).reshape(total.shape) % 97).astype(np.float16)
        registered = job.buffer(50_000).view(np.float16)
        registered[:] = 2.0 ** -12  # half of what float16 can add to 1
        for step in job.steps(4):
            store.push_pull("total", gradient)
            store.push_pull("kept", -registered)
            store.push_pull("both", np.array([1, job.worker, 0], np.float16))
            store.wait()
            np.testing.assert_array_equal(total, n * gradient)
            np.testing.assert_array_equal(both, np.array([1, 0, 0], np.float16))
        np.testing.assert_array_equal(kept, np.full(kept.size, 1 + 2.0 ** -10, np.float16))
        assert_raises(TypeError, ['tensor "total": gradient', "expected dtype float16, got float32"],
                      lambda: store.push("total", gradient.astype(np.float32)))
        assert_raises(pushpull.PushPullError, ['"total" of float16', "in_place"],
                      lambda: store.push_pull("total", gradient, in_place=True))


def converges() -> None:
    """The program of the package's docstring, with a learning rate that changes."""
    with pushpull.init() as job:
        w, gradient = np.zeros(10, np.float32), np.empty(10, np.float32)
        job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
        job.start()
        for step in job.steps(100):
            if step == 50:
                job.store.set_learning_rate(0.2)
            gradient[:] = 2 * (w - 3)
            before = w.copy()
            job.store.push_pull("w", gradient, out=w).wait()
            np.testing.assert_allclose(w, before - (0.1 if step < 50 else 0.2) * gradient, rtol=1e-6)
            job.report_loss(float((w[0] - 3) ** 2))
        job.report_result("distance", float(abs(w - 3).max()))


def bad_arguments() -> None:
    with pushpull.init() as job:
        store, w = job.store, np.zeros((4, 3), np.float32)
        frozen = np.zeros(3, np.float32)
        frozen.flags.writeable = False
        assert_raises(TypeError, ['tensor "a": value', "float32", "float64"], lambda: store.register("a", np.zeros(3)))
        assert_raises(TypeError, ['tensor "a": value', "array", "list"], lambda: store.register("a", [1.0]))  # type: ignore
        assert_raises(ValueError, ['tensor "a"', "writable", "read-only"], lambda: store.register("a", frozen))
        assert_raises(ValueError, ['tensor "a": reduce', "mean, sum, min, max", '"median"'],
                      lambda: store.register("a", np.zeros(3, np.float32), reduce="median"))
        store.register("w", w)
        assert_raises(ValueError, ['tensor "w"', "already"], lambda: store.register("w", w))
        assert assert_raises(pushpull.PushPullError, ["start()"],
                             lambda: store.push("w", w)).code == "FAILED_PRECONDITION"
        job.start()
        assert_raises(ValueError, ['tensor "w": gradient', "(4, 3)", "(3, 4)"],
                      lambda: store.push("w", np.zeros((3, 4), np.float32)))
        assert_raises(ValueError, ['tensor "w": gradient', "C-contiguous"],
                      lambda: store.push("w", np.zeros((3, 4), np.float32).T))
        assert_raises(TypeError, ['tensor "w": gradient', "float32", "int32"],
                      lambda: store.push("w", np.zeros((4, 3), np.int32)))
        assert_raises(ValueError, ['tensor "w": out', "gradient"], lambda: store.push_pull("w", w, out=w))
        pulled = store.pull("w", np.empty_like(w))
        assert_raises(ValueError, ["timeout", "0 or more"], lambda: pulled.wait(timeout=-1))
        pulled.wait()
        error = assert_raises(pushpull.PushPullError, ['"x"', "no such tensor", "w"], lambda: store.push("x", w))
        assert (error.code, error.tensor, error.step) == ("NOT_FOUND", "x", None)
        pulled = store.pull("w", np.empty_like(w), min_step=7)
        error = assert_raises(pushpull.PushPullError, ["not done in time"], lambda: pulled.wait(timeout=0.2))
        assert (error.code, error.tensor) == ("DEADLINE_EXCEEDED", "w"), error
        assert error.step == 7 and error.peer.startswith("server-"), error
        assert not pulled.done()
        job.close()
        assert_raises(pushpull.PushPullError, ["closed"], pulled.wait)
        assert_raises(pushpull.PushPullError, ["closed"], lambda: store.push("w", w))
        sys.exit(END_OF_JOB)  # it has left without a word


def wait_counting(job: pushpull.Job, push: Callable[[], Any]) -> None:
    """The other workers push after a thread of worker 0 has counted while worker 0 waits for its own push."""
    is_waiting = threading.Event()

    def count() -> None:
        is_waiting.wait()
        for _ in range(100_000):
            pass
        say("counted")

    if job.worker == 0:
        threading.Thread(target=count, daemon=True).start()
    else:
        wait_for("counted")
    handle = push()
    is_waiting.set()
    handle.wait(PATIENCE_SECONDS)


def other_threads_run() -> None:
    """Worker 1 pushes only after a thread of worker 0 has counted while worker 0 waits."""
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.store.register("w", w)
        job.start()
        wait_counting(job, lambda: job.store.push_pull("w", np.ones_like(w)))


def seconds_to_interrupt(call: Callable[[], Any]) -> float:
    """From Ctrl-C to the KeyboardInterrupt of `call`, which is under way by then."""
    sent = []

    def interrupt() -> None:
        threading.Event().wait(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        thread.join()
    raise AssertionError("no KeyboardInterrupt")


def ctrl_c() -> None:
    """In init and in start: worker 1 never registers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "127.0.0.1:%d" % silent.getsockname()[1]
        elsewhere = {**os.environ, "PUSHPULL_COORDINATOR": address, "PUSHPULL_ROLE": ""}
        took = [seconds_to_interrupt(lambda: pushpull.init(60, environment=elsewhere)) for _ in range(3)]
        assert min(took) < CTRL_C_SECONDS, took
    job = pushpull.init()
    if job.worker == 0:
        job.store.register("w", np.zeros(4, np.float32))
        assert seconds_to_interrupt(lambda: job.start(60)) < 10 * CTRL_C_SECONDS
        say("interrupted")
    wait_for("interrupted")
    sys.exit(END_OF_JOB)


def ctrl_c_in_wait() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.store.register("w", w)
        job.start()
        if job.worker == 0:
            handle = job.store.push_pull("w", np.ones_like(w))
            took = [seconds_to_interrupt(lambda: handle.wait(60)) for _ in range(3)]
            assert min(took) < CTRL_C_SECONDS, took
            say("interrupted")
            handle.wait()  # it is still under way
        else:
            wait_for("interrupted")
            job.store.push_pull("w", np.ones_like(w)).wait()
        np.testing.assert_array_equal(w, np.ones(4))


def samples() -> None:
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.use_samples(1000, batch=32, epochs=2)
        job.store.register("w", w, optimizer=pushpull.Adam(lr=0.01))
        job.start()
        seen = []
        for shard in job.samples():
            assert shard.count == len(shard.indices) <= shard.total
            seen += [[shard.epoch, int(index)] for index in shard.indices]
            job.store.push_pull("w", np.ones_like(w))
        (SHARED / f"samples-{job.worker}").write_text(json.dumps(seen))


def dlpack() -> None:
    with pushpull.init() as job:
        w = np.zeros((2, 3), np.float32)
        frozen = np.ones((2, 3), np.float32)
        frozen.flags.writeable = False
        job.store.register("w", OnlyDLPack(w), reduce="sum")
        job.start()
        job.store.push_pull("w", OnlyDLPack(np.ones((2, 3), np.float32)), out=OnlyDLPack(w)).wait()
        np.testing.assert_array_equal(w, np.full((2, 3), job.workers))
        job.store.push_pull("w", frozen, out=memoryview(w)).wait()  # type: ignore[arg-type]
        np.testing.assert_array_equal(w, np.full((2, 3), job.workers))


def status() -> None:
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.store.register("w", w)
        job.start()
        for step in job.steps(5):
            job.store.push_pull("w", w + 1)
        known = job.status()
        assert known["job"] == "status" and known["mode"] == "Sync", known
        assert len(known["servers"]) == 2 and len(known["workers"]) == 1 and known["step"] <= 5, known
        job._environment["PUSHPULL_COORDINATOR"] = "127.0.0.1:1"
        assert assert_raises(pushpull.PushPullError, ["127.0.0.1:1"], job.status).code == "UNAVAILABLE"


def in_place() -> None:
    """Gradients in registered memory are read, and sums can be, where they are."""
    with pushpull.init() as job:
        gradients = job.buffer((2, 1 << 18))
        first, second = gradients
        job.store.register("first", np.zeros_like(first), reduce="sum")
        job.store.register("second", np.zeros_like(second), reduce="sum")
        job.start()
        for step in job.steps(20):
            gradients[:] = step
            out = np.empty_like(first)
            handle = job.store.push_pull("first", first, out=out, in_place=True)
            job.store.push_pull("second", second).wait()
            handle.wait()
            pieces = handle.pieces()
            if pieces:
                assert all(not piece.flags.writeable and (piece == step * job.workers).all() for piece in pieces)
                assert sum(piece.size for piece in pieces) <= first.size
        endpoints = json.loads((SHARED / ".pushpull/in-place/endpoints.json").read_text())
        metrics = next(e["metrics"] for e in endpoints if e["role"] == "server")
        with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
            text = answer.read().decode()
        line = next(line for line in text.splitlines() if line.startswith("pushpull_push_in_place_bytes_total"))
        assert float(line.split()[-1]) > 0, line
    assert gradients[0, 0] == 19  # its memory outlives the job


def told_to_end() -> None:
    """The first process is told to end in its fifth step; another one makes the rest."""
    is_first = not (SHARED / "told").exists()
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.store.register("w", w, optimizer=pushpull.SGD(lr=1))
        job.start()
        assert (job.start_step == 0) == is_first
        for step in job.steps(10):
            if step == 4:
                say("told")
                os.kill(os.getpid(), signal.SIGTERM)
            job.store.push_pull("w", -np.ones_like(w))
        assert job.is_released == is_first
        assert is_first or w[0] == 10, w


def left_out() -> None:
    """Worker 1 does not push "b" in step 3."""
    job = pushpull.init()
    values = {name: np.zeros(4, np.float32) for name in "ab"}
    for name, value in values.items():
        job.store.register(name, value, reduce="sum")
    job.start()

    def train() -> None:
        for step in job.steps(8):
            gradient = np.full(4, step, np.float32)
            job.store.push_pull("a", gradient)
            if job.worker == 0 or step != 3:
                handle = job.store.push_pull("b", gradient)
                if step == 3:
                    wait_for("refused")
                    assert not handle.done()
                    sys.exit(END_OF_JOB)
                handle.wait()
                assert values["b"][0] == 2 * step, (step, values["b"])

    error = assert_raises(pushpull.PushPullError, ['tensor "b"', "worker-1", "step 3"], train)
    assert (job.worker, error.code, error.tensor, error.step) == (1, "FAILED_PRECONDITION", "b", 3), error
    assert_raises(pushpull.PushPullError, ['tensor "b"', '"a" for step 4'], lambda: job.store.push("a", np.zeros(4, np.float32)))
    assert_raises(pushpull.PushPullError, ['tensor "b"', "step 3"], lambda: job.store.push("b", np.zeros(4, np.float32)))
    assert_raises(pushpull.PushPullError, ['tensor "b"', "step 3"], job.leave)
    say("refused")
    sys.exit(END_OF_JOB)


def awaited() -> None:
    """Worker 1 pushes, and comes to the barrier, when worker 0 knows that it is waited for."""
    with pushpull.init() as job:
        w = np.zeros(4, np.float32)
        job.store.register("w", w)
        job.start()
        if job.worker == 1:
            wait_for("named for its push")
        handle = job.store.push_pull("w", np.ones_like(w))
        if job.worker == 0:
            name_worker_1(handle.wait)
            say("named for its push")
        handle.wait()
        if job.worker == 0:
            name_worker_1(lambda timeout: pushpull.barrier(timeout=timeout))
            say("named for the barrier")
        else:
            wait_for("named for the barrier")
        pushpull.barrier()
        index = job.worker
    assert job.worker == index


def name_worker_1(wait: Callable[[float], Any]) -> None:
    """Until the error of the wait names it."""
    for _ in range(int(PATIENCE_SECONDS)):
        error = assert_raises(pushpull.PushPullError, ["not done in time"], lambda: wait(1))
        assert error.code == "DEADLINE_EXCEEDED", error
        if error.peer == "worker-1":
            assert "timeout" in str(error), error
            return
    raise AssertionError(f"{error} does not name worker-1")


def told_to_end_at_the_start() -> None:
    """Without a `with` block, while it waits for worker 1; another process takes its place. Exit code 1 would end the job."""
    job = pushpull.init()
    if job.worker == 1:
        wait_for("told")
    elif not (SHARED / "told").exists():
        threading.Thread(target=end_this_process_soon, daemon=True).start()
    w = np.zeros(4, np.float32)
    job.store.register("w", w, reduce="sum")
    job.start()
    job.store.push_pull("w", np.ones_like(w)).wait()
    job.end()


def end_this_process_soon() -> None:
    threading.Event().wait(0.3)
    say("told")
    os.kill(os.getpid(), signal.SIGTERM)


def forked_processes() -> None:
    """What a worker forks is no part of it: SIGTERM ends it alone, it holds fewer sockets, and it may end as any program does."""
    assert "PUSHPULL_MEMBER" not in os.environ
    job = pushpull.init()
    w, buffer = np.zeros(4, np.float32), job.buffer(4)
    job.store.register("w", w, reduce="sum")
    job.start()
    for _ in job.steps(3):
        buffer[:] = 1
        job.store.push_pull("w", buffer).wait()
        assert list(w) == [job.workers] * 4
        told = fork(signal.pause)
        os.kill(told, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(told, 0)[1]) == -signal.SIGTERM
        assert not job.is_released
        sockets = num_sockets()
        for act in (lambda: sys.exit(num_sockets() >= sockets), use_forked):
            assert os.waitpid(fork(act), 0)[1] == 0, act
        joined = subprocess.run([sys.executable, "-c", "import pushpull; pushpull.init()"], stderr=subprocess.PIPE, text=True,
                                timeout=PATIENCE_SECONDS, check=False)
        assert joined.returncode == 1 and f"process {os.getpid()} has joined as this worker" in joined.stderr, joined
    job.end()
    assert "PUSHPULL_MEMBER" not in os.environ


def fork(act: Callable[[], object]) -> int:
    """The process that runs `act` and then ends as a script does."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_SECONDS))  # for an end that hangs
        act()
        sys.exit()
    return child


def use_forked() -> None:
    assert_raises(pushpull.PushPullError, ["forked"], lambda: pushpull.current_job().step)
    assert_raises(pushpull.PushPullError, ["has joined as this worker"], pushpull.init)


def num_sockets() -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
