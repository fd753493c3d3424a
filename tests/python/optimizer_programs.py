# SPDX-License-Identifier: Apache-2.0
"""More of programs.py, by what they do with optimizers: several of them, several backward passes, settings, schedules."""
import copy
import sys
import types
from typing import Any

import torch
from program_ways import EITHER, STEPS, Context, program, run_worker
from programs import adamw, fit, net, sgd
from torch import nn
from torch.nn import functional as F

# ---- several optimizers and backward passes ----


@program()
def two_optimizers_in_one_step(context: Context) -> nn.Module:
    """Matrices and vectors have optimizers of different kinds, which step together."""
    model = net()
    matrices = torch.optim.Adam([p for p in model.parameters() if p.dim() > 1], lr=0.05)
    vectors = torch.optim.SGD([p for p in model.parameters() if p.dim() == 1], lr=0.5)
    optimizers = [context.wrap(matrices, model), context.wrap(vectors, model)]
    for x, y in context.batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER, workers=EITHER)
def quasi_newton(context: Context) -> nn.Module:
    """L-BFGS, whose step calls the closure several times, always equally often."""
    model = net()
    optimizer = context.wrap(torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=3, tolerance_grad=0, tolerance_change=0), model)
    for x, y in context.batches(3):
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        optimizer.step(closure)  # returns the mean of the workers' losses
    return model


@program()
def step_with_a_closure(context: Context) -> nn.Module:
    """A trainer that passes the forward and backward pass to `step`, whatever the optimizer."""
    model = net()
    optimizer = context.wrap(adamw(model), model)
    for x, y in context.batches():
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        optimizer.step(closure)  # returns the mean of the workers' losses
    return model


@program(auto=EITHER)
def accumulated_by_plain_passes(context: Context) -> nn.Module:
    """Three backward passes before each step; gradients add up, as in any script for one GPU."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    for step in range(4):
        for part in range(3):
            x, y = context.batch(3 * step + part)
            loss = F.cross_entropy(model(x), y) / 3
            loss.backward()
            context.log(loss)
        optimizer.step()
        optimizer.zero_grad()
    return model


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
        self.d = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


@program(auto=EITHER)
def critic_steps_for_each_generator_step(context: Context) -> nn.Module:
    """A Wasserstein GAN: three steps of the critic, one of the generator, whose pass also gives the critic gradients."""
    model = Gan()
    of_g = context.wrap(torch.optim.RMSprop(model.g.parameters(), lr=0.01), model)
    of_d = context.wrap(torch.optim.RMSprop(model.d.parameters(), lr=0.01), model)
    for step in range(3):
        for part in range(3):
            x, _ = context.batch(3 * step + part)
            of_d.zero_grad()
            loss = model.d(model.g(x[:, :4]).detach()).mean() - model.d(x).mean()
            loss.backward()
            of_d.step()
            context.log(loss)
        of_g.zero_grad()
        loss = -model.d(model.g(x[:, :4])).mean()
        loss.backward()
        of_g.step()
        context.log(loss)
    return model


@program(auto=EITHER)
def actor_and_critic_in_two_passes(context: Context) -> nn.Module:
    """Two losses over one trunk, each with a backward pass of its own, and one step."""
    model = nn.ModuleDict({"trunk": nn.Linear(6, 8), "actor": nn.Linear(8, 3), "critic": nn.Linear(8, 1)})
    optimizer = context.wrap(torch.optim.Adam(model.parameters(), lr=0.05), model)
    for x, y in context.batches():
        h = torch.tanh(model["trunk"](x))
        value = model["critic"](h)[:, 0]
        advantage = (x.sum(1) - value).detach()
        optimizer.zero_grad()
        actor = (F.cross_entropy(model["actor"](h), y, reduction="none") * advantage).mean()
        actor.backward(retain_graph=True)
        critic = F.mse_loss(value, x.sum(1))
        critic.backward()
        optimizer.step()
        context.log(critic)
    return model


@program()
def penalty_on_the_gradient_of_the_input(context: Context) -> nn.Module:
    """A double backward pass: the norm of the input's gradient is part of the loss."""
    model = net()
    optimizer = context.wrap(adamw(model), model)
    for x, y in context.batches():
        x.requires_grad_(True)
        loss = F.cross_entropy(model(x), y)
        slope, = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + 20 * slope.norm(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER, workers=EITHER)
