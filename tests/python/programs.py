# SPDX-License-Identifier: Apache-2.0
"""Training programs as strangers write them, to judge pushpull.torch: `programs.py NAME WAY` is one worker of a job.

A program is one function. It runs as it is in three ways (program_ways.py): alone, which is replicas in one process whose
gradients become their mean after each backward pass, as with DistributedDataParallel, and whose buffers do after each step; and
by the workers of a job, with the optimizer where "auto" puts it and on the "workers". What it logs and returns must be the same,
or the job refuses it with an error that says what to change. programs_test.py runs and judges them all.
"""
import copy
import io
import pickle
import sys
import types
from typing import Any, Callable

import torch
from program_ways import EITHER, STEPS, Context, batch_of, program, run_worker
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint


WithoutTorchFunction: Any = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def sgd(model: nn.Module, lr: float = 0.2) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.8, weight_decay=0.05)


def adamw(model: nn.Module, lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.2)


def fit(context: Context, model: Callable[[torch.Tensor], torch.Tensor], optimizer: Any, steps: int = STEPS, *,
        before_step: Callable[[int], object] = lambda step: None, after_step: Callable[[int], object] = lambda step: None) -> None:
    """The usual loop. `before_step` runs between the backward pass and the step."""
    for step, (x, y) in enumerate(context.batches(steps)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        before_step(step)
        optimizer.step()
        after_step(step)
        context.log(loss)


def evaluate(context: Context, model: nn.Module) -> None:
    """On the same data in every worker."""
    model.eval()
    with torch.no_grad():
        x, y = batch_of(999_999, 32)
        context.log(F.cross_entropy(model(x), y))
    model.train()


# ---- reads of weights ----


class TiedCaptions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.mix = nn.Linear(6, 6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.mix(self.embed(tokens).mean(1)))
        return h @ (self.embed.weight - self.embed.weight.mean(0)).t()


@program()
def tied_output_reads_the_embedding(context: Context) -> nn.Module:
    """A language model whose output layer is the centred matrix of its embedding, read as an attribute."""
    model = TiedCaptions()
    optimizer = context.wrap(torch.optim.Adam(model.parameters(), lr=0.05), model)
    for x, _ in context.batches():
        tokens = (x.abs() * 3).long().clamp(max=9)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), tokens[:, 0])
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


@program()
def penalty_before_the_forward_pass(context: Context) -> nn.Module:
    """Transfer learning (L2-SP): the distance from the first weights is a term of the loss, and computed first."""
    model = net()
    first = [p.detach().clone() for p in model.parameters()]
    optimizer = context.wrap(sgd(model), model)
    for x, y in context.batches():
        optimizer.zero_grad()
        distance = sum(((p - p0) ** 2).sum() for p, p0 in zip(model.parameters(), first))
        loss = F.cross_entropy(model(x), y) + 0.5 * distance
        loss.backward()
        optimizer.step()
        context.log(distance)
    return model


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).t()


@program()
def parametrized_layers(context: Context) -> nn.Module:
    """A GAN's critic: a symmetric layer, one with a spectral norm, and one with the older weight norm."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    parametrizations.spectral_norm(model[2])
    nn.utils.weight_norm(model[4])
    fit(context, model, context.wrap(sgd(model), model))
    return model


@program(needs="torch.nn.utils.stateless")
def functional_call_with_rounded_weights(context: Context) -> nn.Module:
    """Quantization-aware training: the forward pass uses weights on a grid, the gradient passes straight through."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    call: Any = getattr(getattr(torch, "func", None), "functional_call", None) or torch.nn.utils.stateless.functional_call

    def rounded(x: torch.Tensor) -> torch.Tensor:
        weights = {name: p + ((p * 16).round() / 16 - p).detach() for name, p in model.named_parameters()}
        return call(model, weights, (x,))
    fit(context, rounded, optimizer)
    return model


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(lambda x: torch.tanh(self.first(x)), x, use_reentrant=False)
        x = checkpoint(lambda x: torch.relu(self.second(x)) @ self.second.weight, x, use_reentrant=True)
        return self.head(x)


@program()
def checkpointed_blocks(context: Context) -> nn.Module:
    """Activations are computed again in the backward pass, in both implementations of torch."""
    model = Checkpointed()
    fit(context, model, context.wrap(sgd(model), model))
    return model


@program(needs="torch.compile")
def compiled_before_wrapping(context: Context) -> nn.Module:
    """A script that compiles its model first and then treats the result as the model."""
    model: Any = torch.compile(net(), backend="aot_eager")
    fit(context, model, context.wrap(sgd(model), model))
    return model


