# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a model that several workers train."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

import torch

from .._job import current_job
from . import _barrier
from ._barrier import uncompiled
from ._placement import Placement, Setup
from ._servers import OnServers
from ._settings import described, on_servers
from ._spans import PassSpans
from ._start import GradientHooks, StartHooks
from ._tensors import Waits
from ._workers import OnWorkers


class DistributedOptimizer(torch.optim.Optimizer):
    """Applies `optimizer` to the mean gradient of all workers, weighted by their samples.

    optimizer         its parameters must be float32, bfloat16 or float16, on the CPU or on a GPU (CUDA or ROCm). Its param_groups and
                      state are those of this object, for example for learning-rate schedulers
    named_parameters  all its parameters, in the order of the forward pass, such as model.named_parameters()
    model             alternative: then also the finite floating-point buffers of its state_dict (such as the statistics of batch norm)
                      become the workers' mean
    codec             of gradients on the wire: "none", "fp16", "bf16", "int8", "topk", "onebit"
    clip_norm         limit of the norm of the mean gradient over all parameters, as in torch.nn.utils.clip_grad_norm_
    scaler            the torch.amp.GradScaler of float16 autocast (torch 2.3 or newer on the CPU); the optimizer runs on the workers
    optimizer_on      "workers": any optimizer. After backward() each `parameter.grad` is the workers' mean, as with
                      DistributedDataParallel; parameters, gradients and the optimizer are the program's to read and change. Each
                      backward pass outside `no_sync` is a step of the job. Who joins gets parameters and state from another
                      worker; the job's checkpoints have them. Needs mode Sync without backup workers and gated steps
                      "servers": SGD, Adagrad, Adam, AdamW and SparseAdam of torch.optim. Gradients are sent during the backward pass,
                      each part of a parameter is updated once, where it is, and new values arrive during the next forward pass: who
                      reads a parameter waits for it. Using a gradient after backward(), changing a parameter, a setting other than lr,
                      or the state raises RuntimeError or ValueError; the state is in the job's checkpoints.
                      nn.Embedding(sparse=True) of `model` moves only the rows that a batch touches
                      "auto": on the servers if they can run it

    Its job is pushpull.current_job(). Attributes: `timeout`, seconds of every wait for the other workers (None: as long as they are
    alive); `runs_on_servers`.

    Construct it before the job starts, with the same arguments in every worker. The job starts with the first batch, forward pass of
    `model` or `zero_grad`; then the parameters have the job's values. Parameter groups may be added before, and with the optimizer on
    the workers at any time.

    Raises ValueError (a parameter without a name, the settings), TypeError (a dtype), and in waits the PushPullErrors of `Handle.wait`.
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
        if self._job._has_started:
            raise RuntimeError("DistributedOptimizer(): the job has started, and its tensors are registered before that; construct each "
                               "optimizer before the first batch, and once: to begin anew with it, load an earlier state_dict() "
                               '(optimizer_on="workers"); or train this model in another job, such as one for each fold')
        if self._job._optimizers and self._job.local_ranks > 1:
            raise ValueError("a second DistributedOptimizer in a worker with several local ranks; use one, with parameter groups")
        named = dict(model.named_parameters() if model is not None else named_parameters or ())
        self._setup = Setup(optimizer, named, model, codec, clip_norm,
                            scaler if scaler is not None and scaler.is_enabled() else None, Waits(self._job))
        _check_names(self._setup)
        self.runs_on_servers = _would_run_on_servers(self._setup, optimizer_on)
        if any(isinstance(each, DistributedOptimizer) and each.runs_on_servers != self.runs_on_servers for each in self._job._optimizers):
            raise ValueError('optimizer_on: one optimizer of the job runs on the servers and another one on the workers; pass '
                             'optimizer_on="workers" to all of them')
        self._placement: Placement = (OnServers if self.runs_on_servers else OnWorkers)(self._setup)
        self._spans = None if model is None else PassSpans(self._job, model)
        self._gradient_hooks = GradientHooks(named, self._on_gradient)
        self._start_hooks = StartHooks(self._job, model)
        self._refusals: list[_barrier.Refusal] = []
        self._job._optimizers.append(self)

    # ---- what a training loop calls ----

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        if self._job._has_ended:
            self._optimizer.zero_grad(set_to_none)
            return
        self._job._start_once()
        uncompiled(self._placement.zero_grad)(set_to_none)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Makes the optimizer's step; returns the closure's loss, with the optimizer on the workers the mean of all workers.

        Of the calls after the `accumulate` micro-batches of an ElasticSampler only the last ends a step; the others do nothing.
        """
        if getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None:
            raise RuntimeError("scaler.step: pass scaler to DistributedOptimizer")
        if self._job._has_ended:
            raise RuntimeError("step: the job has ended; go on with the torch optimizer, or make a DistributedOptimizer in another job")
        self._job._start_once()
        if not self.runs_on_servers:
            _check_names(self._setup)  # groups may have been added to the torch optimizer
        if self._spans is not None:
            self._spans.end_step()
        return uncompiled(self._placement.step)(closure)

    def synchronize(self) -> None:
        """With the optimizer on the workers each `parameter.grad` is the mean after backward(): nothing to do.

        Raises RuntimeError if the optimizer runs on the servers, or the step goes on.
        """
        if self.runs_on_servers:
            raise RuntimeError('synchronize: the optimizer runs on the servers; pass optimizer_on="workers"')
        if not self._job._is_last_of_step:
            raise RuntimeError("synchronize: the step goes on; call it if loader.is_last_of_step")

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within add up gradients on this worker. The first pass after it makes the sums the workers' mean."""
        before, self._setup.accumulates = self._setup.accumulates, True
        try:
            yield
        finally:
            self._setup.accumulates = before

    def wait(self) -> None:
        """Blocks until the parameters and the buffers have the values after the last step. Reading one of them waits for that one."""
        if self._job._has_started and not self._job._has_ended:
            self._placement.wait()

    def state_dict(self) -> dict[str, Any]:
        """Like that of `optimizer`: a torch.optim optimizer of the same class can load it, and so can a job with other servers.

        If the optimizer runs on the servers, each worker that calls this receives the state from them; call it between `step` and
        the next backward pass. Raises PushPullError as in `Handle.wait`, RuntimeError if the state of a sparse embedding belongs to it.
        """
        self._job._check_is_present("optimizer.state_dict()")
        if self._job._has_ended:
            return self._optimizer.state_dict()
        return self._placement.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from what `state_dict`, or that of a torch optimizer of the same class, returned.

        With the optimizer on the servers call it before the job starts, with the same state in every worker, and load the model's
        values there too; afterwards it raises RuntimeError. A job restored from its own checkpoint takes the state from that.
        """
        if self._job._has_ended:
            self._optimizer.load_state_dict(state_dict)
            return
        self._placement.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As of torch. With the optimizer on the servers, raises RuntimeError once the job has started."""
        if self.runs_on_servers and self._job._has_started:
            raise RuntimeError("add_param_group: the job has started and its servers have its tensors; add the group before, or pass "
                               'optimizer_on="workers"')
        self._optimizer.add_param_group(param_group)
        _check_names(self._setup)

    @property
    def timeout(self) -> Optional[float]:
        """Seconds of every wait for the other workers; None: as long as they are alive."""
        return self._setup.waits.timeout

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self._setup.waits.timeout = seconds

    # ---- those of the torch optimizer, also after its load_state_dict ----

    @property
    def param_groups(self) -> Any:
        return self._optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self._optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self._optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self._optimizer.state = state

    @property
    def defaults(self) -> Any:
        return self._optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: Any) -> None:
        self._optimizer.defaults = defaults

    def __getattr__(self, name: str) -> Any:
        """What else the torch optimizer has: methods of its class such as `first_step` of SAM, and the hooks that
        `register_step_post_hook` adds to."""
        if name.startswith("__") or name in _NOT_PASSED_ON or "_optimizer" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self._optimizer, name)
        if callable(found) and not name.startswith("_") and self.__dict__.get("runs_on_servers", True):
            raise AttributeError(f"{name}: the optimizer runs on the servers, and {type(self._optimizer).__name__}.{name} would have no "
                                 'effect there; pass optimizer_on="workers"')
        return found

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("copy.deepcopy(optimizer): a DistributedOptimizer is this worker's part of the job, and there is one; copy "
                        "optimizer.state_dict(), or the torch optimizer before DistributedOptimizer takes it")

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self._optimizer!r}, on {'servers' if self.runs_on_servers else 'workers'})"

    # ---- what the job and the adapters of trainers call ----

    def _allow_reading(self) -> None:
        """The program measures the gradients of this worker, and changes nothing."""
        self._placement.allow_reading()

    def _refuse_reading(self) -> None:
        """Whoever reads a parameter gets an error, because the program is in an epoch that is over."""
        for name, parameter in self._setup.named.items():
            self._refusals.append(_barrier.Refusal(parameter, functools.partial(self._job._check_is_present, f'reading parameter "{name}"')))

    def _allow_present(self) -> None:
        for refusal in self._refusals:
            refusal.end()
        self._refusals.clear()

    def _before_start(self) -> None:
        with _barrier.outside_inference():
            self._placement.before_start()

    def _after_start(self) -> None:
        self._start_hooks.detach()
        with _barrier.outside_inference():
            self._placement.after_start()

    def _finish_pushes(self, is_last: bool) -> None:
        self._placement.finish_pushes(is_last)

    def _push_nothing(self) -> None:
        """Makes a step without samples: the other workers wait for this one nevertheless."""
        self._job._start_once()
        self._placement.make_empty_step()

    def _detach(self) -> None:
        """The job is over: model and optimizer are the program's own."""
        self._allow_present()
        self._gradient_hooks.detach()
        self._start_hooks.detach()
        if self._spans is not None:
            self._spans.detach()
        if self._job._has_started:
            self._placement.detach()

    def _on_gradient(self, parameter: torch.nn.Parameter) -> None:
        if self._spans is not None:
            self._spans.on_gradient()
        if not self._job._has_started:
            self._start_hooks.start_after_forward(self._setup.named)
        self._placement.on_gradient(parameter)