def penalty_on_accumulated_gradients(context: Context) -> nn.Module:
    """`backward(create_graph=True)`, then a second pass through the gradients that it left."""
    model = net()
    optimizer = context.wrap(sgd(model, lr=0.1), model)
    for x, y in context.batches(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward(create_graph=True)
        penalty = sum(p.grad.square().sum() for p in model.parameters())
        penalty.backward()
        optimizer.step()
        context.log(penalty)
    return model


@program(auto=EITHER)
def gradients_assigned_by_hand(context: Context) -> nn.Module:
    """`torch.autograd.grad`, of which the program makes `p.grad` itself: of one task in full, of the other in part."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    for x, y in context.batches():
        out = model(x)
        first, second = F.cross_entropy(out, y), out.square().mean()
        parameters = list(model.parameters())
        of_first = torch.autograd.grad(first, parameters, retain_graph=True)
        of_second = torch.autograd.grad(second, parameters)
        for p, a, b in zip(parameters, of_first, of_second):
            p.grad = a + 0.3 * b
        optimizer.step()
        context.log(first)
    return model


# ---- settings of optimizers ----


@program(auto=EITHER)
def one_cycle(context: Context) -> nn.Module:
    """OneCycleLR, which also moves the momentum."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=STEPS + 1)
    fit(context, model, optimizer, after_step=lambda _: schedule.step())
    return model


@program(auto=EITHER)
def rate_changed_before_the_step(context: Context) -> nn.Module:
    """`scheduler.step()` between the backward pass and the step, as before torch 1.1."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    fit(context, model, optimizer, before_step=lambda _: schedule.step())
    return model


@program(needs="torch.optim.Optimizer.register_step_post_hook")
def hooks_of_the_step(context: Context) -> nn.Module:
    """The rate and an average of the weights are kept by hooks, one of the torch optimizer and one of what wraps it."""
    model = net()
    average = copy.deepcopy(model).requires_grad_(False)
    plain = sgd(model)

    def update(*_: Any) -> None:
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p.detach(), 0.3)
    plain.register_step_post_hook(update)
    optimizer = context.wrap(plain, model)
    optimizer.register_step_post_hook(lambda *_: context.log(model[2].weight.norm()))
    fit(context, model, optimizer)
    return average


@program(auto=EITHER, needs="torch.optim.Optimizer.register_step_pre_hook")
def gradients_clipped_by_a_hook_of_the_step(context: Context) -> nn.Module:
    """A plug-in clips in a hook that it gives the torch optimizer before it is wrapped."""
    model = net()
    plain = sgd(model)

    def clip(*_: Any) -> None:
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
    plain.register_step_pre_hook(clip)
    fit(context, model, context.wrap(plain, model))
    return model


def mask_gradients(weight: nn.Parameter) -> None:
    """In every second row the weight stays."""
    mask = torch.zeros_like(weight)
    mask[::2] = 1

    def apply(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(mask)
    weight.register_post_accumulate_grad_hook(apply)


@program(auto=EITHER, workers=EITHER, needs="torch.Tensor.register_post_accumulate_grad_hook")
def half_a_layer_kept_by_a_late_hook(context: Context) -> nn.Module:
    """A plug-in masks gradients in a hook that it registers when all else has been set up."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    mask_gradients(model[0].weight)
    fit(context, model, optimizer)
    return model


@program(needs="torch.Tensor.register_post_accumulate_grad_hook")
def half_a_layer_kept_by_an_early_hook(context: Context) -> nn.Module:
    """The same hook, registered with the model."""
    model = net()
    mask_gradients(model[0].weight)
    fit(context, model, context.wrap(sgd(model), model))
    return model


class Counted(nn.Module):
    """A parametrization with a state that each use advances, as spectral_norm's."""

    def __init__(self) -> None:
        super().__init__()
        self.uses = 0

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.uses += 1
        return weight * (1 + 0.01 * self.uses)


@program()
def weight_that_counts_its_uses(context: Context) -> nn.Module:
    model = net()
    counted = Counted()
    nn.utils.parametrize.register_parametrization(model[0], "weight", counted)
    before = counted.uses
    fit(context, model, context.wrap(sgd(model), model), after_step=lambda _: context.log(counted.uses - before))
    return model


@program()
def step_replaced_by_the_program(context: Context) -> nn.Module:
    """A plug-in that puts a method of its own in the place of `step`, under a scheduler."""
    model = net()
    plain = sgd(model)
    original = plain.step

    def step(self: torch.optim.Optimizer, closure: Any = None) -> Any:
        for p in model.parameters():
            p.grad.mul_(0.3)
        return original(closure)
    plain.step = types.MethodType(step, plain)
    schedule = torch.optim.lr_scheduler.ExponentialLR(plain, 0.8)
    optimizer = context.wrap(plain, model)
    fit(context, model, optimizer, after_step=lambda _: schedule.step())
    return model


@program()
def default_type_of_float64(context: Context) -> nn.Module:
    """A script whose tensors are float64 unless it says otherwise, and whose model is not; it saves the optimizer's state."""
    torch.set_default_dtype(torch.float64)
    try:
        model = net().float()
        optimizer = context.wrap(adamw(model), model)
        fit(context, lambda x: model(x.float()), optimizer)
        context.log(optimizer.state_dict()["state"][0]["exp_avg"].norm())
    finally:
        torch.set_default_dtype(torch.float32)
    return model


@program(auto=EITHER)
def betas_and_decay_scheduled(context: Context) -> nn.Module:
    """A trainer that raises beta2 and lowers eps, and the decay along a cosine (DINO)."""
    model = net()
    optimizer = context.wrap(adamw(model), model)

    def schedule(step: int) -> None:
        optimizer.param_groups[0].update(betas=(0.9 - step / 10, 0.99 + step / 1000), eps=10 ** (-2 - step),
                                         weight_decay=0.2 + step / 3)
    fit(context, model, optimizer, after_step=schedule)
    return model


@program(auto=EITHER)
def warm_up_and_cycles(context: Context) -> nn.Module:
    """A warm-up from rate 0, then CyclicLR without momentum; the last step climbs with a negative rate."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=0.6, step_size_up=2, cycle_momentum=False)

    def after(step: int) -> None:
        schedule.step()
        if step == STEPS - 2:
            optimizer.param_groups[0]["lr"] = -0.3
    fit(context, model, optimizer, after_step=after)
    return model


@program()
def groups_with_flags_of_their_own(context: Context) -> nn.Module:
    """amsgrad in one group, maximize and another decay in another, with foreach."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    groups = [{"params": model[0].parameters(), "amsgrad": True}, {"params": model[2].parameters(), "maximize": True, "lr": 0.01},
              {"params": model[4].parameters(), "weight_decay": 0.3, "betas": (0.5, 0.9)}]
    fit(context, model, context.wrap(torch.optim.AdamW(groups, lr=0.05, foreach=True), model))
    return model


@program()
def decay_for_matrices_alone(context: Context) -> nn.Module:
    """Two groups, as in nearly every recipe; here also with and without Nesterov's momentum."""
    model = net()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.3, "nesterov": True},
              {"params": [p for p in model.parameters() if p.dim() == 1], "momentum": 0.5}]
    fit(context, model, context.wrap(torch.optim.SGD(groups, lr=0.2, momentum=0.9), model))
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_worker(*sys.argv[1:])