@program(needs="torch.compile")
def compiled_after_wrapping(context: Context) -> nn.Module:
    """A script that compiles the loss as one function, long after the optimizer was made."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    loss_of: Any = torch.compile(lambda x, y: F.cross_entropy(model(x), y) + model[2].weight.square().mean(), backend="aot_eager")
    for x, y in context.batches():
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER, workers=EITHER)
def scripted_model(context: Context) -> nn.Module:
    """A model that is scripted before training, as speech models are for deployment."""
    model = torch.jit.script(net())
    fit(context, model, context.wrap(sgd(model), model))
    return model


@program()
def weight_standardization_by_a_hook(context: Context) -> nn.Module:
    """A hook of the whole model, registered first, logs the weight of a layer and adds its spread to the input."""
    model = net()

    def read(_: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        context.log(model[2].weight.norm())
        return (inputs[0] * (1 + model[0].weight.std(dim=0)),)
    model.register_forward_pre_hook(read)
    fit(context, model, context.wrap(sgd(model), model))
    return model


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.gates = nn.LSTM(1, 8, num_layers=2, batch_first=True, bidirectional=True), nn.GRU(16, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, _ = self.cells(x[:, :, None])
        _, last = self.gates(h.transpose(0, 1))
        scores: torch.Tensor = self.head(last[-1])
        return scores


@program()
def recurrent_layers(context: Context) -> nn.Module:
    """A bidirectional LSTM and a GRU, whose modules keep lists of their weights."""
    model = Recurrent()
    fit(context, model, context.wrap(adamw(model), model), 10)
    return model


class ByExtension(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        with WithoutTorchFunction():  # as an extension in C++ has the tensors
            return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x


@program()
def weight_read_by_an_extension(context: Context) -> nn.Module:
    """A layer written in C++ (the LLTM of the tutorial), called by an autograd.Function of its own."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    fit(context, lambda x: model[1:](ByExtension.apply(x, model[0].weight)), optimizer)
    return model


@program()
def evaluated_in_inference_mode(context: Context) -> nn.Module:
    """The validation runs once before the training, and after each step, in torch.inference_mode."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = context.wrap(sgd(model), model)

    def validate(_: int) -> None:
        model.eval()
        with torch.inference_mode():
            context.log(model(batch_of(999_999)[0]).norm())
        model.train()
    validate(0)
    fit(context, model, optimizer, after_step=validate)
    return model


@program(auto="refused", workers="refused")
def exception_in_a_backward_pass(context: Context) -> nn.Module:
    """A hook fails in the middle of a backward pass; the program leaves the batch out and goes on."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    for step, (x, y) in enumerate(context.batches()):
        optimizer.zero_grad()
        h = model[:2](x)
        if step == 2:
            h.register_hook(fail)
        try:
            loss = F.cross_entropy(model[2:](h), y)
            loss.backward()
        except ArithmeticError:
            continue
        optimizer.step()
        context.log(loss)
    return model


def fail(_: torch.Tensor) -> None:
    raise ArithmeticError("overflow")


# ---- which parameters train ----


@program(auto=EITHER)
def frozen_for_a_while(context: Context) -> nn.Module:
    """The first layer is frozen in steps 2 and 3; Adam with decay must leave it alone meanwhile."""
    model = net()
    optimizer = context.wrap(adamw(model), model)
    for step, (x, y) in enumerate(context.batches()):
        model[0].requires_grad_(step not in (2, 3))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        context.log(model[0].weight.detach().norm())
    return model


@program(auto=EITHER)
def layer_unused_in_some_steps(context: Context) -> nn.Module:
    """Stochastic depth with one coin for all workers: in some steps nobody uses the block in the middle."""
    model = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)])
    optimizer = context.wrap(sgd(model), model)
    for step, (x, y) in enumerate(context.batches()):
        h = torch.tanh(model[0](x))
        h = h if step in (1, 2, 4) else h + torch.tanh(model[1](h))
        optimizer.zero_grad()
        loss = F.cross_entropy(model[2](h), y)
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


