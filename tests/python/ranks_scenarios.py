# SPDX-License-Identifier: Apache-2.0
"""Workers of several processes in the jobs of ranks_test.py: `torchrun ... ranks_scenarios.py NAME [ARGUMENT...]`.

A scenario asserts; what it raises fails the job.
"""
import contextlib
import json
import os
import signal
import sys
from typing import Any

import pushpull
import pushpull.torch as pp
import torch
from pushpull.torch._local_ranks import job_of_one_process
from scenarios import assert_raises, wait_for
from torch import nn
from torch_scenarios import DEVICE, OPTIMIZERS, SHARED, STEPS, groups_of, loss_of, model_of, values_of

RANKS = 2
SAMPLES, FEATURES = 103, 20
EPOCHS = 2
END_OF_RANK = 1


def data_set() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    return torch.utils.data.TensorDataset(torch.arange(SAMPLES), x, x[:, :5].argmax(dim=1))


def trains_as_one_process(kind: str, clip: str) -> None:
    """The same weights as one process that has the data of all ranks of all workers."""
    job = pp.init()
    clip_norm = float(clip) or None
    model = model_of(seed=10 * job.worker + job.local_rank)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS[kind](groups_of(model)), model=model, clip_norm=clip_norm)
    job.start()
    alone = model_of(seed=7)
    alone.load_state_dict(model.state_dict())
    by_torch = OPTIMIZERS[kind](groups_of(alone))
    for step in job.steps(STEPS):
        optimizer.zero_grad()
        loss_of(model, RANKS * job.worker + job.local_rank, step).backward()
        optimizer.step()
        by_torch.zero_grad()
        for part in range(RANKS * job.workers):
            (loss_of(alone, part, step) / RANKS / job.workers).backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(alone.parameters(), clip_norm)
        by_torch.step()
        if job.local_rank == 0 and step == 5:  # the others are in the next step
            model.eval()
            assert loss_of(model, 0, step) > 0
            model.train()
            assert optimizer.state_dict()["state"]
            job.report_loss(1.0)
    values = values_of(model)
    for name, value in values_of(alone).items():
        torch.testing.assert_close(values[name], value, rtol=1e-3, atol=2e-5)
    _save(job, values)
    job.end()


def divides_samples(processes: str, accumulate: str, told_to_end: str) -> None:
    """Every sample counts once, also where a rank has none."""
    job = pp.init()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 5)).to(DEVICE)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model=model)
    loader = pp.ElasticDataLoader(data_set(), batch_size=10, epochs=EPOCHS, num_workers=int(processes), accumulate=int(accumulate))
    seen: list[int] = []
    try:
        for _ in range(EPOCHS):
            for numbers, x, y in loader:
                loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE)) * loader.fraction_of_step
                with contextlib.nullcontext() if loader.is_last_of_step else optimizer.no_sync():
                    loss.backward()
                optimizer.step()
                if loader.is_last_of_step:
                    optimizer.zero_grad()
                if job._share_of_rank > 0:
                    seen += numbers.tolist()
                if told_to_end == "once" and (job.worker, job.local_rank, job.step) == (1, 0, 4) and _first_time():
                    os.kill(os.getppid(), signal.SIGTERM)  # torchrun
    finally:
        (SHARED / f"samples-{job.worker}-{job.local_rank}-{os.getpid()}").write_text(json.dumps(seen))
    _save(job, values_of(model))
    job.end()


def averages_statistics() -> None:
    """The statistics of batch norm become the mean over all ranks of all workers."""
    job = pp.init()
    torch.manual_seed(job.local_rank)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=1.0)).to(DEVICE)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model=model)
    job.start()
    batches = [torch.full((2, 4), float(part), device=DEVICE) for part in range(RANKS * job.workers)]
    model(batches[RANKS * job.worker + job.local_rank]).sum().backward()
    optimizer.step()
    linear, norm = model
    expected = sum(linear(batch).mean(dim=0) for batch in batches) / len(batches)
    torch.testing.assert_close(norm.running_mean.cpu(), expected.detach().cpu())
    _save(job, values_of(model))
    job.end()


