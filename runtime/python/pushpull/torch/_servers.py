# SPDX-License-Identifier: Apache-2.0
"""The optimizer on the servers: gradients go there during the backward pass, and new values come back."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Union

import torch

from . import _barrier
from ._placement import Setup, check_parameter, contiguous, statistics, unique_names
from ._rank_memory import RankMemory
from ._rank_sums import RankBuffer, RankMember, RankParameter, RankSums
from ._rows import Embedding, ReceiveRows, RowParameter, check_choices, sparse_embeddings
from ._sent import PushedParameter, sent
from ._served import AcceleratorParameter, HostParameter, ServedParameter
from ._settings import described, fixed, from_rows, needs_sparse, on_servers, state_names, step_hooks, to_rows
from ._tensors import Buffer, Memory, Tensor
from .._optimizers import Optimizer, Sum


class OnServers:
    """A placement: the optimizer runs on the servers, or in mode AllReduce as it would there."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._job = setup.waits.job
        self._parameters: dict[int, PushedParameter] = {}  # by the parameter's id
        self._served: list[ServedParameter] = []
        self._rows: list[RowParameter] = []
        self._buffers: list[Union[Buffer, RankBuffer]] = []
        self._sums: Optional[RankSums] = None
        self._hooks: list[ReceiveRows] = []
        self._owners: list[tuple[dict[str, Any], str, torch.nn.Parameter]] = []
        self._settings: list[dict[str, Any]] = []
        self._is_pending = False  # whether new values are on their way
        _barrier.watch_functions()
        embeddings = sparse_embeddings(setup.model, {name: parameter for name, parameter, _ in setup.trained()})
        self._check(embeddings)

    # ---- the start of the job ----

    def before_start(self) -> None:
        setup, several = self._setup, self._job.local_ranks > 1
        trained = [(name, parameter, group) for name, parameter, group in setup.trained() if parameter.numel() > 0]
        embeddings = sparse_embeddings(setup.model, {name: parameter for name, parameter, _ in trained})
        self._check(embeddings)
        dense = {name: parameter for name, parameter, _ in trained if name not in embeddings}
        for name, parameter, _ in trained:
            if _barrier.is_held(parameter):
                raise ValueError(f'parameter "{name}" is in another DistributedOptimizer too, whose servers would update it as well; give '
                                 'it to one of them, or pass optimizer_on="workers" to both')
        averaged = statistics(setup.model)
        buffers = {name: owner[key] for name, (owner, key) in averaged.items()}
        shared = RankMemory({**buffers, **dense}, self._job._local_ranks) if several else None
        memory = Memory(self._job, [*dense.values(), *buffers.values()], shared) if self._job.local_rank == 0 else None
        names = unique_names([*(name for name, _, _ in trained), *averaged], self._job.store.names)
        for name, parameter, group in trained:
            self._add(name, names[name], parameter, group, memory if name not in embeddings else None, name in embeddings)
        for name, (owner, key) in averaged.items():
            self._add_buffer(names[name], owner, key, memory)
        if shared is not None:
            self._sums = RankSums(setup.waits, self._of_ranks(names), shared)
        for each in self._rows:
            hook = ReceiveRows(each)
            hook.attach(embeddings[each.name])
            self._hooks.append(hook)
        self._settings = [fixed(group) for group in setup.optimizer.param_groups]
        self._owners = _owners_of(setup.model, {id(parameter) for _, parameter, _ in trained})
        self._pass_on_state(names)

    def after_start(self) -> None:
        engine = self._job._engine
        for each in self._parameters.values():
            if isinstance(each, (ServedParameter, RowParameter, RankParameter)):
                each.bind(engine)
        for row_parameter in self._rows:
            row_parameter.expect_rows()
        for buffer in self._buffers:
            buffer.bind(engine)
        if self._sums is not None:
            self._sums.pass_on_values()

    # ---- a step ----

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        each = self._parameters.get(id(parameter))
        if each is None:
            self._keep_local(parameter)
            return
        if self._setup.is_local():
            return
        if each.is_pushed or self in self._job._stepped:
            raise RuntimeError(f'gradient of parameter "{each.name}": a second backward pass in the same step, which ends when each '
                               "DistributedOptimizer of the job has made its step(). Run those whose gradients are not wanted, and all but "
                               'the last one that adds to them, in optimizer.no_sync(), or pass optimizer_on="workers"')
        each.push(self._job.store._weight)

    def zero_grad(self, set_to_none: bool) -> None:
        for each in self._parameters.values():
            if each.is_pushed and not each.may_read:
                raise RuntimeError(f'zero_grad: the gradient of parameter "{each.name}" has been sent to the servers, and step() has not '
                                   "been called since. Run a backward pass whose gradients are not wanted in optimizer.no_sync(), or "
                                   'pass optimizer_on="workers"')
        for group in self._setup.optimizer.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                    continue
                held = self._parameters.get(id(parameter))
                if held is not None:
                    held.end_read()
                parameter.grad.zero_()

    def step(self, closure: Optional[Callable[[], Any]]) -> Any:
        if not self._job._is_last_of_step:
            return None if closure is None else closure()
        self._run_hooks("pre")
        loss = None if closure is None else closure()
        self._check_unchanged()
        self._push_rest(self._job.store._weight)
        self._end_step(self._job.store._weight)
        self._run_hooks("post")
        return loss

    def make_empty_step(self) -> None:
        for each in self._parameters.values():
            each.parameter.grad = None
        self._run_hooks("pre")
        self._push_rest(0.0)
        self._end_step(0.0)
        self._run_hooks("post")

    def wait(self) -> None:
        if not self._is_pending:
            return
        if self._sums is not None:
            self._sums.pass_on_values()
        for each in self._served:
            _barrier.put_in_place(each.parameter)
            each.put_in_place()  # of a class of its own, no barrier waits
        for buffer in self._buffers:
            if isinstance(buffer, Buffer):
                buffer.receive()
        self._is_pending = False

    def finish_pushes(self, is_last: bool) -> None:
        """`step` has pushed everything."""

    def allow_reading(self) -> None:
        """The program knows that gradients are those of this worker: it measures them, and changes nothing."""
        for each in self._parameters.values():
            each.may_read = True

    def detach(self) -> None:
        for hook in self._hooks:
            hook.detach()
        for each in self._parameters.values():
            _barrier.release(each.parameter)
            each.parameter.grad = None
        for buffer in self._buffers:
            if isinstance(buffer, Buffer):
                _barrier.release(buffer.buffer)

    # ---- the optimizer's state ----

    def state_dict(self) -> dict[str, Any]:
        optimizer = self._setup.optimizer
        if not self._job._has_started:
            return optimizer.state_dict()
        if self._job.local_rank > 0:
            raise RuntimeError(f"state_dict: this is local rank {self._job.local_rank}; local rank 0 receives the state from the servers")
        self.wait()
        self._receive_state()
        try:
            return optimizer.state_dict()
        finally:
            optimizer.state.clear()  # the servers have it

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._job._has_started:
            raise RuntimeError("load_state_dict: the job has started and its servers have the state; call it before, or pass "
                               'optimizer_on="workers"')
        self._setup.optimizer.load_state_dict(state_dict)

    def _pass_on_state(self, names: dict[str, str]) -> None:
        state = self._setup.optimizer.state
        for each in self._parameters.values():
            rows = to_rows(state.get(each.parameter, {}), state_names(self._setup.optimizer, each.group))
            if rows is not None and isinstance(each, RowParameter):
                raise _no_row_state("load_state_dict", each.name)
            if rows is not None and self._job.local_rank == 0:
                self._job.store.set_optimizer_state(names[each.name], *rows)
        state.clear()

    def _receive_state(self) -> None:
        optimizer = self._setup.optimizer
        for row_parameter in self._rows:
            if state_names(optimizer, row_parameter.group):
                raise _no_row_state("state_dict", row_parameter.name)
        received = []
        for each in self._parameters.values():
            names = state_names(optimizer, each.group)
            if names:
                rows = torch.empty((len(names), *each.parameter.shape), dtype=torch.float32, device="cpu")
                received.append((each, names, rows, self._job.store.pull_optimizer_state(each.registered_name, rows)))
        for each, names, rows, handle in received:
            handle.wait(self._setup.waits.timeout)
            if handle.updates > 0:
                optimizer.state[each.parameter] = from_rows(rows, names, handle.updates)

    # ---- parts of the start ----

    def _check(self, embeddings: dict[str, Embedding]) -> None:
        setup = self._setup
        for name in embeddings:
            check_choices(name, {"codec": None if setup.codec == "none" else setup.codec, "clip_norm": setup.clip_norm})
        for name, parameter, group in setup.trained():
            check_parameter(name, parameter)
            if on_servers(setup.optimizer, group) is None:
                raise ValueError(f'parameter "{name}": servers cannot run {described(setup.optimizer)}; pass optimizer_on="workers"')
            if name not in embeddings and needs_sparse(setup.optimizer):
                raise ValueError(f'parameter "{name}": SparseAdam is for the weights of Embedding(sparse=True), as in torch; give '
                                 "the others an optimizer and a DistributedOptimizer of their own")
        self._check_max_norm()
        if self._job.local_ranks == 1:
            return
        embedding = next(iter(embeddings), None)
        if embedding is not None:
            raise ValueError(f'parameter "{embedding}": Embedding(sparse=True) needs a worker with one process; use sparse=False')

    def _check_max_norm(self) -> None:
        names = {id(parameter): name for name, parameter, _ in self._setup.trained()}
        for module in () if self._setup.model is None else self._setup.model.modules():
            # Not by attribute, which a parametrization would compute; a scripted module has no other way.
            weight = getattr(module, "weight", None) if _barrier.is_scripted(module) else module._parameters.get("weight")
            name = names.get(id(weight))
            if name is not None and getattr(module, "max_norm", None) is not None:
                raise ValueError(f'parameter "{name}": max_norm changes rows in the forward pass, which the servers would not see; pass '
                                 'optimizer_on="workers" and sparse=False, or leave max_norm out')

    def _add(self, name: str, registered: str, parameter: torch.nn.Parameter, group: dict[str, Any], memory: Optional[Memory],
             has_rows: bool) -> None:
        setup = self._setup
        optimizer = on_servers(setup.optimizer, group)
        assert optimizer is not None
        added: PushedParameter
        if has_rows:
            row_parameter = RowParameter(name, parameter, group, setup.waits)
            row_parameter.registered_name = registered
            row_parameter.register(optimizer)
            self._rows.append(row_parameter)
            added = row_parameter
        elif self._job.local_ranks > 1:
            added = RankParameter(name, parameter, group, self._rank_member(registered, parameter, group, memory, optimizer))
        else:
            assert memory is not None
            kind = HostParameter if parameter.device.type == "cpu" else AcceleratorParameter
            served = kind(name, parameter, group, setup.waits)
            served.register(memory.tensor(registered, contiguous(parameter)), optimizer, setup.codec, setup.clip_norm or 0.0)
            self._served.append(served)
            added = served
        added.registered_name = registered
        self._parameters[id(parameter)] = added
        _barrier.hold(parameter, added)

    def _rank_member(self, name: str, parameter: torch.Tensor, group: Optional[dict[str, Any]], memory: Optional[Memory],
                     optimizer: Optimizer) -> Optional[RankMember]:
        if memory is None:
            return None
        tensor = memory.tensor(name, parameter.detach())
        if group is None:
            tensor.register(self._job, optimizer)
        else:
            tensor.register(self._job, optimizer, self._setup.codec, self._setup.clip_norm or 0.0)
        return RankMember(tensor, group)

    def _add_buffer(self, name: str, owner: dict[str, Any], key: str, memory: Optional[Memory]) -> None:
        buffer = owner[key]
        if self._job.local_ranks > 1:
            self._buffers.append(RankBuffer(name, buffer, self._rank_member(name, buffer.clone(), None, memory, Sum())))
            return
        assert memory is not None
        mean = memory.tensor(name, contiguous(buffer))
        mean.register(self._job, Sum())
        added = Buffer(owner, key, mean, self._setup.waits)
        self._buffers.append(added)
        _barrier.hold(buffer, added)

    def _of_ranks(self, names: dict[str, str]) -> dict[str, Union[RankParameter, RankBuffer]]:
        found: dict[str, Union[RankParameter, RankBuffer]] = {each.name: each for each in self._parameters.values()
                                                              if isinstance(each, RankParameter)}
        original = {registered: name for name, registered in names.items()}
        found.update({original[each.name]: each for each in self._buffers if isinstance(each, RankBuffer)})
        return found

    # ---- parts of a step ----

    def _run_hooks(self, when: str) -> None:
        """Those that the program has given the optimizer, whose own `step` nobody calls here."""
        for hook in step_hooks(self._setup.optimizer, when):
            hook(self._setup.optimizer, (), {})

    def _keep_local(self, parameter: torch.nn.Parameter) -> None:
        """The gradient of a parameter that no optimizer of the job has is not the workers' mean: a program must not use it as one."""
        if not _barrier.is_held(parameter) and parameter.grad is not None and not parameter.grad.requires_grad:
            name = next(name for name, each in self._setup.named.items() if each is parameter)
            sent(parameter.grad, PushedParameter(name, parameter, {}))

    def _check_unchanged(self) -> None:
        """Raises RuntimeError or ValueError for what the program has changed and servers cannot take over."""
        optimizer = self._setup.optimizer
        groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"] if parameter.numel() > 0}
        if groups.keys() != self._parameters.keys():
            raise RuntimeError("add_param_group: the optimizer's parameter groups have changed since the job has started, and the servers "
                               'have other tensors; add groups before the first step, or pass optimizer_on="workers"')
        if optimizer.state:
            raise RuntimeError("load_state_dict: the state of the torch optimizer has changed since the job has started, but the servers "
                               'have the state; load it before the first step, or pass optimizer_on="workers"')
        for each in self._parameters.values():
            each.group = groups[id(each.parameter)]
        for number, (group, before) in enumerate(zip(optimizer.param_groups, self._settings)):
            now = fixed(group)
            if now != before:
                changed = ", ".join(f"{name} from {before[name]} to {now[name]}" for name in now if now[name] != before[name])
                raise ValueError(f'parameter group {number}: {changed}; servers take only a new lr: pass optimizer_on="workers"')
        for number, (owner, key, parameter) in enumerate(self._owners):
            if owner.get(key) is not parameter:
                self._find_again(number, parameter)

    def _find_again(self, number: int, parameter: torch.nn.Parameter) -> None:
        """The model has another parameter in the place of `parameter`, which may have another place there."""
        found = _owners_of(self._setup.model, {id(parameter)})
        if not found:
            raise RuntimeError(f'parameter "{self._parameters[id(parameter)].name}": the model has another one in its place '
                               "(load_state_dict with assign=True?), which does not train; replace it before DistributedOptimizer, or copy "
                               "the values into it before the job starts")
        self._owners[number] = found[0]

    def _push_rest(self, samples: float) -> None:
        """Pushes what the backward pass has not pushed."""
        for each in self._parameters.values():
            if each.is_pushed:
                each.check_gradient()
                each.check_learning_rate()
                each.check_value()
            else:
                each.push(samples)

    def _end_step(self, samples: float) -> None:
        for buffer in self._buffers:
            buffer.push(samples)
        if self._sums is not None:
            self._sums.end_step()
        for each in self._parameters.values():
            each.end_push()
            each.end_step()
        for buffer in self._buffers:
            if isinstance(buffer, Buffer):
                buffer.end_push()
        self._is_pending = True
        self._job._commit_step(self)
        if self._sums is not None or _barrier.has_compiled_code():
            self.wait()
            return
        for tensor in self._arriving():
            _barrier.await_value(tensor)

    def _arriving(self) -> Iterator[torch.Tensor]:
        for each in self._served:
            yield each.parameter
        for buffer in self._buffers:
            if isinstance(buffer, Buffer):
                yield buffer.buffer


def _owners_of(model: Optional[torch.nn.Module], wanted: set[int]) -> list[tuple[dict[str, Any], str, torch.nn.Parameter]]:
    """Where the model has these parameters: the dictionary of the module, the key and the parameter."""
    return [(module._parameters, key, parameter) for module in (() if model is None else model.modules()) if not _barrier.is_scripted(module)
            for key, parameter in module._parameters.items() if parameter is not None and id(parameter) in wanted]


def _no_row_state(call: str, name: str) -> RuntimeError:
    return RuntimeError(f'{call}: parameter "{name}" is the weight of an Embedding(sparse=True), whose optimizer state stays on the '
                        "servers; the job's checkpoints have it (spec.checkpoint)")