@program()
def expert_of_one_worker(context: Context) -> nn.Module:
    """Experts: in each step one worker's samples use the second expert, the other's do not."""
    model = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
    optimizer = context.wrap(adamw(model), model)
    for step, (x, y) in enumerate(context.batches()):
        out = model[0](x) + (model[1](x) if (step + context.worker) % 2 == 0 else 0)
        optimizer.zero_grad()
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER)
def frozen_by_leaving_out(context: Context) -> nn.Module:
    """The first layer needs gradients, but no optimizer has it; and before one step the program drops all gradients."""
    model = net()
    optimizer = context.wrap(sgd(model[2]), model)
    fit(context, model, optimizer, before_step=lambda step: model.zero_grad(set_to_none=True) if step == 3 else None)
    assert model[0].weight.grad is not None
    return model


@program(auto=EITHER, workers=EITHER)
def group_added_in_training(context: Context) -> nn.Module:
    """Gradual unfreezing: each two steps the layer before the last one gets a group with a lower rate."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).requires_grad_(False)
    optimizer = context.wrap(sgd(model[4].requires_grad_(True)), model)

    def thaw(step: int) -> None:
        if step in (1, 3):
            layer = model[{1: 2, 3: 0}[step]].requires_grad_(True)
            optimizer.add_param_group({"params": list(layer.parameters()), "lr": 0.1})
    fit(context, model, optimizer, after_step=thaw)
    return model


@program()
def frozen_by_a_rate_of_zero(context: Context) -> nn.Module:
    """A group has rate 0 in the first steps, in which Adam's moments go on."""
    model = net()
    optimizer = context.wrap(torch.optim.Adam([{"params": model[0].parameters(), "lr": 0.0},
                                               {"params": model[2].parameters()}], lr=0.05), model)

    def thaw(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.02 * max(0, step - 2)
    fit(context, model, optimizer, after_step=thaw)
    return model


@program(auto=EITHER, workers=EITHER)
def layer_grown_in_training(context: Context) -> nn.Module:
    """Progressive growing: the model gets another layer, whose parameters go to the torch optimizer that the script kept."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
    plain = sgd(model)
    optimizer = context.wrap(plain, model)

    def grow(step: int) -> None:
        if step == 2:
            model.append(nn.Linear(8, 3))
            plain.add_param_group({"params": list(model[3].parameters())})
    fit(context, model, optimizer, after_step=grow)
    return model


# ---- gradients and weights that the program changes ----


@program(auto=EITHER)
def gradients_clipped_by_value(context: Context) -> nn.Module:
    """Recurrent networks: each element of the gradient is limited."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    fit(context, model, optimizer, before_step=lambda _: nn.utils.clip_grad_value_(model.parameters(), 0.02))
    return model


@program(auto=EITHER)
def gradients_clipped_by_norm(context: Context) -> nn.Module:
    """The usual call, whose result the program logs."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    fit(context, model, optimizer, before_step=lambda _: context.log(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
    return model


@program(auto=EITHER)
def gradients_clipped_for_each_unit(context: Context) -> nn.Module:
    """Adaptive clipping (NFNets): the gradient of a unit is limited by the norm of its weights."""
    model = net()
    optimizer = context.wrap(sgd(model), model)

    def norm(t: torch.Tensor) -> torch.Tensor:
        return t.detach().reshape(len(t), -1).norm(dim=1).clamp(min=1e-3)

    def clip(_: int) -> None:
        for p in model.parameters():
            scale = (0.05 * norm(p) / norm(p.grad)).clamp(max=1)
            p.grad = p.grad * scale.reshape(-1, *[1] * (p.dim() - 1))
    fit(context, model, optimizer, before_step=clip)
    return model


@program(auto=EITHER)
def gradients_with_noise(context: Context) -> nn.Module:
    """Annealed noise on the gradients, the same in all workers."""
    model = net()
    optimizer = context.wrap(adamw(model), model)
    noise = torch.Generator().manual_seed(5)

    def disturb(step: int) -> None:
        for p in model.parameters():
            p.grad.add_(torch.randn(p.shape, generator=noise), alpha=0.3 / (1 + step) ** 0.55)
    fit(context, model, optimizer, before_step=disturb)
    return model


@program(auto=EITHER)
def rows_without_gradient(context: Context) -> nn.Module:
    """Only new tokens of a vocabulary train: the gradient of the old rows is set to zero."""
    model = nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(36, 3))
    optimizer = context.wrap(torch.optim.Adam(model.parameters(), lr=0.05), model)
    for x, y in context.batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(model((x.abs() * 3).long().clamp(max=9)), y)
        loss.backward()
        model[0].weight.grad.data[:5] = 0
        optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER)
def centralized_gradients(context: Context) -> nn.Module:
    """Gradient centralization: the mean over the inputs is taken off the gradient of each matrix, by a new tensor."""
    model = net()
    optimizer = context.wrap(adamw(model), model)

    def centre(_: int) -> None:
        for p in model.parameters():
            if p.dim() > 1:
                p.grad = p.grad - p.grad.mean(dim=1, keepdim=True) * 3
    fit(context, model, optimizer, before_step=centre)
    return model


@program(auto=EITHER)
def gradients_changed_by_a_hook(context: Context) -> nn.Module:
    """A hook of a parameter flips and scales its gradient, as domain-adversarial training does."""
    model = net()
    model[0].weight.register_hook(lambda gradient: -0.5 * gradient)
    optimizer = context.wrap(sgd(model), model)
    model[0].bias.register_hook(lambda gradient: gradient * 2)
    fit(context, model, optimizer)
    return model


@program()
def gradients_zeroed_right_after_the_step(context: Context) -> nn.Module:
    """`p.grad.zero_()` and `model.zero_grad(set_to_none=False)` at the end of the loop, of a model that takes a while to travel."""
    model = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 3))
    optimizer = context.wrap(sgd(model), model)
    for step, (x, y) in enumerate(context.batches()):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 2:
            model.zero_grad(set_to_none=False)
        else:
            for p in model.parameters():
                p.grad.zero_()
        context.log(loss)
    return model


@program()
def gradients_never_zeroed(context: Context) -> nn.Module:
    """A script that forgets zero_grad, so that gradients add up over all steps; one batch is used for two steps."""
    model = net()
    optimizer = context.wrap(sgd(model, lr=0.05), model)
    for step, (x, y) in enumerate(context.batches()):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for _ in range(1 + (step == 3)):
            optimizer.step()
        context.log(loss)
    return model


class Bounded(nn.Parameter):
    """A class of parameters of the program's own."""


@program(auto=EITHER)
def own_class_of_parameters_projected(context: Context) -> nn.Module:
    """A library's parameters, which are written through `.data` after each step."""
    model = net()
    model[0].weight = Bounded(model[0].weight.detach())
    optimizer = context.wrap(sgd(model), model)
    fit(context, model, optimizer, after_step=lambda _: model[0].weight.data.clamp_(-0.2, 0.2))
    return model


@program(auto=EITHER)
def rows_kept_in_a_ball(context: Context) -> nn.Module:
    """Max-norm regularization after each step, through `.data`."""
    model = net()
    optimizer = context.wrap(sgd(model, lr=0.5), model)

    def project(_: int) -> None:
        for layer in (model[0], model[2]):
            layer.weight.data = torch.renorm(layer.weight.data, 2, 0, 0.6)
    fit(context, model, optimizer, after_step=project)
    return model


@program(auto=EITHER)
def recurrent_matrix_scaled(context: Context) -> nn.Module:
    """An echo-state model whose square matrix is divided by its spectral norm every second step, in place."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = context.wrap(adamw(model), model)

    def scale(step: int) -> None:
        if step % 2:
            with torch.no_grad():
                model[2].weight.mul_(0.9 / torch.linalg.matrix_norm(model[2].weight, 2))
    fit(context, model, optimizer, after_step=scale)
    return model


@program(auto=EITHER)
def weights_tied_by_copy(context: Context) -> nn.Module:
    """An autoencoder whose decoder is the encoder's transpose, copied before each forward pass."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 6))
    optimizer = context.wrap(sgd(model), model)
    for x, _ in context.batches():
        model[2].weight.data.copy_(model[0].weight.data.t())
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER)
def averaged_weights_swapped_in(context: Context) -> nn.Module:
    """An exponential average of the weights is swapped in for each evaluation, and out again."""
    model = net()
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = context.wrap(sgd(model), model)

    def swap() -> None:
        for p, a in zip(model.parameters(), average):
            p.data, a.data = a.data.clone(), p.data.clone()

    def update(step: int) -> None:
        for p, a in zip(model.parameters(), average):
            a.mul_(0.7).add_(p.detach(), alpha=0.3)
        if step % 2:
            swap()
            evaluate(context, model)
            swap()
    fit(context, model, optimizer, after_step=update)
    return model


