# SPDX-License-Identifier: Apache-2.0
"""Steps of the Python package beside DistributedDataParallel, in turns on one machine.

    build/python/venv-torch/bin/python tests/bench/torch_steps.py [GROUP]... [--rounds 5]

After `./dev python`, on a machine that does nothing else. 2 workers, one thread each, and 2 servers. Groups:

  sum       a gradient of 160 MB in 160 tensors, Sum: over registered memory, shared memory and tcp, against gloo's all-reduce
            of 25 MiB buckets
  models    ResNet-18 for images of 64 x 64, a Transformer, and 40 million parameters in 10 layers, real backward passes:
            samples a second, against DistributedDataParallel
  places    the same models: a step with the optimizer on the workers against one on the servers, over shared memory and tcp
  overlap   a backward pass that sleeps, and takes as long as the synchronization: a step against the longer of the two.
            The pass is timed without the package; it also makes the gradients
  overhead  4,000 tensors of 4 KB, and one: what Python adds to a step of `pushpull bench sync`, per tensor and per step
  rows      Embedding(10,000,000, 16, sparse=True) with Adagrad, of which each worker touches 1 % in a step, over tcp: bytes on
            the wire over those of the touched rows, 8 of a key and 64 of values, in each direction; memory of the servers.
            The bytes are those of the worker's sockets (TCP_INFO), with headers and all
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Optional

import torch
from torch import nn

PUSHPULL = pathlib.Path(sys.executable).with_name("pushpull")
RUN_SECONDS = 600
WARM, TIMED = 5, 20
MANIFEST = """
apiVersion: pushpull.dev/v1alpha1
kind: TrainingJob
metadata: {{name: steps}}
spec:
  command: {command}
  servers: {{replicas: 2}}
  workers: {{replicas: 2}}
  restart: {{backoffLimit: 0}}
"""


# ---- processes: both sides run `worker CASE` in this file, and rank 0 prints its seconds a step ----

def run_pushpull(case: str, channel: str = "auto") -> float:
    return float(run_job(case, channel))


def run_job(case: str, channel: str) -> str:
    """What worker 0 has written."""
    with tempfile.TemporaryDirectory() as folder:
        manifest, result = pathlib.Path(folder, "job.yaml"), pathlib.Path(folder, "result")
        command = json.dumps(["python3", "-B", str(pathlib.Path(__file__).resolve()), "--worker", case])
        manifest.write_text(MANIFEST.format(command=command))
        environment = {**os.environ, "PUSHPULL_CHANNEL": channel, "STEPS_RESULT": str(result)}
        done = subprocess.run([str(PUSHPULL), "run", str(manifest)], cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=RUN_SECONDS, check=False)
        if not result.exists():
            sys.exit(f"{case}: {done.stdout}{done.stderr}")
        return result.read_text()


def run_gloo(case: str) -> float:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result, port = pathlib.Path(folder, "result"), free.getsockname()[1]
        free.close()
        ranks = [subprocess.Popen([sys.executable, "-B", __file__, "--worker", case],
                                  env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
                                       "WORLD_SIZE": "2", "STEPS_RESULT": str(result)}) for rank in range(2)]
        codes = [rank.wait(RUN_SECONDS) for rank in ranks]
        if any(codes):
            sys.exit(f"{case}: exit codes {codes}")
        return float(result.read_text())


def timed(step: Callable[[], Any], rank: int) -> None:
    """Medians, written by rank 0. Steps end together: each waits for the other worker."""
    seconds = []
    for _ in range(WARM + TIMED):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        pathlib.Path(os.environ["STEPS_RESULT"]).write_text(str(statistics.median(seconds[WARM:])))


# ---- sum ----

TENSORS, VALUES, SMALL_TENSORS = 160, 250_000, 4000


def sums_of_package(registered: bool, tensors: int = TENSORS, values: int = VALUES) -> None:
    import numpy
    import pushpull
    with pushpull.init() as job:
        gradients = job.buffer((tensors, values)) if registered else numpy.zeros((tensors, values), numpy.float32)
        outs = numpy.zeros((tensors, values), numpy.float32)
        names = [f"t{number}" for number in range(tensors)]
        for name, out in zip(names, outs):
            job.store.register(name, out, reduce="sum", keeps_value=False)
        job.start()
        pairs = list(zip(names, gradients, outs))

        def step() -> None:
            handles = [job.store.push_pull(name, gradient, out=out, in_place=registered) for name, gradient, out in pairs]
            for handle in handles:
                handle.wait()
                if registered:
                    handle.pieces()
        timed(step, job.worker)
        job.store._handles.clear()


def sums_of_gloo() -> None:
    torch.distributed.init_process_group("gloo")
    bucket = 25 * 1024 * 1024 // 4
    gradient = torch.zeros(TENSORS * VALUES)
    buckets = gradient.split(bucket)

    def step() -> None:
        for work in [torch.distributed.all_reduce(each, async_op=True) for each in buckets]:
            work.wait()
    timed(step, torch.distributed.get_rank())


# ---- models ----

class Block(nn.Module):
    """He et al., 2015, figure 2."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.shortcut = nn.Identity() if inputs == width else nn.Sequential(
            nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """11.2 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width in (64, 128, 256, 512):
        layers += [Block(inputs, width, 1 if inputs == width else 2), Block(width, width, 1)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))


def transformer() -> nn.Module:
    """6 layers of width 256: 4.8 million parameters."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(128, 256), nn.TransformerEncoder(layer, 6), nn.Linear(256, 128))


