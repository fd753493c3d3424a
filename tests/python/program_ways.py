# SPDX-License-Identifier: Apache-2.0
"""The ways to run a program of programs.py, and what they leave to compare."""
import contextlib
import dataclasses
import os
import pathlib
import sys
import threading
import traceback
import types
from typing import Any, Callable, ContextManager, Iterator, Optional, Union

import torch
from torch import nn

WORKERS = 2
STEPS = 6
WAIT_SECONDS = 20.0  # of a worker for the others; for what hangs
REFUSED = 3  # the exit code of a worker whose program failed: it ends the job
Batch = tuple[torch.Tensor, torch.Tensor]


class Context:
    """What differs between the ways to run a program."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.logged: list[float] = []

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        raise NotImplementedError

    def job(self) -> ContextManager[None]:
        """A job of this process alone, for programs that are no worker of one."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends the job. What follows, each worker does alone."""
        raise NotImplementedError

    def log(self, value: Union[torch.Tensor, float]) -> None:
        self.logged.append(float(value))

    def batch(self, step: int, size: int = 8) -> Batch:
        return batch_of(1000 * step + self.worker, size)

    def batches(self, steps: int = STEPS) -> Iterator[Batch]:
        for step in range(steps):
            yield self.batch(step)


def batch_of(seed: int, size: int = 8) -> Batch:
    x = torch.randn(size, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(dim=1)


class Replicas:
    """Threads that take turns, so that a run is the same each time. Each has random numbers of its own, as a process has."""

    def __init__(self, count: int) -> None:
        self.contexts = [Replica(worker, self) for worker in range(count)]
        self._changed = threading.Condition()
        self._turn = 0
        self._error: Optional[BaseException] = None

    def meet(self, worker: int, act: Callable[[], None]) -> None:
        """Returns when all replicas have made this call; the last one acts."""
        random = torch.get_rng_state()
        if worker == len(self.contexts) - 1:
            act()
        with self._changed:
            self._pass_on(worker)
            self._await_turn(worker)
        torch.set_rng_state(random)

    def run(self, program: Callable[[Context], Any]) -> list[Any]:
        results: list[Any] = [None] * len(self.contexts)

        def run_one(worker: int) -> None:
            try:
                with self._changed:
                    self._await_turn(worker)
                current.replica = self.contexts[worker]
                results[worker] = result_of(program, self.contexts[worker])
                with self._changed:
                    self._pass_on(worker)
            except BaseException as error:  # raised in the caller
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()

        threads = [threading.Thread(target=run_one, args=(worker,)) for worker in range(len(self.contexts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return results

    def _pass_on(self, worker: int) -> None:
        self._turn = (worker + 1) % len(self.contexts)
        self._changed.notify_all()

    def _await_turn(self, worker: int) -> None:
        self._changed.wait_for(lambda: self._turn == worker or self._error is not None)
        if self._error is not None:
            raise RuntimeError("another replica failed")


class Replica(Context):
    """One of the replicas of `run_alone`."""

    def __init__(self, worker: int, replicas: Replicas) -> None:
        super().__init__(worker)
        self._replicas = replicas
        self.wrapped: list[tuple[torch.optim.Optimizer, nn.Module]] = []
        self.is_over = False

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        step, zero_grad = optimizer.step, optimizer.zero_grad

        def step_of_all(_: object, closure: Any = None) -> Any:
            self.average_gradients()
            loss = step() if closure is None else step(closure)
            self._average_buffers()
            return loss

        # Methods, because schedulers replace `step` by a method too.
        optimizer.step = types.MethodType(step_of_all, optimizer)
        optimizer.zero_grad = lambda set_to_none=True: zero_grad(set_to_none=set_to_none)
        self.wrapped.append((optimizer, model))
        return optimizer

    def job(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def end(self) -> None:
        self._meet(lambda: None)
        self.is_over = True

    def average_gradients(self) -> None:
        self._meet(self._average_all_gradients)

    def _average_buffers(self) -> None:
        self._meet(self._average_all_buffers)

    def _meet(self, act: Callable[[], None]) -> None:
        if not self.is_over:
            self._replicas.meet(self.worker, act)

    def _average_all_gradients(self) -> None:
        for parameters in zip(*([p for _, model in each.wrapped for p in model.parameters()] for each in self._replicas.contexts)):
            given = [p.grad.detach() for p in parameters if p.grad is not None]
            if not given:
                continue
            mean = sum(given[1:], given[0]) / len(parameters)
            for p in parameters:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                with torch.no_grad():
                    p.grad.copy_(mean)

    def _average_all_buffers(self) -> None:
        for buffers in zip(*([b for _, model in each.wrapped for b in model.buffers()] for each in self._replicas.contexts)):
            if buffers[0].is_floating_point():
                mean = torch.stack([b.detach() for b in buffers]).mean(dim=0)
                for b in buffers:
                    if not torch.equal(b, mean):  # an expanded buffer cannot be written
                        b.detach().copy_(mean)


current = threading.local()  # the replica of a thread
torch_backward = torch.autograd.backward


def backward(*arguments: Any, **options: Any) -> None:
    """torch.autograd.backward, after which the gradients of replicas are their mean."""
    torch_backward(*arguments, **options)
    replica = getattr(current, "replica", None)
    if replica is not None and not options.get("create_graph", False):  # the next pass needs the graph of these gradients
        replica.average_gradients()


def run_alone(name: str) -> list[dict[str, Any]]:
    """The results of all workers, with torch alone."""
    program = PROGRAMS[name]
    torch.autograd.backward = backward
    try:
        return Replicas(1 if program.is_notebook else WORKERS).run(program.run)
    finally:
        torch.autograd.backward = torch_backward


class Worker(Context):
    """A worker of a job of Pushpull."""

    def __init__(self, way: str, is_notebook: bool) -> None:
        import pushpull
        self._pushpull = pushpull
        self.package = pathlib.Path(pushpull.__file__).parent
        self._way = way
        self._job = None if is_notebook else pushpull.init()
        self.names: list[str] = []  # of parameters
        super().__init__(0 if self._job is None else self._job.worker)

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        import pushpull.torch as pp
        self.names += [name for name, _ in model.named_parameters()]
        wrapped = pp.DistributedOptimizer(optimizer, model=model, optimizer_on=self._way)
        wrapped.timeout = WAIT_SECONDS
        return wrapped

    def job(self) -> ContextManager[None]:
        @contextlib.contextmanager
        def local() -> Iterator[None]:
            with self._pushpull.local(servers=1):
                yield
        return local()

    def end(self) -> None:
        if self._job is not None:
            self._job.end()
            self._job = None


def result_of(program: Callable[[Context], Any], context: Context) -> dict[str, Any]:
    torch.manual_seed(1)
    returned = program(context)
    values = returned.state_dict() if isinstance(returned, nn.Module) else dict(returned or {})
    return {"logged": context.logged, "values": {name: value.detach().clone() for name, value in values.items()}}


def run_worker(name: str, way: str) -> None:
    """Leaves what the program logs and returns, or its error, in a file of this worker; ends the process."""
    context = Worker(way, PROGRAMS[name].is_notebook)
    try:
        result = result_of(PROGRAMS[name].run, context)
        context.end()
    except Exception as error:  # judged by the test
        where = pathlib.Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}", "is_ours": context.package in where.parents, "names": context.names}
    torch.save(result, pathlib.Path(os.environ["SCENARIO_FOLDER"]) / f"result-{context.worker}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(REFUSED if "error" in result else 0)


@dataclasses.dataclass
class Program:
    run: Callable[[Context], Any]
    expected: dict[str, str]
    """By way: "equal", or "equal or refused"."""
    needs: str
    """What torch must have, such as "torch.compile"."""
    is_notebook: bool
    """It has jobs in its own process instead of being a worker of one."""

    def is_possible(self) -> bool:
        found: Any = torch
        for name in self.needs.split(".")[1:]:
            found = getattr(found, name, None)
        return found is not None


PROGRAMS: dict[str, Program] = {}
EQUAL, EITHER = "equal", "equal or refused"


def program(auto: str = EQUAL, workers: str = EQUAL, *, needs: str = "torch",
            is_notebook: bool = False) -> Callable[[Callable[[Context], Any]], Callable[[Context], Any]]:
    """Adds a program, with the expected verdict of each way."""
    def add(function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        PROGRAMS[function.__name__] = Program(function, {"auto": auto, "workers": workers}, needs, is_notebook)
        return function
    return add