@program()
def average_kept_beside(context: Context) -> nn.Module:
    """A teacher that follows the student's weights right after each step, and whose output is a target (BYOL)."""
    model = net()
    teacher = copy.deepcopy(model).requires_grad_(False)
    optimizer = context.wrap(sgd(model), model)
    for x, _ in context.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), teacher(x) + x[:, :3])
        loss.backward()
        optimizer.step()
        for t, p in zip(teacher.parameters(), model.parameters()):
            t.data = 0.5 * t.data + 0.5 * p.data
        context.log(loss)
    return teacher


@program()
def stochastic_weight_averaging(context: Context) -> nn.Module:
    """torch.optim.swa_utils: the average of the last weights, with its own schedule."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    average = torch.optim.swa_utils.AveragedModel(model)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)

    def after(step: int) -> None:
        if step >= 2:
            average.update_parameters(model)
            schedule.step()
    fit(context, model, optimizer, after_step=after)
    evaluate(context, average)
    return average.module


@program(auto=EITHER)
def lookahead(context: Context) -> nn.Module:
    """Slow weights that take over every third step (Lookahead), and from which the fast ones go on."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    slow = [p.detach().clone() for p in model.parameters()]

    def synchronize(step: int) -> None:
        if step % 3 == 1:
            for s, p in zip(slow, model.parameters()):
                s.add_(p.data - s, alpha=0.5)
                p.data.copy_(s)
    fit(context, model, optimizer, after_step=synchronize)
    return model


