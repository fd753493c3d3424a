# SPDX-License-Identifier: Apache-2.0
"""Optimizers that run on the servers, with the formulas, defaults and argument names of torch.optim.

A learning rate must be above 0, momentum and betas at least 0 and below 1, weight decay at least 0. Servers reject other
values when the job starts: PushPullError, INVALID_ARGUMENT.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from . import _engine


def _spec(kind: _engine.OptimizerKind, **settings: float) -> _engine.OptimizerSpec:
    spec = _engine.OptimizerSpec()
    spec.kind = kind
    for name, value in settings.items():
        setattr(spec, name, value)
    return spec


@dataclass(frozen=True)
class Sum:
    """No optimizer: a pull returns the reduced gradient of the step."""

    def spec(self) -> _engine.OptimizerSpec:
        """For the engine."""
        return _spec(_engine.OptimizerKind.SUM)


@dataclass(frozen=True)
class SGD:
    """b = momentum b + g; p -= lr b, with nesterov p -= lr (g + momentum b)."""

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def spec(self) -> _engine.OptimizerSpec:
        """For the engine."""
        return _spec(_engine.OptimizerKind.SGD, learning_rate=self.lr, momentum=self.momentum, nesterov=self.nesterov,
                     weight_decay=self.weight_decay)


@dataclass(frozen=True)
class Adagrad:
    """s += g^2; p -= lr g / (sqrt(s) + eps)."""

    lr: float = 0.01
    eps: float = 1e-10
    weight_decay: float = 0.0

    def spec(self) -> _engine.OptimizerSpec:
        """For the engine."""
        return _spec(_engine.OptimizerKind.ADAGRAD, learning_rate=self.lr, epsilon=self.eps,
                     weight_decay=self.weight_decay)


@dataclass(frozen=True)
class Adam:
    """Adam with L2 regularization, which passes through the moments."""

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def spec(self) -> _engine.OptimizerSpec:
        """For the engine."""
        return _spec(_engine.OptimizerKind.ADAM, learning_rate=self.lr, beta1=self.betas[0], beta2=self.betas[1],
                     epsilon=self.eps, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay."""

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01

    def spec(self) -> _engine.OptimizerSpec:
        """For the engine."""
        return _spec(_engine.OptimizerKind.ADAMW, learning_rate=self.lr, beta1=self.betas[0], beta2=self.betas[1],
                     epsilon=self.eps, weight_decay=self.weight_decay)


Optimizer = Union[Sum, SGD, Adagrad, Adam, AdamW]
