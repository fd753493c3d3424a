# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a GPU: a push-pull of a gradient from its memory and from the host's, over tcp, a training of Fashion-MNIST, and
one of a worker with two local ranks, whose gradients NCCL sums.

`run` of the bundle calls it, with a Python that has PyTorch and the package. Prints rows of a table and leaves torch.json and
logs in OUT. Exit codes: 0 all is well, 1 a figure is not met.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import pushpull
import pushpull.torch as pp
import torch
from pushpull._command import PROGRAM

HERE = pathlib.Path(__file__).resolve().parent
RATIO_MAX, ACCURACY_MIN = 1.3, 0.88
WARM_UP_ROUNDS = 3
RANKS, RANK_STEPS = 2, 50


def push_pull(job: pushpull.Job, device: str, megabytes: int, rounds: int) -> dict[str, float]:
    """Median seconds of a step with one parameter, on the host and on the device in turns."""
    devices = {"host": torch.device("cpu"), "device": torch.device(device)}
    parameters = {name: torch.nn.Parameter(torch.zeros(megabytes * 250_000, device=where)) for name, where in devices.items()}
    optimizers = {name: pp.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), [(name, parameter)])
                  for name, parameter in parameters.items()}
    seconds: dict[str, list[float]] = {name: [] for name in devices}
    for _ in range(WARM_UP_ROUNDS + rounds):
        for name, parameter in parameters.items():
            optimizers[name].zero_grad()
            parameter.grad = torch.ones_like(parameter)
            last_value(parameter.grad)
            begin = time.perf_counter()
            optimizers[name].step()
            last_value(parameter)
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times[WARM_UP_ROUNDS:]) for name, times in seconds.items()}


def train_as_rank(device: str) -> None:
    """A local rank of a worker; afterwards its weights are those of one process that has had the samples of all ranks."""
    job = pp.init()
    where = torch.device(device, job.local_rank % torch.cuda.device_count()) if device == "cuda" else torch.device(device)
    torch.manual_seed(1)
    models = [torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)).to(where) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    by_torch = torch.optim.SGD(models[1].parameters(), lr=0.1, momentum=0.9)
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(models[0].parameters(), lr=0.1, momentum=0.9), model=models[0])
    for step in range(RANK_STEPS):
        x = torch.randn(32 * RANKS, 64, generator=torch.Generator().manual_seed(step)).to(where)
        optimizer.zero_grad()
        models[0](x[32 * job.local_rank:32 * (job.local_rank + 1)]).square().mean().backward()
        optimizer.step()
        by_torch.zero_grad()
        models[1](x).square().mean().backward()
        by_torch.step()
    for name, value in models[1].state_dict().items():
        torch.testing.assert_close(models[0].state_dict()[name], value, rtol=1e-3, atol=1e-4)
    job.end()


def train_with_ranks(out: pathlib.Path, device: str) -> str:
    """The verdict of a job with one worker of two local ranks."""
    command = ["python3", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", str(HERE / "torch_on_gpu.py"),
               str(out), "--device", device, "--rank"]
    manifest = out / "torch/ranks.yaml"
    manifest.write_text("apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: ranks}\nspec:\n"
                        f"  command: {json.dumps(command)}\n  servers: {{replicas: 1}}\n  workers: {{replicas: 1}}\n"
                        "  restart: {backoffLimit: 0}\n")
    if run_job(out, "ranks", str(manifest)) == 0:
        return "met"
    log = (out / "torch/ranks/logs/worker-0.log").read_text()
    return "left out: this NCCL does not let ranks share a GPU" if "Duplicate GPU" in log else "MISSED"


def run_job(out: pathlib.Path, name: str, manifest: str) -> int:
    """The exit code of `pushpull run`."""
    environment = {**os.environ, "DATA": str(HERE / "fashion-mnist"), "PYTHONUNBUFFERED": "1",
                   "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (out / f"torch/{name}.log").open("w") as file:
        return subprocess.run([PROGRAM, "run", manifest, "--workdir", out / "torch" / name, "--progress", "none"], cwd=HERE,
                              env=environment, stdout=file, stderr=subprocess.STDOUT, check=False, timeout=280).returncode


def last_value(tensor: torch.Tensor) -> float:
    """Waits for the device."""
    return float(tensor.detach()[-1:].cpu()[0])


def train(out: pathlib.Path) -> float:
    """The test accuracy of the example; its workers use the GPU if there is one."""
    run_job(out, "work", "runtime/examples/torch-fashion-mnist.yaml")
    accuracies = re.findall(r"test accuracy (\S+)", (out / "torch/work/logs/worker-0.log").read_text())
    return float(accuracies[-1]) if accuracies else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mb", type=int, default=160, help="of the gradient")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank", action="store_true", help="be a local rank of the job that this program starts")
    arguments = parser.parse_args()
    if arguments.rank:
        train_as_rank(arguments.device)
        return
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU: its part is left out")
        return
    times = pushpull.spawn(push_pull, workers=1, servers=1, args=(arguments.device, arguments.mb, arguments.rounds),
                           settings={"spec.env": [{"name": "PUSHPULL_CHANNEL", "value": "tcp"}]})[0]
    ratio = times["device"] / times["host"]
    begin = time.perf_counter()
    accuracy = train(arguments.out.resolve())
    training = time.perf_counter() - begin
    ranks = train_with_ranks(arguments.out.resolve(), arguments.device)
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
    figures = {"card": card, "torch": torch.__version__, "push_pull_ms": {k: 1e3 * v for k, v in times.items()}, "ratio": ratio,
               "accuracy": accuracy, "training_s": training, "local_ranks": ranks}
    (arguments.out / "torch.json").write_text(json.dumps(figures, indent=2) + "\n")
    verdicts = [ratio <= RATIO_MAX, accuracy >= ACCURACY_MIN, ranks != "MISSED"]
    words = ["met" if verdict else "MISSED" for verdict in verdicts]
    print(f"PyTorch {torch.__version__}, {card}")
    print(f"push-pull of {arguments.mb} MB over tcp: {1e3 * times['host']:.1f} ms from the host, {1e3 * times['device']:.1f} ms from "
          f"the device, ratio {ratio:.2f}, wanted {RATIO_MAX}: {words[0]}")
    print(f"Fashion-MNIST, 2 workers and 2 servers: accuracy {accuracy:.4f} in {training:.0f} s, wanted {ACCURACY_MIN}: {words[1]}")
    print(f"a worker with {RANKS} local ranks, the weights of one process: {ranks}")
    sys.exit(0 if all(verdicts) else 1)


if __name__ == "__main__":
    main()