@program(auto=EITHER)
def sharpness_aware(context: Context) -> nn.Module:
    """SAM: climb along the gradient, take the gradient there, go back and step."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    for x, y in context.batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        old = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad * (0.5 / norm))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p, value in zip(model.parameters(), old):
                p.copy_(value)
        optimizer.step()
        context.log(loss)
    return model


@program(auto=EITHER)
def layer_initialized_again(context: Context) -> nn.Module:
    """Deep reinforcement learning: the last layer begins anew in mid-training, without its moments."""
    model = net()
    optimizer = context.wrap(adamw(model), model)

    def reset(step: int) -> None:
        if step == 2:
            torch.manual_seed(7)
            model[2].reset_parameters()
            for p in model[2].parameters():
                optimizer.state[p] = {}
    fit(context, model, optimizer, after_step=reset)
    return model


# ---- memory, shapes, types ----


@program(auto=EITHER, workers=EITHER)
def memory_replaced_in_training(context: Context) -> nn.Module:
    """Pruning: parameters get new memory in mid-training, of the same shape, with the small weights set to zero."""
    model = net()
    optimizer = context.wrap(sgd(model), model)

    def prune(step: int) -> None:
        if step == 2:
            for p in model.parameters():
                p.data = torch.where(p.data.abs() < 0.2, torch.zeros(()), p.data)
    fit(context, model, optimizer, after_step=prune)
    return model


class OddShapes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.nothing = nn.Parameter(torch.empty(0, 6))
        self.cube = nn.Parameter(torch.randn(1, 3, 1, 6) / 3)
        self.register_buffer("one", torch.ones(1, 1).expand(4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * (x @ self.cube.reshape(3, 6).t()) + self.nothing.sum() + self.one.sum()


@program()
def odd_shapes_and_an_expanded_buffer(context: Context) -> nn.Module:
    """A scalar, a parameter without elements, four dimensions, and a buffer whose elements share their memory."""
    model = OddShapes()
    fit(context, model, context.wrap(sgd(model), model))
    return model


@program(auto=EITHER, workers=EITHER)
def channels_last(context: Context) -> nn.Module:
    """A convolution in channels_last, with batches in the same layout."""
    model = nn.Sequential(nn.Conv2d(2, 4, (1, 2)), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)).to(memory_format=torch.channels_last)
    optimizer = context.wrap(adamw(model), model)
    fit(context, lambda x: model(x.reshape(8, 2, 1, 3).contiguous(memory_format=torch.channels_last)), optimizer)
    return model


@program(auto=EITHER, workers=EITHER)
def transposed_parameters(context: Context) -> nn.Module:
    """Weights from another framework, which are views in the other order; one has gaps."""
    model = net()
    model[0].weight = nn.Parameter(torch.randn(6, 8).t() / 3)
    model[2].weight = nn.Parameter(torch.randn(3, 16)[:, ::2] / 3)
    fit(context, model, context.wrap(sgd(model), model))
    return model


@program(auto=EITHER, workers=EITHER)
def model_of_float64(context: Context) -> nn.Module:
    """Physics: everything in float64, with differences that float32 does not have."""
    model = net().double()
    optimizer = context.wrap(sgd(model), model)
    fit(context, lambda x: model(x.double()), optimizer)
    return model


@program(workers=EITHER)
def model_of_bfloat16(context: Context) -> nn.Module:
    """A half-precision model in which every value can be represented, so that nothing is rounded."""
    model = nn.Linear(6, 3, bias=False).bfloat16()
    with torch.no_grad():
        model.weight.copy_(torch.arange(18).reshape(3, 6) / 8)
    optimizer = context.wrap(torch.optim.SGD(model.parameters(), lr=0.125), model)
    for x, _ in context.batches(4):
        optimizer.zero_grad()
        loss = model(x.sign().bfloat16()).sum() / 4
        loss.backward()
        optimizer.step()
    return model


# ---- after the job ----


@program()
def trained_further_alone(context: Context) -> nn.Module:
    """After the job each worker evaluates, and adapts the model to its own data with a new optimizer."""
    model = net()
    fit(context, model, context.wrap(sgd(model), model))
    context.end()
    evaluate(context, model)
    fit(context, model, torch.optim.Adam(model[2].parameters(), lr=0.05))
    return model


@program()
def optimizer_goes_on_alone(context: Context) -> nn.Module:
    """The state of the optimizer is saved in the job, and loaded by plain torch."""
    model = net()
    optimizer = context.wrap(adamw(model), model)
    fit(context, model, optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    context.end()
    plain = torch.optim.AdamW(model.parameters(), lr=0.7)
    plain.load_state_dict(state)
    fit(context, model, plain, 3)
    return model


@program()
def copied_pickled_and_scripted(context: Context) -> nn.Module:
    """A copy in mid-training for a target network; the whole model pickled, saved and scripted afterwards."""
    model = net()
    optimizer = context.wrap(sgd(model), model)
    fit(context, model, optimizer, 3)
    target = copy.deepcopy(model)
    fit(context, model, optimizer, 3)
    evaluate(context, target)
    context.end()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for each in (pickle.loads(pickle.dumps(model)), loaded, torch.jit.script(model), torch.jit.trace(model, torch.zeros(1, 6))):
        evaluate(context, each)
    fit(context, target, torch.optim.SGD(target.parameters(), lr=0.1), 2)
    return target


@program(is_notebook=True)
def jobs_one_after_the_other(context: Context) -> nn.Module:
    """A notebook that trains one model in two jobs, by different optimizers, and uses it in between and afterwards."""
    model = net()
    with context.job():
        fit(context, model, context.wrap(sgd(model), model))
        evaluate(context, model)
    evaluate(context, model)
    fit(context, model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    with context.job():
        fit(context, model, context.wrap(adamw(model), model))
    evaluate(context, model)
    return model


# ---- buffers ----


@program()
def batch_norm(context: Context) -> nn.Module:
    """Statistics are the mean over the workers after each step; counters count."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=0.5), nn.ReLU(), nn.Linear(8, 3))

    fit(context, model, context.wrap(sgd(model), model), after_step=lambda step: evaluate(context, model))
    return model


