# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that rows_test.py runs: `rows_scenarios.py NAME [ARGUMENT...]`.

A scenario asserts; what it raises fails the job.
"""
import sys
from typing import Any

import numpy as np
import pushpull
import torch
from scenarios import OnlyDLPack, assert_raises, wait_counting

ROWS, DIM, STEPS = 300, 8, 24


# ---- by name ----

def rows_of(worker: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Some of the keys in any order, one of them twice, and their gradients; in some steps none."""
    random = np.random.default_rng(1000 * step + worker)
    keys = random.choice(ROWS, size=20 if (step + worker) % 5 else 0, replace=False).astype(np.uint64)
    keys = np.concatenate([keys, keys[:1]])
    return keys, random.normal(size=(len(keys), DIM)).astype(np.float32)


def trains_like_a_dense_tensor(kind: str) -> None:
    """The same gradients for rows and for a dense tensor; keys of NumPy, torch and DLPack."""
    optimizer = {"sgd": pushpull.SGD(lr=0.1), "adagrad": pushpull.Adagrad(lr=0.1)}[kind]
    with pushpull.init() as job:
        first = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
        dense = first.copy()
        job.store.register_rows("emb", ROWS, DIM, optimizer=optimizer, value=first)
        job.store.register("dense", dense, optimizer=optimizer)
        job.start()
        everything = np.arange(ROWS)
        for step in job.steps(STEPS):
            job.store.set_learning_rate(0.1 / (1 + step // 10))
            keys, values = rows_of(job.worker, step)
            gradient = np.zeros((ROWS, DIM), np.float32)
            np.add.at(gradient, keys.astype(np.int64), values)
            taken: Any = (keys, keys.astype(np.int64), torch.from_numpy(keys.astype(np.int64)), OnlyDLPack(keys))[step % 4]
            pushed = job.store.push_rows("emb", taken, torch.from_numpy(values), samples=job.worker + 1)
            job.store.push_pull("dense", gradient, samples=job.worker + 1).wait()
            pushed.wait()
            out = np.empty((ROWS, DIM), np.float32)
            pulled = job.store.pull_rows("emb", everything, out, min_step=job.step)
            pulled.wait()
            assert pulled.rows is out
            np.testing.assert_allclose(out, dense, rtol=0, atol=1e-6)
            some = job.store.pull_rows("emb", np.array([7, 3, 7], np.uint64))
            some.wait()
            np.testing.assert_array_equal(some.rows, out[[7, 3, 7]])


def rows_begin_and_are_evicted() -> None:
    """Both workers see the same initial rows of any key; a row that nobody pushes begins anew."""
    with pushpull.init() as job:
        job.store.register_rows("emb", ROWS, DIM, optimizer=pushpull.SGD(lr=1), init="uniform", scale=0.5, seed=3, evict_after=2)
        job.start()
        keys = np.array([5, 2**64 - 1, 17], np.uint64)

        def rows() -> np.ndarray:
            pulled = job.store.pull_rows("emb", keys)
            pulled.wait()
            received: np.ndarray = pulled.rows
            return received

        fresh = rows()
        assert len(np.unique(fresh)) == fresh.size and abs(fresh).max() <= 0.5, fresh
        np.testing.assert_array_equal(pushpull.all_reduce(fresh.copy(), "max"), fresh)
        for step in job.steps(5):
            used = keys if step == 0 else keys[:0]
            job.store.push_rows("emb", used, np.ones((len(used), DIM), np.float32)).wait()
            if step == 0:
                np.testing.assert_allclose(rows(), fresh - 1, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(rows(), fresh)


def rows_without_samples() -> None:
    """A worker that has no samples in a step pushes no rows; the others need it to push."""
    with pushpull.init() as job:
        job.use_samples(25, batch=8, epochs=2)
        job.store.register_rows("emb", ROWS, DIM, optimizer=pushpull.SGD(lr=1), reduce="sum")
        job.start()
        for shard in job.samples():
            job.store.push_rows("emb", shard.indices, np.full((shard.count, DIM), -1, np.float32), samples=shard.count)
        pulled = job.store.pull_rows("emb", np.arange(30))
        pulled.wait()
        np.testing.assert_array_equal(pulled.rows, np.repeat([[2.0], [0.0]], [25, 5], axis=0).repeat(DIM, axis=1))


def other_threads_run_in_waits() -> None:
    """The step of worker 0 ends only after a thread of it has counted while it waits."""
    with pushpull.init() as job:
        job.store.register_rows("emb", ROWS, DIM, optimizer=pushpull.SGD(lr=1))
        job.start()
        wait_counting(job, lambda: job.store.push_rows("emb", np.arange(3), np.ones((3, DIM), np.float32)))


def wrong_rows_are_named() -> None:
    with pushpull.init() as job:
        store, gradient, keys = job.store, np.zeros((2, DIM), np.float32), np.arange(2)
        sgd = pushpull.SGD(lr=1)
        assert_raises(TypeError, ['tensor "e": value', "float32", "float64"],
                      lambda: store.register_rows("e", 3, DIM, optimizer=sgd, value=np.zeros((3, DIM))))
        assert_raises(ValueError, ['tensor "e": value', f"(4, {DIM})", f"(3, {DIM})"],
                      lambda: store.register_rows("e", 4, DIM, optimizer=sgd, value=np.zeros((3, DIM), np.float32)))
        assert_raises(ValueError, ['tensor "e": init', "zeros, uniform, normal", '"ones"'],
                      lambda: store.register_rows("e", 4, DIM, optimizer=sgd, init="ones"))
        store.register_rows("emb", ROWS, DIM, optimizer=sgd)
        store.register("w", np.zeros((ROWS, DIM), np.float32), optimizer=sgd)
        assert_raises(ValueError, ['tensor "emb"', "already"], lambda: store.register_rows("emb", 1, 1, optimizer=sgd))
        job.start()
        push, pull = store.push_rows, store.pull_rows
        assert_raises(TypeError, ['tensor "emb": keys', "uint64 or int64", "int32"],
                      lambda: push("emb", keys.astype(np.int32), gradient))
        assert_raises(TypeError, ['tensor "emb": keys', "list"], lambda: push("emb", [1, 2], gradient))  # type: ignore[arg-type]
        assert_raises(ValueError, ['tensor "emb": keys', "0 or more", "-7", "position 1"],
                      lambda: push("emb", np.array([1, -7]), gradient))
        assert_raises(ValueError, ['tensor "emb": keys', "one dimension", "(1, 2)"], lambda: push("emb", keys[None], gradient))
        assert_raises(ValueError, ['tensor "emb": keys', "C-contiguous"], lambda: push("emb", np.arange(4)[::2], gradient))
        assert_raises(ValueError, ['tensor "emb": gradient', f"(2, {DIM})", "(2, 3)"],
                      lambda: push("emb", keys, gradient[:, :3].copy()))
        assert_raises(TypeError, ['tensor "emb": gradient', "float32", "float64"], lambda: push("emb", keys, gradient.astype(float)))
        assert_raises(ValueError, ['tensor "emb": out', f"(2, {DIM})", f"(3, {DIM})"],
                      lambda: pull("emb", keys, np.zeros((3, DIM), np.float32)))
        for call in (lambda: push("w", keys, gradient), lambda: pull("w", keys)):
            error = assert_raises(pushpull.PushPullError, ['"w" is dense'], call)
            assert (error.code, error.tensor) == ("INVALID_ARGUMENT", "w")
        whole = np.zeros((ROWS, DIM), np.float32)
        for dense in (lambda: store.push_pull("emb", whole, whole.copy()), lambda: store.push("emb", whole),
                      lambda: store.pull("emb", whole), lambda: store.pull_optimizer_state("emb", whole)):
            error = assert_raises(pushpull.PushPullError, ['"emb" is row-sparse', "push_rows"], dense)
            assert (error.code, error.tensor) == ("INVALID_ARGUMENT", "emb")
        error = assert_raises(pushpull.PushPullError, ['"x"', "no such tensor"], lambda: pull("x", keys))
        assert (error.code, error.tensor) == ("NOT_FOUND", "x")
        many = np.arange(100_000)
        error = assert_raises(pushpull.PushPullError, ['"emb"', "more rows than 300"],
                              lambda: push("emb", many, np.zeros((len(many), DIM), np.float32)))
        assert (error.code, error.tensor) == ("RESOURCE_EXHAUSTED", "emb")
        push("emb", keys, gradient).wait()


def settings_that_do_not_fit(setting: str) -> None:
    """start raises what the engine or the coordinator says."""
    job = pushpull.init()
    choices: dict[str, Any] = {"optimizer": pushpull.SGD(lr=1)}
    choices |= {"sum": {"optimizer": pushpull.Sum()}, "scale": {"init": "normal"}, "max": {"reduce": "max"}, "mode": {}}[setting]
    words = {"sum": "optimizer", "scale": "scale", "max": "mean or sum", "mode": "spec.sync.mode Sync"}[setting]
    job.store.register_rows("emb", ROWS, DIM, **choices)
    error = assert_raises(pushpull.PushPullError, ["emb", words], job.start)
    assert (error.code, error.tensor) == ("INVALID_ARGUMENT", "emb"), error
    sys.exit(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