def layers() -> nn.Module:
    """40 million parameters."""
    return nn.Sequential(*[nn.Linear(2000, 2000) for _ in range(10)])


MODELS = {"resnet18": resnet18, "transformer": transformer, "layers": layers}
BATCHES = {"resnet18": 16, "transformer": 8, "layers": 8}


def model_step(name: str, wrap: Callable[[nn.Module, torch.optim.Optimizer], tuple[nn.Module, torch.optim.Optimizer]],
               rank: Callable[[], int]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    plain = MODELS[name]()
    model, optimizer = wrap(plain, torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9))
    size = BATCHES[name]
    images = torch.randn(size, 3, 64, 64)
    text = torch.randint(128, (size, 64))
    vectors = torch.randn(size, 2000)

    def step() -> None:
        optimizer.zero_grad()
        if name == "resnet18":
            loss = nn.functional.cross_entropy(model(images), torch.arange(size))
        elif name == "layers":
            loss = model(vectors).square().mean()
        else:
            loss = nn.functional.cross_entropy(model(text).transpose(1, 2), text)
        loss.backward()
        optimizer.step()
    timed(step, rank())


def model_of_package(name: str, place: str = "servers") -> None:
    import pushpull
    import pushpull.torch as pp
    job = pushpull.init()
    model_step(name, lambda model, optimizer: (model, pp.DistributedOptimizer(optimizer, model=model, optimizer_on=place)),
               lambda: job.worker)
    job.end()


def model_of_ddp(name: str) -> None:
    torch.distributed.init_process_group("gloo")
    model_step(name, lambda model, optimizer: (nn.parallel.DistributedDataParallel(model), optimizer),
               torch.distributed.get_rank)


# ---- overlap ----