class Codebook(nn.Module):
    """A quantizer whose codes are averages that the forward pass itself updates."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.head = nn.Linear(4, 3)
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("uses", torch.zeros(5, dtype=torch.long))
        self.register_buffer("step", torch.tensor(0))
        self.register_buffer("temperature", torch.tensor(1.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x)
        with torch.no_grad():
            nearest = torch.cdist(z, self.codes).argmin(1)
            self.codes = torch.stack([0.5 * code + 0.5 * z[nearest == i].mean(0) if (nearest == i).any() else code
                                      for i, code in enumerate(self.codes)])
            self.uses += torch.bincount(nearest, minlength=5)
            self.step += 1
        return self.head(z + (self.codes[nearest] - z).detach()) / self.temperature


@program(auto=EITHER, workers=EITHER)
def codebook_in_buffers(context: Context) -> nn.Module:
    """The forward pass gives a buffer new memory; integer buffers count on each worker; the program sets a third."""
    model = Codebook()

    def cool(step: int) -> None:
        model.temperature.fill_(1 / (1 + step))
    fit(context, model, context.wrap(sgd(model), model), after_step=cool)
    return model


@program()
def buffers_that_the_program_sets(context: Context) -> nn.Module:
    """Normalization by running statistics that the loop computes, and a step counter as a buffer of integers."""
    model = net()
    model.register_buffer("mean", torch.zeros(6))
    model.register_buffer("seen", torch.zeros((), dtype=torch.long))
    optimizer = context.wrap(sgd(model), model)
    common = torch.arange(6.0)
    for step, (x, y) in enumerate(context.batches()):
        model.mean.copy_(0.5 * model.mean + 0.5 * common)
        model.seen += len(x)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x - model.mean), y)
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_worker(*sys.argv[1:])
