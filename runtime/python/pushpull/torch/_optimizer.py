# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a model that several workers train."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional, Union

import torch
from torch.nn.utils.clip_grad import clip_grad_norm_

from .._job import current_job
from .._optimizers import SGD, Sum
from ._rank_memory import RankMemory
from ._rank_sums import RankBuffer, RankMember, RankParameter, RankSums
from ._rows import RowParameter, check_choices, receive_before, sparse_embeddings
from ._settings import fixed, from_rows, needs_sparse, on_servers, state_names, to_rows
from ._spans import PassSpans
from ._tensors import Buffer, DeviceParameter, Memory, Parameter, Tensor, statistics


class DistributedOptimizer(torch.optim.Optimizer):
    """Applies `optimizer` to the mean gradient of all workers, weighted by their samples.

    optimizer         its parameters must be float32, bfloat16 or float16, and on a GPU (CUDA or ROCm), or on the CPU and contiguous.
                      Move the model there before. Its param_groups stay in use: learning-rate schedulers may use either this
                      object or `optimizer`. For bfloat16 and float16 the servers keep float32 master values and state: the
                      optimizer runs there, without codec
    named_parameters  all its parameters, in the order of the forward pass, such as model.named_parameters()
    model             alternative: then the forward pass waits for each module's parameters when it reaches the module, otherwise
                      `step` waits for all; and the finite floating-point buffers of its state_dict (such as the statistics of
                      batch norm) become the workers' mean
                      The weights of its nn.Embedding(sparse=True) and nn.EmbeddingBag(sparse=True) are row-sparse: the module
                      receives the rows that its ids name, and pushes their gradients. The servers run the optimizer on these
                      rows and keep its state: `state_dict` does not include it and raises RuntimeError. Mode Sync, without codec
                      and clip_norm
    codec             of gradients on the wire: "none", "fp16", "bf16", "int8", "topk", "onebit"
    clip_norm         limit of the norm of the mean gradient over all parameters, as in torch.nn.utils.clip_grad_norm_
    scaler            the torch.amp.GradScaler of float16 autocast (torch 2.3 or newer on the CPU): each step is backward,
                      `optimizer.synchronize()`, `scaler.step(optimizer)`, `scaler.update()`. A step in which any worker's
                      gradient overflows changes nothing, and lowers every worker's scale. The optimizer runs on the workers.
                      To clip, pass clip_norm: gradients are pushed unscaled, so `scaler.unscale_` has nothing to do
    optimizer_on      "servers": SGD, Adagrad, Adam, AdamW and SparseAdam of torch.optim; each chunk of a parameter is updated
                      once, where it is. "workers": any optimizer; moves twice the bytes in two round trips, keeps its state
                      only on each worker and in no checkpoint, and needs mode Sync without backup workers and gated steps.
                      "auto": on the servers if they can run it

    Its job is pushpull.current_job(). Attributes: `timeout`, seconds of every wait for the other workers; `runs_on_servers`.

    Construct it before the job starts, with the same arguments in every worker. The job starts with the first batch, forward
    pass or `zero_grad`; then the parameters have the job's values. Every backward pass outside `no_sync` is a step of the
    job: it pushes each gradient as soon as it is complete. Between `step` and the next forward pass parameters may change at
    any time; `wait` ends that, and so do `model.state_dict()` and any forward pass in evaluation mode.

    With several local ranks (`pushpull.torch.init`) a worker has one such optimizer, whose parameters are in all ranks. It runs
    on the servers, or in mode AllReduce; there are no sparse embeddings and no scaler. `step` blocks until the new values are in
    every rank.

    Raises ValueError (a parameter without a name, the settings), TypeError (a dtype), RuntimeError (gradients in the wrong
    order), and in waits the PushPullErrors of `Handle.wait`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer,
                 named_parameters: Optional[Iterable[tuple[str, torch.nn.Parameter]]] = None, *,
                 model: Optional[torch.nn.Module] = None, codec: str = "none", clip_norm: Optional[float] = None,
                 scaler: Optional[Any] = None, optimizer_on: str = "auto") -> None:
        # Not super().__init__(): parameters, groups and state are those of `optimizer`.
        if (named_parameters is None) == (model is None):
            raise ValueError("expected either named_parameters or model")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm: expected a number above 0, got {clip_norm}")
        self._optimizer = optimizer
        self._job = current_job()
        self.timeout = 60.0
        self._clip_norm = clip_norm
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._is_pending = False  # whether new values are on their way
        self._accumulates = False
        self._is_synchronized = False  # whether the gradients of the parameters are the workers' mean
        self._loss_scale: Optional[float] = None  # of this step; reading it makes the host wait for the device
        self._are_finite: list[torch.Tensor] = []  # of the gradients pushed in this step
        self._share_state()
        named = dict(model.named_parameters() if model is not None else named_parameters or ())
        groups = {id(parameter): group for group in self.param_groups for parameter in group["params"]}
        self._check_names(named, groups)
        self.runs_on_servers = self._choose(optimizer_on)
        self._settings = [fixed(group) for group in self.param_groups]
        trained = {name: parameter for name, parameter in named.items() if id(parameter) in groups}
        # Another DistributedOptimizer of the model may have them already.
        averaged = {} if model is None else {name: buffer for name, buffer in statistics(model).items()
                                             if name not in self._job.store._values}
        embeddings = sparse_embeddings(model, trained)
        self._check_embeddings(embeddings, trained, codec, optimizer_on)
        self._check_ranks(embeddings)
        dense = {name: parameter for name, parameter in trained.items() if name not in embeddings}
        tensors = 1 if self.runs_on_servers else 2
        overflow = [] if self._scaler is None else [torch.zeros(1)]
        shared = RankMemory({**averaged, **dense}, self._job._local_ranks) if self._job.local_ranks > 1 else None
        is_member = self._job.local_rank == 0
        memory = Memory(self._job, [*list(dense.values()) * tensors, *averaged.values(), *overflow], shared) if is_member else None
        self._dense: list[Parameter] = []
        self._rows: list[RowParameter] = []
        self._parameters: dict[str, Union[Parameter, RankParameter, RowParameter]] = {}
        for name, parameter in trained.items():
            group = groups[id(parameter)]
            self._parameters[name] = (self._add_rows(name, parameter, group) if name in embeddings else
                                      self._add(name, parameter, group, memory, codec))
        self._buffers = [self._add_buffer(name, buffer, memory) for name, buffer in averaged.items()]
        self._sums = None if shared is None else self._sum_over_ranks(shared)
        self._overflow = self._add_overflow(overflow[0], memory) if overflow and memory is not None else None
        self._hooks = [self._hook(name, each) for name, each in self._parameters.items()]
        self._spans = None if model is None else PassSpans(self._job, model)
        if model is not None:
            self._hook_modules(model)
        for each in self._rows:
            receive_before(embeddings[each.name], each, self._job._start_once, lambda: self.timeout)
        # Rank 0 may then measure or save while the others are in the next step.
        self._waits_in_step = model is None or self._sums is not None
        self._job._optimizers.append(self)

    # ---- what a training loop calls ----

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients. They are never filled with zeros: servers may still read them."""
        self._job._start_once()
        for each in self._parameters.values():
            each.parameter.grad = None

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Ends the step: pushes the gradients that the backward pass has not pushed, zeros for parameters without a gradient.

        Of the calls after the `accumulate` micro-batches of an ElasticSampler only the last ends a step; the others do nothing.
        Blocks only without `model` or with the optimizer on the workers, for at most `timeout` seconds.
        """
        loss = None if closure is None else closure()
        if getattr(self, "grad_scale", None) is not None and self._scaler is None:
            raise RuntimeError("scaler.step: pass scaler to DistributedOptimizer; otherwise scaled gradients are pushed")
        if self._scaler is not None and not self._is_synchronized:
            raise RuntimeError("scaler.step: call optimizer.synchronize() before it, in the last micro-batch of each step: "
                               "what overflows in one worker must be known to all")
        if not self._job._is_last_of_step:
            return loss
        self._check_settings()
        if self._spans is not None:
            self._spans.end_step()
        if not self._is_synchronized:
            self._push_rest()
        self._end_step(self._job.store._weight)
        return loss

    # GradScaler then calls step even after an overflow and lets step handle that: the job's step has to end.
    _step_supports_amp_scaling = True

    def synchronize(self) -> None:
        """With the optimizer on the workers: blocks until each `parameter.grad` is the workers' mean, which `step` then uses.

        The program may read and change the gradients, for example to measure their norm or to clip them in its own way, if all
        workers do the same. After an overflow with `scaler` one of them is infinite. Blocks for at most `timeout` seconds. Raises
        RuntimeError (the optimizer runs on the servers, the micro-batch is not the last one).
        """
        if self.runs_on_servers:
            raise RuntimeError('synchronize: the optimizer runs on the servers; pass optimizer_on="workers"')
        if not self._job._is_last_of_step:
            raise RuntimeError("synchronize: the step goes on; call it if loader.is_last_of_step")
        if self._is_synchronized:
            return
        self._push_rest()
        self._receive_mean()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within add up gradients and push nothing. The first pass after it pushes the sums."""
        before, self._accumulates = self._accumulates, True
        try:
            yield
        finally:
            self._accumulates = before

    def wait(self) -> None:
        """Blocks until the parameters and the buffers have the values after the last step."""
        if not self._is_pending:
            return
        if self._sums is not None:
            self._sums.pass_on_values(self.timeout)
        self._wait(self._parameters.values())
        for buffer in self._buffers:
            buffer.wait(self.timeout)
        self._is_pending = False

    def state_dict(self) -> dict[str, Any]:
        """Like that of `optimizer`: a torch.optim optimizer of the same class can load it, and so can a job with other servers.

        Has the state that belongs to the parameters after the last step. If the optimizer runs on the servers, each worker that
        calls this receives it from them: blocks for at most `timeout` seconds. Call it between `step` and the next backward
        pass. Raises PushPullError as in `Handle.wait`, RuntimeError if the optimizer keeps state for a sparse embedding.
        """
        if not self.runs_on_servers or not self._job._has_started:
            return self._optimizer.state_dict()
        if self._job.local_rank > 0:
            raise RuntimeError(f"state_dict: this is local rank {self._job.local_rank}; local rank 0 receives the state from the servers")
        self._job._start_once()
        self.wait()
        self._receive_state()
        try:
            return self._optimizer.state_dict()
        finally:
            self.state.clear()  # the servers have it

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from what `state_dict`, or that of a torch optimizer of the same class, returned.

        Call it before the job starts, with the same state in every worker, and load the model's values there too. A job restored
        from its own checkpoint (spec.restoreFrom) takes the state from that. Raises RuntimeError if the job has started and the
        optimizer runs on the servers.
        """
        if self.runs_on_servers and self._job._has_started:
            raise RuntimeError("load_state_dict: the job has started and its servers have the state; call it before")
        self._optimizer.load_state_dict(state_dict)
        self._share_state()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises RuntimeError: tensors are registered before the job starts."""
        raise RuntimeError("add_param_group: add it to the torch optimizer before DistributedOptimizer has it")

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self._optimizer!r}, on {'servers' if self.runs_on_servers else 'workers'})"

    # ---- construction ----

    def _share_state(self) -> None:
        self.param_groups = self._optimizer.param_groups
        self.state = self._optimizer.state
        self.defaults = self._optimizer.defaults

    def _check_names(self, named: dict[str, torch.nn.Parameter], groups: dict[int, dict[str, Any]]) -> None:
        known = {id(parameter) for parameter in named.values()}
        for group in self.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in known:
                    raise ValueError(f"a parameter of shape {tuple(parameter.shape)} of the optimizer has no name: pass "
                                     "named_parameters=model.named_parameters() of the whole model")
        if not groups:
            raise ValueError("the optimizer has no parameters")

    def _choose(self, optimizer_on: str) -> bool:
        """Whether the optimizer runs on the servers or, in mode AllReduce, as it would there."""
        runs_there = self._would_run_on_servers(optimizer_on)
        if not runs_there and "PUSHPULL_RING" in self._job._environment:
            raise ValueError(f"mode AllReduce takes a step of all tensors at once, and {type(self._optimizer).__name__} on the "
                             "workers takes two: use SGD without dampening, Adagrad without lr_decay, Adam or AdamW without "
                             "amsgrad, no scaler, or another spec.sync.mode")
        return runs_there

    def _would_run_on_servers(self, optimizer_on: str) -> bool:
        if optimizer_on not in ("auto", "servers", "workers"):
            raise ValueError(f'optimizer_on: expected "auto", "servers" or "workers", got "{optimizer_on}"')
        halves = [parameter.dtype for group in self.param_groups for parameter in group["params"]
                  if parameter.dtype in (torch.float16, torch.bfloat16)]
        if halves and (optimizer_on == "workers" or self._scaler is not None):
            raise ValueError(f"a parameter of {halves[0]}: the optimizer runs on the servers, which keep its float32 value: pass "
                             'optimizer_on="servers" and no scaler, or a model of float32')
        if self._scaler is not None and optimizer_on == "servers":
            raise ValueError('optimizer_on: with scaler the optimizer runs on the workers, which know that a step overflows')
        if optimizer_on == "workers" or self._scaler is not None:
            return False
        if all(on_servers(self._optimizer, group) for group in self.param_groups):
            return True
        if optimizer_on == "servers" or halves:
            raise ValueError(f"optimizer_on: servers cannot run {self._optimizer!r}; they have SGD without dampening, "
                             "Adagrad without lr_decay, Adam and AdamW without amsgrad, SparseAdam, none with maximize")
        return False

    def _check_embeddings(self, embeddings: Iterable[str], trained: Iterable[str], codec: str, optimizer_on: str) -> None:
        where = None if self.runs_on_servers else f'"{optimizer_on}" with {type(self._optimizer).__name__}'
        for name in embeddings:
            check_choices(name, {"codec": None if codec == "none" else codec, "clip_norm": self._clip_norm, "scaler": self._scaler,
                                 "optimizer_on": where})
        for name in trained:
            if name not in set(embeddings) and needs_sparse(self._optimizer):
                raise ValueError(f'parameter "{name}": SparseAdam is for the weights of Embedding(sparse=True), as in torch; give '
                                 "the others an optimizer and a DistributedOptimizer of their own")

    def _check_ranks(self, embeddings: Iterable[str]) -> None:
        if self._job.local_ranks == 1:
            return
        if not self.runs_on_servers or self._scaler is not None:
            raise ValueError(f"a worker with {self._job.local_ranks} local ranks needs an optimizer that runs on the servers, and no "
                             f"scaler; {self._optimizer!r} does not: use SGD, Adagrad, Adam or AdamW, and bfloat16 autocast")
        embedding = next(iter(embeddings), None)
        if embedding is not None:
            raise ValueError(f'parameter "{embedding}": Embedding(sparse=True) needs a worker with one process; use sparse=False')
        if self._job._optimizers:
            raise ValueError("a second DistributedOptimizer in a worker with several local ranks; use one, with parameter groups")

    def _add_rows(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any]) -> RowParameter:
        optimizer = on_servers(self._optimizer, group)
        assert optimizer is not None
        added = RowParameter(name, parameter, group)
        added.register(self._job, optimizer)
        self._rows.append(added)
        return added

    def _add(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any], memory: Optional[Memory],
             codec: str) -> Union[Parameter, RankParameter]:
        if memory is None:
            return RankParameter(name, parameter, group, None)
        if self._job.local_ranks > 1:
            tensor = self._add_on_servers(name, parameter, group, memory, codec)
            return RankParameter(name, parameter, group, RankMember(parameter, tensor, group))
        added = self._add_dense(name, parameter, group, memory, codec)
        self._dense.append(added)
        return added

    def _sum_over_ranks(self, memory: RankMemory) -> RankSums:
        tensors: dict[str, Union[RankParameter, RankBuffer]] = {each.name: each for each in self._parameters.values()
                                                                if isinstance(each, RankParameter)}
        tensors.update({each.name: each for each in self._buffers if isinstance(each, RankBuffer)})
        return RankSums(self._job, tensors, memory)

    def _add_dense(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any], memory: Memory, codec: str) -> Parameter:
        kind = Parameter if parameter.device.type == "cpu" else DeviceParameter
        if self.runs_on_servers:
            return kind(parameter, group, self._add_on_servers(name, parameter, group, memory, codec), None)
        update = memory.tensor(name, parameter.detach())
        update.register(self._job, SGD(lr=1))
        mean = memory.tensor(f"{name}.gradient", torch.zeros_like(parameter))
        mean.register(self._job, Sum(), codec)
        return kind(parameter, group, mean, update)

    def _add_on_servers(self, name: str, parameter: torch.nn.Parameter, group: dict[str, Any], memory: Memory, codec: str) -> Tensor:
        optimizer = on_servers(self._optimizer, group)
        assert optimizer is not None
        tensor = memory.tensor(name, parameter.detach())
        tensor.register(self._job, optimizer, codec, self._clip_norm or 0.0)
        return tensor

    def _add_buffer(self, name: str, buffer: torch.Tensor, memory: Optional[Memory]) -> Union[Buffer, RankBuffer]:
        if memory is None:
            return RankBuffer(name, buffer, None)
        mean = memory.tensor(name, buffer.clone())
        mean.register(self._job, Sum())
        return Buffer(buffer, mean) if self._job.local_ranks == 1 else RankBuffer(name, buffer, RankMember(buffer, mean, None))

    def _add_overflow(self, flag: torch.Tensor, memory: Memory) -> Tensor:
        overflow = memory.tensor("gradient overflow", flag)
        overflow.register(self._job, Sum())
        return overflow

    def _hook(self, name: str, each: Union[Parameter, RankParameter, RowParameter]) -> object:
        """Called when the gradient of a backward pass is in `parameter.grad`. The result keeps the hook alive."""
        def on_gradient(*_: object) -> None:
            if self._spans is not None:
                self._spans.on_gradient()
            if self._accumulates or not self._job._is_last_of_step:
                return
            self._job._start_once()
            if each.is_pushed or self._is_synchronized:
                raise RuntimeError(f'gradient of "{name}": a second backward pass before step(); run all but the last one '
                                   "in no_sync()")
            self._push(each, self._job.store._weight)

        register: Any = getattr(each.parameter, "register_post_accumulate_grad_hook", None)  # torch 2.1
        if register is not None:
            hook: object = register(on_gradient)
            return hook
        node: Any = each.parameter.expand_as(each.parameter).grad_fn
        accumulate = node.next_functions[0][0]
        accumulate.register_hook(on_gradient)
        return accumulate

    def _hook_modules(self, model: torch.nn.Module) -> None:
        by_id = {id(each.parameter): each for each in self._parameters.values()}

        def wait_before(module: torch.nn.Module) -> None:
            # A module with its own parameters may use those of its submodules without calling them, like
            # MultiheadAttention.
            own = list(module.parameters(recurse=False))
            used = [by_id[id(parameter)] for parameter in (module.parameters() if own else ()) if id(parameter) in by_id]

            def before(called: torch.nn.Module, _: object) -> None:
                self._job._start_once()
                if not called.training:
                    self.wait()
                self._wait(used)
            module.register_forward_pre_hook(before)

        def before_model(_: torch.nn.Module, __: object) -> None:
            self._job._start_once()
            for buffer in self._buffers:
                buffer.wait(self.timeout)

        def after_state_dict(_: torch.nn.Module, state: Any, *__: object) -> Any:
            self.wait()
            self._receive_rows()
            return state

        model.register_forward_pre_hook(before_model)
        model._register_state_dict_hook(after_state_dict)  # type: ignore[no-untyped-call]
        for module in model.modules():
            wait_before(module)

    # ---- a step ----

    def _ignore_changes(self) -> None:
        """Ignores changes to gradients since their push: measuring their norm, by clipping to infinity, changed no value."""
        for each in self._parameters.values():
            each.ignore_changes()

    def _after_start(self) -> None:
        """The parameters and buffers have the job's values from here on."""
        for each in self._parameters.values():
            each.bind(self._job._engine)
        for buffer in self._buffers:
            buffer.bind(self._job._engine)
        if self._sums is not None:
            self._sums.pass_on_values(self.timeout)
        if self._overflow is not None:
            self._overflow.bind(self._job._engine)

    def _before_start(self) -> None:
        """Passes on the values and the state with which the servers begin."""
        for parameter in self._parameters.values():
            parameter.before_start()
        for buffer in self._buffers:
            buffer.before_start()
        if not self.runs_on_servers:
            return
        for name, each in self._parameters.items():
            rows = to_rows(self.state.get(each.parameter, {}), state_names(self._optimizer, each.group))
            if rows is not None and isinstance(each, RowParameter):
                raise _no_row_state("load_state_dict", name)
            if rows is not None:
                self._job.store.set_optimizer_state(name, *rows)
        self.state.clear()

    def _receive_state(self) -> None:
        for row_parameter in self._rows:
            if state_names(self._optimizer, row_parameter.group):
                raise _no_row_state("state_dict", row_parameter.name)
        received = []
        for name, each in self._parameters.items():
            names = state_names(self._optimizer, each.group)
            if names:
                rows = torch.empty((len(names), *each.parameter.shape))
                received.append((each, names, rows, self._job.store.pull_optimizer_state(name, rows)))
        for each, names, rows, handle in received:
            handle.wait(self.timeout)
            if handle.updates > 0:
                self.state[each.parameter] = from_rows(rows, names, handle.updates)

    def _check_settings(self) -> None:
        if not self.runs_on_servers:
            return
        for number, (group, before) in enumerate(zip(self.param_groups, self._settings)):
            now = fixed(group)
            if now != before:
                changed = ", ".join(f"{name} from {before[name]} to {now[name]}" for name in now if now[name] != before[name])
                raise ValueError(f"parameter group {number}: {changed}; servers take only a new lr: pass "
                                 'optimizer_on="workers"')

    def _push_nothing(self) -> None:
        """Makes a step without samples: the other workers wait for this one nevertheless."""
        self._job._start_once()
        for each in self._parameters.values():
            each.parameter.grad = None
        self._push_rest(0.0)
        self._end_step(0.0)

    def _receive_rows(self) -> None:
        """Receives all rows of sparse embeddings, as they are after the last step."""
        if not self._rows or not self._job._has_started:
            return
        self._job._start_once()
        for each in self._rows:
            each.receive_all(self.timeout)

    def _push(self, each: Union[Parameter, RankParameter, RowParameter], samples: float) -> None:
        if self._scaler is not None and self._loss_scale is None:
            self._loss_scale = float(self._scaler.get_scale())
        is_finite = each.push(samples, self.timeout, self._loss_scale)
        if is_finite is not None:
            self._are_finite.append(is_finite)

    def _push_rest(self, samples: Optional[float] = None) -> None:
        """Pushes what the backward pass has not pushed; zeros for parameters without a gradient."""
        self._job._start_once()
        samples = self._job.store._weight if samples is None else samples
        for each in self._parameters.values():
            if each.is_pushed:
                each.check_unchanged()
            else:
                self._push(each, samples)
        if self._overflow is not None:
            if not all(map(bool, self._are_finite)):
                self._overflow.gradient.fill_(1)
            self._are_finite.clear()
            self._overflow.push(samples, 0.0)

    def _receive_mean(self) -> None:
        for each in self._dense:
            each.receive_mean(self.timeout)
        if self._overflow is not None:
            self._overflow.wait(self.timeout)
            self._overflow.gradient.zero_()
            if self._has_overflow():
                grad = self._dense[0].parameter.grad
                assert grad is not None
                grad.fill_(torch.inf)
        self._is_synchronized = True

    def _end_step(self, samples: float) -> None:
        for buffer in self._buffers:
            buffer.push(samples, self.timeout)
        if not self.runs_on_servers:
            self._update_on_worker()
        if self._sums is not None:
            self._sums.end_step(self.timeout)
        for each in self._parameters.values():
            each.end_push(self.timeout)
            each.is_pushed = False
        for buffer in self._buffers:
            buffer.end_push(self.timeout)
        self._is_synchronized = False
        self._loss_scale = None
        self._is_pending = True
        self._job._commit_step(self)
        if self._waits_in_step:
            self.wait()

    def _update_on_worker(self) -> None:
        """Runs the optimizer.

        Pushes the difference, so that the servers have the parameters for workers that join and for checkpoints.
        """
        if not self._is_synchronized:
            self._receive_mean()
        for each in self._dense:
            each.begin_update(self.timeout)
        if not self._has_overflow():
            if self._clip_norm is not None:
                clip_grad_norm_([each.parameter for each in self._dense], self._clip_norm)
            self._optimizer.step()
        for each in self._dense:
            each.push_update()

    def _has_overflow(self) -> bool:
        return self._overflow is not None and float(self._overflow.value) > 0

    def _wait(self, parameters: Iterable[Union[Parameter, RankParameter, RowParameter]]) -> None:
        for each in parameters:
            if not each.is_pushed:  # otherwise its step is not over: parts of a model may run twice
                each.wait(self.timeout)


def _no_row_state(call: str, name: str) -> RuntimeError:
    return RuntimeError(f'{call}: parameter "{name}" is the weight of an Embedding(sparse=True), whose optimizer state stays on the '
                        "servers; the job's checkpoints have it (spec.checkpoint)")