class Sleep(torch.autograd.Function):
    """Nothing forward; backward it takes `seconds`, without a core."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor, seconds: float) -> torch.Tensor:  # type: ignore[override]
        context.seconds, context.weight = seconds, weight
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        time.sleep(context.seconds)
        return gradient, torch.zeros_like(context.weight), None


class Sleeper(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.weight, self.seconds = nn.Parameter(torch.zeros(1_000_000)), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Sleep.apply(x, self.weight, self.seconds)  # type: ignore[no-any-return, no-untyped-call]


LAYERS = 40


def sleeper(seconds: float) -> nn.Module:
    torch.set_num_threads(1)
    return nn.Sequential(*[Sleeper(seconds / LAYERS) for _ in range(LAYERS)])


def backward_pass(seconds: str) -> None:
    """Without the package. The rendezvous of gloo lets both workers begin at once."""
    torch.distributed.init_process_group("gloo")
    model = sleeper(float(seconds))
    x = torch.ones(1, requires_grad=True)

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        model(x).sum().backward()
    timed(step, torch.distributed.get_rank())


def sleeping_model(seconds: str) -> None:
    import pushpull
    import pushpull.torch as pp
    job = pushpull.init()
    model = sleeper(float(seconds))
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model=model)
    x = torch.ones(1, requires_grad=True)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    timed(step, job.worker)
    job.end()


# ---- rows ----

ROWS, DIM, TOUCHED = 10_000_000, 16, 100_000
ACKED_AND_RECEIVED = struct.Struct("=120xQQ")  # of Linux's struct tcp_info


def bytes_on_sockets() -> int:
    """Sent and received by this process over TCP."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as each:
                total += sum(ACKED_AND_RECEIVED.unpack_from(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)))
        except (OSError, struct.error):  # closed meanwhile, or no TCP
            continue
    return total


