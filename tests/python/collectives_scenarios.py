# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that collectives_test.py runs: `collectives_scenarios.py NAME`.

A scenario asserts; what it raises fails the job.
"""
import math
import os
import signal
import sys
import time
from typing import Any

import numpy as np
import pushpull
import torch
from scenarios import OnlyDLPack, assert_raises, say, wait_for

DTYPES = ("float32", "float64", "int32", "int64")


def join() -> tuple[pushpull.Job, np.ndarray]:
    job = pushpull.init()
    w = np.zeros(200_000, np.float32)
    job.store.register("w", w)
    job.start()
    return job, w


def arrays() -> None:
    """Every operation on every dtype, over several pieces and none; NumPy and torch."""
    job, _ = join()
    with job:
        for dtype in DTYPES:
            for size in (0, 1, 300_001):
                mine = np.full(size, job.worker + 2, dtype)
                assert pushpull.all_reduce(mine) is mine
                assert mine.dtype == dtype and (mine == 5).all(), (dtype, size)
                assert (pushpull.all_reduce(np.full(size, job.worker, dtype), "max") == 1).all()
                assert (pushpull.all_reduce(np.full(size, job.worker, dtype), "min") == 0).all()
                gathered = pushpull.all_gather(np.full((2, size), job.worker, dtype))
                assert gathered.shape == (2, 2, size) and gathered.dtype == dtype
                assert (gathered == np.array([0, 1], dtype).reshape(2, 1, 1)).all()
                assert (pushpull.broadcast(np.full(size, job.worker, dtype), 1) == 1).all()
                assert (pushpull.broadcast(np.full(size, job.worker, dtype)) == 0).all()
        assert (pushpull.all_reduce(np.full(3, job.worker, np.float32), "mean") == 0.5).all()
        tensor = torch.full((3, 4), float(job.worker), dtype=torch.float64, requires_grad=True)
        assert pushpull.all_reduce(tensor) is tensor and bool((tensor == 1).all())
        rows = pushpull.all_gather(torch.tensor([job.worker]))
        assert isinstance(rows, torch.Tensor) and rows.tolist() == [[0], [1]]
        assert pushpull.all_reduce(np.array([job.worker == 0, True]), "min").tolist() == [False, True]


def halves() -> None:
    """float16 and bfloat16: of torch, NumPy and DLPack, over several pieces and none."""
    job, _ = join()
    with job:
        for dtype in (torch.float16, torch.bfloat16):
            for size in (0, 1, 300_001):
                mine = torch.full((size,), job.worker + 2, dtype=dtype)
                assert pushpull.all_reduce(mine) is mine
                assert mine.dtype == dtype and bool((mine == 5).all()), (dtype, size)
                assert bool((pushpull.all_reduce(torch.full((size,), job.worker, dtype=dtype), "max") == 1).all())
                assert bool((pushpull.all_reduce(torch.full((size,), job.worker, dtype=dtype), "min") == 0).all())
                assert bool((pushpull.all_reduce(torch.full((size,), job.worker, dtype=dtype), "mean") == 0.5).all())
                gathered = pushpull.all_gather(torch.full((2, size), job.worker, dtype=dtype))
                assert isinstance(gathered, torch.Tensor) and gathered.dtype == dtype and gathered.shape == (2, 2, size)
                assert bool((gathered == torch.tensor([0, 1]).reshape(2, 1, 1)).all())
                assert bool((pushpull.broadcast(torch.full((size,), job.worker, dtype=dtype), 1) == 1).all())
        # In float16 60,000 + 60,000 is infinite, and in bfloat16 256 + 1 is 256.
        assert pushpull.all_reduce(np.full(3, 60_000, np.float16), "mean").tolist() == [60_000] * 3
        assert np.isinf(pushpull.all_reduce(np.full(3, 60_000, np.float16))).all()
        parameter = torch.nn.Parameter(torch.tensor([[256.0 if job.worker else 3.0]], dtype=torch.bfloat16))
        assert pushpull.all_reduce(parameter, "mean") is parameter and parameter.item() == 130
        assert pushpull.all_gather(np.float16(job.worker)).dtype == np.float16
        assert pushpull.all_reduce(np.float16(0.5)) == 1.0
        # NumPy has no bfloat16.
        rows = pushpull.all_gather(OnlyDLPack(torch.tensor([0.5, -job.worker], dtype=torch.bfloat16)))
        assert rows.dtype == np.float32 and rows.tolist() == [[0.5, 0], [0.5, -1]]



def values() -> None:
    """Numbers and bytes."""
    job, _ = join()
    with job:
        assert pushpull.barrier() == [0, 1]
        assert pushpull.all_reduce(job.worker + 1) == 3
        assert pushpull.all_reduce(0.5 * job.worker, "mean") == 0.25
        assert pushpull.all_reduce(job.worker, "mean") == 0.5
        assert pushpull.all_reduce(job.worker == 1, "max") is True
        assert math.isnan(pushpull.all_reduce(math.nan if job.worker else 1.0, "max"))
        assert pushpull.all_gather(job.worker * 10).tolist() == [0, 10]
        assert pushpull.all_gather(b"a" * job.worker * 3) == [b"", b"aaa"]
        assert pushpull.broadcast(7 + job.worker, 1) == 8
        assert pushpull.broadcast(b"words" if job.worker == 0 else b"") == b"words"
        assert pushpull.broadcast(b"of worker 1" if job.worker else b"longer than that", 1) == b"of worker 1"


def errors() -> None:
    job = pushpull.init()
    w = np.zeros(4, np.float32)
    job.store.register("w", w)
    failed = assert_raises(pushpull.PushPullError, ["register the tensors"], pushpull.barrier)
    assert failed.code == "FAILED_PRECONDITION"
    job.start()
    with job:
        assert_raises(TypeError, ["all_reduce: value", "float32, float64, float16, bfloat16, int32, int64", "got int16"],
                      lambda: pushpull.all_reduce(np.zeros(2, np.int16)))
        assert_raises(ValueError, ["sum, mean, min, max", '"product"'], lambda: pushpull.all_reduce(np.zeros(2), "product"))
        assert_raises(ValueError, ["C-contiguous"], lambda: pushpull.all_reduce(np.zeros((4, 4)).T[1:]))
        frozen = np.zeros(2)
        frozen.setflags(write=False)
        assert_raises(ValueError, ["writable"], lambda: pushpull.broadcast(frozen))
        assert_raises(TypeError, ["bool", '"max" (any)'], lambda: pushpull.all_reduce(np.zeros(2, bool)))
        failed = assert_raises(pushpull.PushPullError, ["a mean is one of float32, float64, float16 or bfloat16"],
                               lambda: pushpull.all_reduce(np.zeros(2, np.int64), "mean"))
        assert failed.code == "INVALID_ARGUMENT"
        failed = assert_raises(pushpull.PushPullError, ["at most 67108864"],
                               lambda: pushpull.all_reduce(np.zeros(2 ** 23 + 1)))
        assert failed.code == "RESOURCE_EXHAUSTED"
        if job.worker == 0:
            different: Any = lambda: pushpull.all_reduce(np.zeros(3))
        else:
            different = pushpull.barrier
        failed = assert_raises(pushpull.PushPullError,
                               ["worker-0 calls all_reduce(sum) of 3 float64 values", "worker-1 calls barrier"], different)
        assert failed.code == "INVALID_ARGUMENT"
        assert_raises(pushpull.PushPullError, ["worker-7 is not among the workers"], lambda: pushpull.broadcast(1.0, 7))
        if job.worker == 0:
            failed = assert_raises(pushpull.PushPullError, ["another worker has not called it yet"],
                                   lambda: pushpull.all_reduce(1.0, timeout=0.2))
            assert failed.code == "DEADLINE_EXCEEDED"
            failed = assert_raises(pushpull.PushPullError, ["is still under way"], lambda: pushpull.barrier(timeout=0.2))
            assert failed.code == "FAILED_PRECONDITION"
            say("late")
        else:
            wait_for("late")
        assert pushpull.all_reduce(1.0) == 2.0


def in_steps() -> None:
    """Metrics and a decision to stop, between the pushes of a training."""
    job, w = join()
    with job:
        seed = pushpull.broadcast(int(time.time()) + job.worker) if job.start_step == 0 else 0
        for step in job.steps(1000):
            job.store.push_pull("w", np.full(w.size, 1, np.float32), out=w)
            loss, count = pushpull.all_reduce(np.array([float(job.worker), 1.0]))
            assert (loss, count) == (1.0, 2.0)
            if pushpull.all_reduce(step == 5 and job.worker == 1, "max"):
                break
        assert step == 5 and (pushpull.all_gather(seed) == seed).all()
        job.report_result("stopped_after", step)


def a_worker_dies() -> None:
    """Worker 2 is killed in its second call; the others go on, and it comes back."""
    job, w = join()
    is_first_life = job.worker == 2 and not os.path.exists(os.path.join(os.environ["SCENARIO_FOLDER"], "killed"))
    with job:
        for step in job.steps(1_000_000):
            took_part = len(pushpull.all_gather(1))
            total = pushpull.all_reduce(np.ones(200_000))
            assert (total == total[0]).all() and total[0] <= took_part
            if step == 5 and is_first_life:
                say("killed")
                os.kill(os.getpid(), signal.SIGKILL)
            job.store.push_pull("w", np.full(w.size, 1, np.float32), out=w)
            if pushpull.all_reduce(step > 5 and len(pushpull.barrier()) == 3, "min"):
                break
        job.report_result("workers_in_the_end", len(pushpull.barrier()))


def through_a_failure() -> None:
    """Sums in a job whose servers change meanwhile: a tenth of the calls over several pieces."""
    job, w = join()
    with job:
        calls = 0
        for step in job.steps(1000):
            for call in range(10):
                size = 100_000 if call == 0 else 3
                total = pushpull.all_reduce(np.full(size, step + job.worker, np.int64))
                assert (total == 2 * step + 1).all()
                calls += 1
            if step == 20 and job.worker == 0:
                say("exchanging")
            job.store.push_pull("w", np.full(w.size, 1, np.float32), out=w)
        job.report_result("calls", calls)


def messages() -> None:
    """Every kind of value, from worker 0 to worker 1 and back."""
    job, _ = join()
    other = 1 - job.worker

    def passed(value: Any, **options: Any) -> Any:
        if job.worker == 0:
            pushpull.send(value, other)
            return pushpull.recv(other, **options)
        again = pushpull.recv(other)
        pushpull.send(again, other)
        return again

    with job:
        for dtype in (*DTYPES, "float16", "uint8", "bool"):
            for shape in ((), (0,), (3,), (2, 3, 4), (300_001,)):
                value = (np.arange(math.prod(shape)) % 2).astype(dtype).reshape(shape)
                again = passed(value)
                assert again.dtype == value.dtype and again.shape == shape, (again.dtype, again.shape)
                assert (again == value).all()
                again[...] = 1  # its own memory
        for each in (b"", b"some bytes", bytes(1_000_000), 7, 2.5, True, np.float32(0.5), np.int32(-3)):
            again = passed(each)
            assert again == each and isinstance(again, (bytes, bool, int, float)), each
        tensor = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
        assert passed(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
        # NumPy has no bfloat16, a tensor does.
        rounded = torch.tensor([1.0, -2.5, math.inf, 3e38], dtype=torch.bfloat16)
        again = passed(rounded)
        assert again.dtype == np.float32 and (again == rounded.float().numpy()).all()
        swapped = torch.zeros(4, dtype=torch.bfloat16)
        assert pushpull.send_recv(rounded, other, other, out=swapped) is swapped and torch.equal(swapped, rounded)
        frozen = np.ones(4)
        frozen.setflags(write=False)
        out = torch.zeros(4, dtype=torch.float64)
        if job.worker == 0:
            pushpull.send(frozen, 1)
        else:
            assert pushpull.recv(0, out=out) is out and out.tolist() == [1, 1, 1, 1]
        # In order; a swap; and between them a collective.
        for number in range(50):
            if job.worker == 0:
                pushpull.send(number, 1)
            else:
                assert pushpull.recv(0) == number
        assert pushpull.send_recv(f"of {job.worker}".encode(), other, other) == f"of {other}".encode()
        assert pushpull.all_reduce(1) == 2
        mine, theirs = np.full(200_000, job.worker, np.int64), np.empty(200_000, np.int64)
        assert pushpull.send_recv(mine, to=other, from_=other, out=theirs) is theirs and (theirs == other).all()


def message_errors() -> None:
    job, _ = join()
    other = 1 - job.worker
    with job:
        failed = assert_raises(pushpull.PushPullError, [f"worker-{job.worker} is this worker"],
                               lambda: pushpull.send(1, job.worker))
        assert failed.code == "INVALID_ARGUMENT"
        failed = assert_raises(pushpull.PushPullError, ["worker-7 is not among the workers of this step"],
                               lambda: pushpull.recv(7))
        assert failed.code == "NOT_FOUND"
        failed = assert_raises(pushpull.PushPullError, ["worker-70000 is out of range"], lambda: pushpull.send(b"", 70_000))
        assert failed.code == "INVALID_ARGUMENT"
        assert_raises(ValueError, ["recv: from_", "got -1"], lambda: pushpull.recv(-1))
        assert_raises(TypeError, ["send: value", "int16"], lambda: pushpull.send(np.zeros(2, np.int16), other))
        assert_raises(ValueError, ["C-contiguous"], lambda: pushpull.send(np.zeros((4, 4)).T[1:], other))
        assert_raises(TypeError, ["send_recv: out", "list"], lambda: pushpull.send_recv(1, other, other, out=[1]))
        frozen = np.zeros(2)
        frozen.setflags(write=False)
        assert_raises(ValueError, ["recv: out", "writable"], lambda: pushpull.recv(other, out=frozen))
        if job.worker == 0:
            wrong: Any = lambda: pushpull.send(np.zeros(3), 1)
        else:
            wrong = lambda: pushpull.recv(0, out=np.zeros(4, np.float32))
        failed = assert_raises(pushpull.PushPullError,
                               ["worker-0 sends 3 float64 values", "worker-1 expects 4 float32 values"], wrong)
        assert failed.code == "INVALID_ARGUMENT"
        if job.worker == 0:
            failed = assert_raises(pushpull.PushPullError, ["worker-1 has not received it yet"],
                                   lambda: pushpull.send(b"late", 1, timeout=0.2))
            assert failed.code == "DEADLINE_EXCEEDED"
            failed = assert_raises(pushpull.PushPullError, ["is still under way"], lambda: pushpull.barrier(timeout=0.2))
            assert failed.code == "FAILED_PRECONDITION"
            say("late")
            pushpull.send(b"late", 1)
        else:
            wait_for("late")
            assert pushpull.recv(0) == b"late"
        assert pushpull.send_recv(job.worker, other, other) == other


def ring_shift() -> None:
    """Arrays and bytes go around a ring, several times a step, before and after the pushes."""
    job, w = join()
    right, left = (job.worker + 1) % 4, (job.worker - 1) % 4
    with job:
        shifts = 0
        for step in job.steps(100):
            for call in range(4):
                if call == 2:
                    job.store.push_pull("w", np.full(w.size, 1, np.float32), out=w)
                if call == 3:
                    text = f"step {step} of worker {job.worker}".encode()
                    assert pushpull.send_recv(text, right, left) == f"step {step} of worker {left}".encode()
                else:
                    size = 100_000 if call == 0 else 3
                    came = pushpull.send_recv(np.full(size, 10 * step + job.worker, np.int64), right, left)
                    assert came.shape == (size,) and (came == 10 * step + left).all()
                shifts += 1
            if step == 20 and job.worker == 0:
                say("exchanging")
        job.report_result("shifts", shifts)


def a_partner_dies() -> None:
    """Worker 1 is killed while worker 0 sends to it; worker 0 goes on, and swaps with the process that comes in its place."""
    job, w = join()
    other = 1 - job.worker
    is_first_life = job.worker == 1 and not os.path.exists(os.path.join(os.environ["SCENARIO_FOLDER"], "killed"))
    with job:
        has_failed = False
        for step in job.steps(1_000_000):
            if step == 5 and is_first_life:
                say("killed")
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                came = pushpull.send_recv(np.full(200_000, step), other, other)
                assert (came == step).all()
                is_back = has_failed or job.start_step > 0
            except pushpull.PushPullError as error:
                assert error.code == "NOT_FOUND" and f"worker-{other} is not among the workers" in str(error), error
                has_failed, is_back = True, False
            job.store.push_pull("w", np.full(w.size, 1, np.float32), out=w)
            if is_back:
                break
        job.report_result("swapped_with_the_new_one", int(is_back))


def speed() -> None:
    """Prints medians in microseconds."""
    job, _ = join()
    with job:
        for name, call, repeats in (("barrier", pushpull.barrier, 500),
                                    ("8 bytes", lambda: pushpull.all_reduce(np.ones(1)), 500),
                                    ("4 MiB", lambda: pushpull.all_reduce(np.ones(2 ** 19)), 30)):
            seconds = []
            for _ in range(repeats):
                start = time.perf_counter()
                call()  # type: ignore[operator]
                seconds.append(time.perf_counter() - start)
            job.report_result(name, float(np.median(seconds)) * 1e6)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
