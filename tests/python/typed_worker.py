# SPDX-License-Identifier: Apache-2.0
"""Every call of the package with its types, for mypy --strict; never run."""
import numpy
import numpy.typing
import pushpull


def train(job: pushpull.Job, w: pushpull.Array) -> float:
    gradient = job.buffer((4, 3))
    job.use_samples(1000, batch=32, epochs=2, global_batch=True)
    job.store.register("w", w, optimizer=pushpull.AdamW(lr=0.1, betas=(0.8, 0.9)), reduce="mean", codec="bf16",
                       keeps_value=False)
    job.store.register_rows("emb", 10_000_000, 3, optimizer=pushpull.Adagrad(lr=0.1), init="normal", scale=0.1, seed=1,
                            evict_after=1000, reduce="sum")
    job.store.register_rows("first", 4, 3, optimizer=pushpull.SGD(lr=0.1), value=gradient)
    job.start(timeout=10)
    for shard in job.samples():
        gradient[:] = numpy.float32(shard.indices.sum())
        handle: pushpull.Handle = job.store.push_pull("w", gradient, out=w, samples=shard.count, lr=0.2)
        job.store.push("w", gradient).wait(timeout=1)
        job.store.pull("w", out=w, min_step=job.step).wait()
        keys = shard.indices.astype(numpy.uint64)
        pulled: pushpull.Handle = job.store.pull_rows("emb", keys, min_step=job.step)
        pulled.wait()
        embedded: numpy.typing.NDArray[numpy.float32] = pulled.rows
        job.store.pull_rows("first", keys, out=embedded)
        job.store.push_rows("emb", keys, embedded, samples=shard.count, lr=0.2).wait()
        handle.wait()
        pieces = handle.pieces()
        job.report_loss(0.5, samples=shard.count)
    for step in job.steps(end=100):
        job.store.set_learning_rate(0.1 / (1 + step))
    everybody: list[int] = pushpull.barrier(timeout=1)
    loss: float = pushpull.all_reduce(0.5, "mean", job=job)
    counts: numpy.typing.NDArray[numpy.int64] = pushpull.all_reduce(numpy.zeros(3, numpy.int64), "max")
    rows = pushpull.all_gather(counts)
    words: bytes = pushpull.broadcast(b"words", root=everybody[0])
    pushpull.send(counts, to=everybody[-1], timeout=1)
    same: numpy.typing.NDArray[numpy.int64] = pushpull.recv(0, out=counts)
    came = pushpull.send_recv(words, to=1, from_=0, job=job)
    same = pushpull.send_recv(2, 1, 0, out=same)
    try:
        job.leave()
    except pushpull.PushPullError as error:
        place: tuple[str, str | None, str | None, int | None] = (error.code, error.peer, error.tensor, error.step)
        raise SystemExit(job.exit_code) from error
    return float(gradient.sum())


def run_here(job: pushpull.Job, scale: float) -> str:
    return f"{job.worker} {scale}"


def start_jobs() -> None:
    with pushpull.local(servers=1, settings={"spec.sync.gated": True}, workdir="work", timeout=5) as job:
        job.start()
    results: list[str] = pushpull.spawn(run_here, workers=3, servers=1, args=(0.5,))
    assert len(results) == 3


def look_at(folder: str) -> float:
    checkpoint: pushpull.Checkpoint = pushpull.load_checkpoint(folder)
    value = checkpoint["w"]
    state: pushpull.OptimizerState = checkpoint.optimizer_state("w")
    epoch = checkpoint.position.epoch if checkpoint.position is not None else 0
    total = value.rows.sum() if isinstance(value, pushpull.Rows) else value.sum()
    return float(total) + float(state.rows.sum()) + (state.updates or 0) + epoch + checkpoint.step + len(checkpoint.names)
