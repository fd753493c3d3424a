# SPDX-License-Identifier: Apache-2.0
"""Which of the servers' optimizers is equivalent to one of torch.optim."""
from __future__ import annotations

import sys
from typing import Any, Callable, Optional

import torch

from .._optimizers import SGD, Adagrad, Adam, AdamW, Optimizer

# For servers 0 means "as registered". This is below the rounding of any update.
_LOWEST_LEARNING_RATE = 1e-30


def learning_rate(group: dict[str, Any]) -> float:
    """The learning rate of a parameter group, in the form that servers take. Raises ValueError if it is below 0."""
    lr = float(group["lr"])
    if not lr >= 0:
        raise ValueError(f"lr: expected 0 or more, got {lr}: servers take no other; to maximize, negate the loss, or pass "
                         'optimizer_on="workers"')
    return max(lr, _LOWEST_LEARNING_RATE)


def on_servers(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> Optional[Optimizer]:
    """The servers' optimizer with the settings of a parameter group, or None if they have no such optimizer."""
    if has_own_step(optimizer):
        return None
    if group.get("maximize") or group.get("amsgrad") or group.get("differentiable"):
        return None
    lr, decay = learning_rate(group), group.get("weight_decay", 0.0)
    kind = type(optimizer)
    if kind is torch.optim.SGD:
        if group["dampening"] != 0:
            return None
        return SGD(lr=lr, momentum=group["momentum"], nesterov=group["nesterov"], weight_decay=decay)
    if kind is torch.optim.Adagrad:
        if group["lr_decay"] != 0 or group["initial_accumulator_value"] != 0:
            return None
        return Adagrad(lr=lr, eps=group["eps"], weight_decay=decay)
    betas = (float(group["betas"][0]), float(group["betas"][1])) if "betas" in group else (0.0, 0.0)
    if kind is torch.optim.AdamW or (kind is torch.optim.Adam and group.get("decoupled_weight_decay")):
        return AdamW(lr=lr, betas=betas, eps=group["eps"], weight_decay=decay)
    if kind in (torch.optim.Adam, torch.optim.SparseAdam):
        return Adam(lr=lr, betas=betas, eps=group["eps"], weight_decay=decay)
    return None


def has_own_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the program has replaced the method `step` of this optimizer, other than by a scheduler of torch, which counts steps."""
    step: Any = vars(optimizer).get("step")
    if step is None:
        return False
    is_of_scheduler = hasattr(step, "_wrapped_by_lr_sched") or hasattr(step, "_with_counter")
    return not is_of_scheduler or getattr(step, "__wrapped__", None) is not type(optimizer).step


def step_hooks(optimizer: torch.optim.Optimizer, when: str) -> list[Callable[..., Any]]:
    """The hooks of the optimizer's `step`, "pre" or "post", and those of all optimizers. Before torch 2.0 there are none."""
    own: dict[int, Callable[..., Any]] = getattr(optimizer, f"_optimizer_step_{when}_hooks", {})
    every: dict[int, Callable[..., Any]] = getattr(sys.modules["torch.optim.optimizer"], f"_global_optimizer_{when}_hooks", {})
    return [*every.values(), *own.values()] if when == "pre" else [*own.values(), *every.values()]


def needs_sparse(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer is only for parameters with sparse gradients."""
    return type(optimizer) is torch.optim.SparseAdam


# The state that torch.optim keeps for a parameter, in the order of the servers' rows.
_STATE_NAMES: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.Adagrad: ("sum",),
    torch.optim.Adam: ("exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    torch.optim.SparseAdam: ("exp_avg", "exp_avg_sq"),
}


def state_names(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> tuple[str, ...]:
    """The names in `state` of what an optimizer that servers can run keeps for a parameter of the group."""
    names = _STATE_NAMES[type(optimizer)]
    return () if group.get("momentum") == 0 else names


def to_rows(state: dict[str, Any], names: tuple[str, ...]) -> Optional[tuple[torch.Tensor, int]]:
    """The servers' rows and the number of updates in them; None if the optimizer has made no step."""
    parts = [state.get(name) for name in names]
    updates = int(state.get("step", 1))
    if updates == 0 or not parts or any(part is None for part in parts):
        return None
    return torch.stack([part.detach().float() for part in parts if part is not None]).cpu(), updates


def from_rows(rows: torch.Tensor, names: tuple[str, ...], updates: int) -> dict[str, Any]:
    """The inverse: the state as torch.optim has it."""
    state: dict[str, Any] = dict(zip(names, rows.unbind()))
    if names != ("momentum_buffer",):
        state["step"] = torch.tensor(float(updates), dtype=torch.float32, device="cpu")
    return state


def fixed(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a parameter group that servers take once, when the tensors are registered."""
    names = ("momentum", "nesterov", "weight_decay", "betas", "eps", "dampening", "maximize", "amsgrad", "lr_decay")
    return {name: group[name] for name in names if name in group}


def described(optimizer: torch.optim.Optimizer) -> str:
    """In one line: the last line of an error is all that a launcher shows."""
    return " ".join(repr(optimizer).split())