def forks() -> None:
    """SIGTERM ends a process that a rank has forked, which pools and loaders rely on."""
    job = pp.init()
    model = model_of(seed=1)
    pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    job.start()
    is_there, says = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os.write(says, b".")
        signal.pause()
        os._exit(1)
    os.read(is_there, 1)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    _save(job, values_of(model))
    job.end()


def copies_a_part() -> None:
    """Each rank copies its part of the gradients to the host and of the new values to its accelerator, and no more."""
    job = pp.init()
    model = nn.Sequential(nn.Linear(100, 301), nn.ReLU(), nn.Linear(301, 10)).to(DEVICE)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    job.start()
    before = torch.ops.fake_accelerator.num_bytes_postponed()
    for _ in job.steps(STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 100, device=DEVICE)).sum().backward()
        optimizer.step()
    copied = (torch.ops.fake_accelerator.num_bytes_postponed() - before) / STEPS
    part = 4 * sum(parameter.numel() for parameter in model.parameters()) / job.local_ranks
    assert 2 * part <= copied < 2 * part + 2048, (copied, part)
    _save(job, values_of(model))
    job.end()


def survives_a_killed_rank(rank: str) -> None:
    job = pp.init()
    model = model_of(seed=1)
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["sgd"](groups_of(model)), model=model)
    job.start()
    while job.step < STEPS:
        if (job.worker, job.local_rank, job.step) == (1, int(rank), 5) and _first_time():
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss_of(model, RANKS * job.worker + job.local_rank, job.step).backward()
        optimizer.step()
    _save(job, values_of(model))
    job.end()


def wrong_use_is_named() -> None:
    error = assert_raises(pushpull.PushPullError, ["2 processes", "pushpull.torch.init()"], pushpull.init)
    assert error.code == "FAILED_PRECONDITION", error.code
    job = pp.init()
    model = model_of(seed=1)
    if job.local_rank > 0:
        error = assert_raises(pushpull.PushPullError, ["report_loss", "local rank 1", "rank 0"], lambda: job.report_loss(1.0))
        assert error.code == "FAILED_PRECONDITION", error.code
    assert_raises(pushpull.PushPullError, ["samples", "2 processes", "ElasticSampler"], lambda: next(job.samples()))
    assert_raises(ValueError, ["2 local ranks", "RMSprop"], lambda: pp.DistributedOptimizer(
        OPTIMIZERS["rmsprop"](groups_of(model)), model=model))
    assert_raises(ValueError, ["PushPullStrategy", "2 local ranks"], lambda: job_of_one_process("PushPullStrategy"))
    rows = nn.Embedding(4, 2, sparse=True)
    assert_raises(ValueError, ['"weight"', "one process"], lambda: pp.DistributedOptimizer(
        torch.optim.SparseAdam(list(rows.parameters())), model=rows))
    optimizer = pp.DistributedOptimizer(OPTIMIZERS["sgd"](groups_of(model)), model=model)
    assert_raises(ValueError, ["second"], lambda: pp.DistributedOptimizer(OPTIMIZERS["sgd"](groups_of(model)), model=model))
    job.start()
    if job.local_rank > 0:
        assert_raises(RuntimeError, ["state_dict", "local rank 1"], optimizer.state_dict)
        wait_for(lambda: (SHARED / "timed-out").exists())
    else:  # rank 1 makes no step
        optimizer.timeout = 0.2
        loss_of(model, 0, 0).backward()
        assert_raises(pushpull.PushPullError, ["local rank 0 of 2", "0.2 s"], optimizer.step)
        (SHARED / "timed-out").touch()
    sys.exit(END_OF_RANK)


def _first_time() -> bool:
    try:
        (SHARED / "done-once").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _save(job: pushpull.Job, values: dict[str, Any]) -> None:
    (SHARED / f"model-{job.worker}-{job.local_rank}").write_text(json.dumps({name: value.tolist() for name, value in values.items()}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