def memory_of_servers() -> list[int]:
    """Bytes, resident now."""
    endpoints = json.loads(pathlib.Path(".pushpull/steps/endpoints.json").read_text())
    return [int(pathlib.Path(f"/proc/{each['pid']}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            for each in endpoints if each["role"] == "server"]


def rows_of_package(_: str) -> None:
    import pushpull
    import pushpull.torch as pp
    torch.set_num_threads(1)
    job = pushpull.init()
    begin = time.perf_counter()
    embedding = nn.Embedding(ROWS, DIM, sparse=True)
    optimizer = pp.DistributedOptimizer(torch.optim.Adagrad(embedding.parameters(), lr=0.1), model=embedding)
    job.start(timeout=300)
    started = time.perf_counter() - begin
    generator = torch.Generator().manual_seed(job.worker)

    def step() -> dict[str, float]:
        ids = torch.randint(ROWS, (TOUCHED,), generator=generator).unique()
        marks, seconds = [bytes_on_sockets()], time.perf_counter()
        optimizer.zero_grad()
        loss = embedding(ids).square().sum()
        marks.append(bytes_on_sockets())
        loss.backward()
        optimizer.step()
        optimizer.wait()
        seconds = time.perf_counter() - seconds
        marks.append(bytes_on_sockets())
        expected = len(ids) * (8 + 4 * DIM)
        return {"pull": (marks[1] - marks[0]) / expected, "push": (marks[2] - marks[1]) / expected, "seconds": seconds}

    steps = [step() for _ in range(WARM + TIMED)][WARM:]
    pushpull.barrier(job=job)
    if job.worker == 0:
        figures: dict[str, Any] = {name: statistics.median(each[name] for each in steps) for name in steps[0]}
        figures |= {"servers": memory_of_servers(), "start": started}
        pathlib.Path(os.environ["STEPS_RESULT"]).write_text(json.dumps(figures))
    job.end()


# ---- groups: each gives the ratios of one round ----

def group_sum() -> dict[str, float]:
    gloo = run_gloo("gloo:")
    steps = {"registered": run_pushpull("sum:registered"), "shared memory": run_pushpull("sum:private"),
             "tcp": run_pushpull("sum:private", "tcp")}
    print(f"  gloo {gloo * 1e3:.1f} ms, " + ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in steps.items()))
    return {f"{name}: time over gloo's": seconds / gloo for name, seconds in steps.items()}


def group_models() -> dict[str, float]:
    ratios = {}
    for name, batch in BATCHES.items():
        ours, theirs = run_pushpull(f"model:{name}"), run_gloo(f"ddp:{name}")
        print(f"  {name}: {2 * batch / ours:.1f} samples a second, DistributedDataParallel {2 * batch / theirs:.1f}")
        ratios[f"{name}: samples a second over DistributedDataParallel's"] = theirs / ours
    return ratios


def group_places() -> dict[str, float]:
    ratios = {}
    for name in BATCHES:
        for channel in ("auto", "tcp"):
            servers, workers = run_pushpull(f"model:{name}", channel), run_pushpull(f"workers:{name}", channel)
            print(f"  {name}, {channel}: on the servers {servers * 1e3:.1f} ms, on the workers {workers * 1e3:.1f} ms")
            ratios[f"{name}, {channel}: a step on the workers over one on the servers"] = workers / servers
    return ratios


def group_overlap() -> dict[str, float]:
    synchronization, gradients = run_pushpull("sleep:0"), run_gloo("backward:0")
    sleep = max(synchronization - gradients, 0.0)
    backward, step = run_gloo(f"backward:{sleep}"), run_pushpull(f"sleep:{sleep}")
    print(f"  synchronization alone {synchronization * 1e3:.1f} ms, backward pass alone {backward * 1e3:.1f} ms, of which "
          f"{gradients * 1e3:.1f} ms make gradients; both {step * 1e3:.1f} ms")
    return {"a step over the longer of backward pass and synchronization": step / max(backward, synchronization)}


def group_overhead() -> dict[str, float]:
    many, one = (seconds_that_python_adds(tensors) for tensors in (SMALL_TENSORS, 1))
    return {"microseconds a tensor that Python adds": many / SMALL_TENSORS * 1e6,
            "microseconds a step of one tensor that Python adds": one * 1e6}


def seconds_that_python_adds(tensors: int) -> float:
    done = subprocess.run([str(PUSHPULL), "bench", "sync", "--channel", "shm", "--tensors", "4K", "--bytes", f"{4 * tensors}K",
                           "--json", "--steps", str(TIMED)], capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
    native = json.loads(done.stdout)["step_seconds"]["p50"]
    ours = run_pushpull(f"small:{tensors}")
    print(f"  {tensors} tensors: step {ours * 1e3:.3f} ms, of pushpull bench sync {native * 1e3:.3f} ms")
    return ours - native


def group_rows() -> dict[str, float]:
    found = json.loads(run_job("rows:", "tcp"))
    print(f"  step {found['seconds'] * 1e3:.0f} ms, start {found['start']:.1f} s, servers hold "
          + " and ".join(f"{each / 1e6:.0f} MB" for each in found["servers"]))
    return {"rows pushed: bytes over those of keys and values": found["push"],
            "rows pulled: bytes over those of keys and values": found["pull"]}


GROUPS = {"sum": group_sum, "models": group_models, "places": group_places, "overlap": group_overlap, "overhead": group_overhead,
          "rows": group_rows}


CASES: dict[str, Callable[[str], None]] = {
    "sum": lambda memory: sums_of_package(memory == "registered"),
    "small": lambda tensors: sums_of_package(False, int(tensors), 1000),
    "gloo": lambda _: sums_of_gloo(),
    "model": model_of_package,
    "workers": lambda name: model_of_package(name, "workers"),
    "ddp": model_of_ddp,
    "sleep": sleeping_model,
    "backward": backward_pass,
    "rows": rows_of_package,
}


def main(words: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    flags = parser.parse_args(words)
    if flags.worker:
        kind, _, what = flags.worker.partition(":")
        return CASES[kind](what)
    if unknown := [name for name in flags.groups if name not in GROUPS]:
        parser.error(f"{unknown[0]}: no such group")
    for name in flags.groups or GROUPS:
        rounds = []
        for number in range(flags.rounds):
            print(f"{name}, round {number + 1}", flush=True)
            rounds.append(GROUPS[name]())
        for ratio in rounds[0]:
            values = [each[ratio] for each in rounds]
            print(f"{ratio}: median {statistics.median(values):.3f}, {min(values):.3f} to {max(values):.3f}", flush=True)


if __name__ == "__main__":
    main()