# What a GradScaler and a scheduler of torch leave on, or ask of, the optimizer that they are given.
_NOT_PASSED_ON = ("grad_scale", "found_inf", "_step_supports_amp_scaling", "_opt_called", "_step_count")


def _check_names(setup: Setup) -> None:
    known = {id(parameter) for parameter in setup.named.values()}
    parameters = [parameter for group in setup.optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        if id(parameter) not in known and setup.waits.job._has_started:
            raise ValueError(f"a parameter of shape {tuple(parameter.shape)} of the optimizer is new: the job has started, and its tensors "
                             "are those that the model had when DistributedOptimizer was made. Make all layers before that, and add or "
                             "unfreeze their parameters when they are to train; or train the larger model in another job")
        if id(parameter) not in known:
            raise ValueError(f"a parameter of shape {tuple(parameter.shape)} of the optimizer has no name: pass "
                             "named_parameters=model.named_parameters() of the whole model")
    if not parameters:
        raise ValueError("the optimizer has no parameters")


def _would_run_on_servers(setup: Setup, optimizer_on: str) -> bool:
    if optimizer_on not in ("auto", "servers", "workers"):
        raise ValueError(f'optimizer_on: expected "auto", "servers" or "workers", got "{optimizer_on}"')
    if setup.scaler is not None and optimizer_on == "servers":
        raise ValueError("optimizer_on: with scaler the optimizer runs on the workers, which know that a step overflows")
    if optimizer_on == "workers" or setup.scaler is not None:
        return False
    if all(on_servers(setup.optimizer, group) for group in setup.optimizer.param_groups):
        return True
    if optimizer_on == "servers":
        raise ValueError(f"optimizer_on: servers cannot run {described(setup.optimizer)}; they have SGD without dampening, "
                         "Adagrad without lr_decay, Adam and AdamW without amsgrad, SparseAdam, none with maximize")
    return False
