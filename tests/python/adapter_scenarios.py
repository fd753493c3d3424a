# SPDX-License-Identifier: Apache-2.0
"""Programs for the Trainers of other packages, run by the workers of a job and by one process: `adapter_scenarios.py KIND CASE PLACE`.

Worker w of W has the samples w, w + W, ... in this order, W times as many in a batch is what one process has: equal global batches.
"""
import dataclasses
import os
import pathlib
import sys
import traceback
from typing import Any, Callable, Optional

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler, Subset

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))
HALF = os.environ.get("HALF", "")  # of a training that is resumed: "first" or "second"
WORKERS = 2
BATCH = 10
FAILED = 3  # the exit code of a worker whose program failed: it ends the job
Result = dict[str, Any]


@dataclasses.dataclass
class Case:
    """A program, and on which of the two places it must be refused, with what in the error."""

    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the Trainer, or of TrainingArguments
    optimizer: str = "adamw"
    schedule: str = ""
    program: str = ""
    num_samples: int = 240
    tolerance: float = 1e-4
    refused: dict[str, str] = dataclasses.field(default_factory=dict)  # by the place


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3),
}


def is_alone(place: str) -> bool:
    return place == "alone"


# ---- Lightning ----

LIGHTNING = {
    "sgd": Case(optimizer="sgd"),
    "accumulates": Case({"accumulate_grad_batches": 5}, schedule="epochs"),  # 12 batches: the last step of an epoch has two
    "clips_norm": Case({"gradient_clip_val": 0.2}, optimizer="sgd", schedule="steps"),
    "clips_values": Case({"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}, optimizer="sgd",
                         refused={"servers": 'gradient_clip_algorithm="value"'}),
    "stops_early": Case({"max_epochs": 20}, optimizer="sgd", schedule="plateau", program="stops_early"),
    "manual": Case(program="manual", optimizer="rmsprop", refused={"servers": "servers cannot run"}),
    "closures": Case(optimizer="lbfgs", num_samples=120, refused={"servers": "servers cannot run"}),
    "bfloat16": Case({"precision": "bf16-mixed"}, tolerance=0.02),
    "float16": Case(program="float16", tolerance=0.02, refused={"servers": '"16-mixed"'}),
    "resumes": Case(program="resumes", schedule="steps"),
    "tied": Case(program="tied"),
}


class Sides(Dataset[Any]):
    """Points of a space, and on which side of a plane they are."""

    def __init__(self, count: int) -> None:
        self.points = torch.randn(count, 8, generator=torch.Generator().manual_seed(5))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        point = self.points[index]
        return point, (point.sum() > 0).long()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode, self.head = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 2)
        self.decode.weight = self.encode.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.tanh(self.decode(torch.tanh(self.encode(x)))))
        return scores


def module_of(case: Case) -> Any:
    """One loss and one optimizer, which Lightning runs."""
    from lightning.pytorch import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.model = Tied() if case.program == "tied" else nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
            self.losses: list[float] = []
            self.scores: list[float] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.model(batch[0]), batch[1]), sync_dist=True)

        def on_validation_epoch_end(self) -> None:
            if not self.trainer.sanity_checking:
                self.scores.append(float(self.trainer.callback_metrics["val_loss"]))

        def configure_optimizers(self) -> Any:
            optimizer = OPTIMIZERS[case.optimizer](self.parameters())
            if case.schedule == "epochs":
                return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.3)]
            if case.schedule == "steps":
                schedule: Any = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=30, cycle_momentum=False)
                return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
            if case.schedule == "plateau":
                schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0, threshold=0.05)
                return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}
            return optimizer

    return Module


def adversaries_of(case: Case) -> Any:
    """Two optimizers, which the program runs, and a pass of the one through the other's parameters."""
    module: Any = module_of(case)

    class Adversaries(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.critic = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
            self.model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

        def training_step(self, batch: Any, _: int) -> None:
            of_model, of_critic = self.optimizers()
            of_critic.zero_grad()
            softplus = nn.functional.softplus
            loss = softplus(self.critic(self.model(batch[0]).detach())).mean() + softplus(-self.critic(batch[0])).mean()
            self.losses.append(loss.item())
            self.manual_backward(loss)
            self.clip_gradients(of_critic, 0.5, "norm")
            of_critic.step()
            of_model.zero_grad()
            self.manual_backward(softplus(-self.critic(self.model(batch[0]))).mean())
            of_model.step()

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", self.model(batch[0]).mean(), sync_dist=True)

        def configure_optimizers(self) -> Any:
            return [OPTIMIZERS[case.optimizer](each.parameters()) for each in (self.model, self.critic)]

    return Adversaries


def lightning(name: str, place: str) -> Result:
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from torch.utils.data import DataLoader

    case = LIGHTNING[name]

    def trained(module: Any, path: Optional[str] = None, **options: Any) -> Any:
        alone = is_alone(place)
        if not alone:
            from pushpull.torch.lightning import PushPullStrategy
            options["strategy"] = PushPullStrategy(optimizer_on=place)
        if case.program == "float16":
            from lightning.pytorch.plugins import MixedPrecision
            options["plugins"] = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))]
        trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                          default_root_dir=SHARED / "root", **{"max_epochs": 2, **case.options, **options})
        size = BATCH * WORKERS if alone else BATCH
        trainer.fit(module, DataLoader(Sides(case.num_samples), batch_size=size), DataLoader(Sides(80), batch_size=size), ckpt_path=path)
        return trainer

    module = (adversaries_of if case.program == "manual" else module_of)(case)()
    saved = str(SHARED / "saved.ckpt")
    more: Result = {}
    if case.program == "resumes":
        # A job for each half; one process trains without a break.
        if HALF == "first":
            trained(module, max_epochs=1).save_checkpoint(saved)
        else:
            trained(module, saved if HALF == "second" else None)
    elif case.program == "stops_early":
        best = ModelCheckpoint(SHARED / "best", monitor="val_loss", save_top_k=1)
        trainer = trained(module, callbacks=[EarlyStopping("val_loss", min_delta=0.02, patience=2), best])
        more = {"epochs": trainer.current_epoch, "best": torch.load(best.best_model_path, weights_only=False)["state_dict"]}
    else:
        trained(module)
    return {"losses": module.losses, "scores": module.scores, "values": module.state_dict(), **more}


# ---- transformers ----

TRANSFORMERS = {
    "labels": Case(program="labels"),  # clipped at norm 1, the Trainer's own limit
    "samples": Case({"max_grad_norm": 0.0}, program="classes", num_samples=95, optimizer="sgd"),
    "accumulates": Case({"gradient_accumulation_steps": 5, "lr_scheduler_type": "cosine", "warmup_steps": 2}, program="classes"),
    "accumulates_labels": Case({"gradient_accumulation_steps": 5, "max_grad_norm": 0.1}, program="labels", num_samples=115),
    "evaluates": Case({"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, "learning_rate": 0.05,
                       "num_train_epochs": 3}, program="labels", num_samples=100),
    "recomputes": Case({"gradient_checkpointing": True, "lr_scheduler_type": "constant"}, program="labels", num_samples=100),
    "bfloat16": Case({"bf16": True}, program="classes", optimizer="sgd", tolerance=0.02),
    "adafactor": Case({"optim": "adafactor", "learning_rate": 0.01}, program="classes", refused={"servers": "servers cannot run"}),
    "resumes": Case({"save_steps": 5, "max_steps": 10}, program="labels"),
    "float16": Case({"fp16": True}, program="classes", refused={"servers": "use bf16", "workers": "use bf16"}),
    "uneven": Case({}, program="classes", num_samples=101, refused={"servers": "as many batches", "workers": "as many batches"}),
    "changes_gradients": Case({}, program="changes_gradients", optimizer="sgd", refused={"servers": 'optimizer_on="workers"'}),
}


class Sentences(Dataset[Any]):
    """Sequences in which a number follows from the two before; not all have the same number of labels that count."""

    def __init__(self, count: int, has_classes: bool) -> None:
        self.first = torch.randint(0, 16, (count, 2), generator=torch.Generator().manual_seed(3))
        self.has_classes = has_classes

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        numbers = self.first[index].tolist()
        while len(numbers) < 12:
            numbers.append((3 * numbers[-1] + numbers[-2] + 1) % 16)
        tokens = torch.tensor(numbers)
        if self.has_classes:
            return {"input_ids": tokens, "labels": (tokens[0] > tokens[1]).long()}
        labels = tokens.clone()
        labels[:(7 * index) % 11] = -100
        return {"input_ids": tokens, "labels": labels}


def language_model(program: str) -> Any:
    import transformers
    torch.manual_seed(1)
    if program == "labels":  # with a tied output layer
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=16, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=0, eos_token_id=15, pad_token_id=15))
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, max_position_embeddings=16, num_labels=2))


def transformers(name: str, place: str) -> Result:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    case, alone = TRANSFORMERS[name], is_alone(place)
    model = language_model(case.program)
    data = Sentences(case.num_samples, case.program != "labels")
    losses: list[float] = []
    weights: list[float] = []  # of the losses: what each is the mean of
    scores: list[float] = []

    class InOrder(Trainer):  # type: ignore[misc, unused-ignore]
        counted = 0.0

        def _get_train_sampler(self, *_: Any) -> Any:
            return SequentialSampler(self.train_dataset)

        def compute_loss(self, model: Any, inputs: Any, *options: Any, num_items_in_batch: Any = None, **more: Any) -> Any:
            self.counted = float(num_items_in_batch) if num_items_in_batch is not None else self.counted + len(inputs["labels"])
            return super().compute_loss(model, inputs, *options, num_items_in_batch=num_items_in_batch, **more)

    class Log(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_log(self, *_: Any, logs: Any, **__: Any) -> None:
            if "loss" in logs:
                losses.append(logs["loss"])
                weights.append(trainer.counted)
                trainer.counted = 0.0
            scores.extend([logs["eval_loss"]] if "eval_loss" in logs else [])

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            if case.program == "changes_gradients":
                for parameter in model.parameters():
                    parameter.grad.data.mul_(0.5)

    callbacks: list[Any] = [Log()]
    if not alone:
        import pushpull
        from pushpull.torch.transformers import PushPullCallback
        job = pushpull.current_job()
        data = Subset(data, range(job.worker, len(data), job.workers))  # type: ignore[assignment]
        callbacks.append(PushPullCallback(optimizer_on=place))
    options = {"num_train_epochs": 2, "learning_rate": 0.02, "adam_epsilon": 1e-4, "optim": "adamw_torch" if case.optimizer == "adamw" else case.optimizer,
               "save_strategy": "no", **case.options}
    if "save_steps" in options:
        options["save_strategy"] = "steps"
    arguments = TrainingArguments(str(SHARED / "out"), use_cpu=True, per_device_train_batch_size=BATCH * (WORKERS if alone else 1),
                                  logging_steps=1, report_to=[], disable_tqdm=True, **options)
    trainer = InOrder(model, arguments, train_dataset=data, eval_dataset=Sentences(40, case.program != "labels"), callbacks=callbacks)
    if HALF == "first":
        trainer.add_callback(stop_after(5))
        trainer.train()
    else:
        trainer.train(resume_from_checkpoint=True if HALF == "second" else None)
    more = {}
    if case.program == "labels":
        more = {"generated": model.generate(Sentences(1, False)[0]["input_ids"][None, :3], max_new_tokens=6, do_sample=False)}
    # The loss does not depend on the keys' biases: their gradients are rounding errors, of which Adam makes steps of full length.
    values = {name: value for name, value in model.state_dict().items() if not name.endswith("key.bias")}
    return {"losses": losses, "weights": weights, "scores": scores, "values": values, **more}


def stop_after(steps: int) -> Any:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            control.should_training_stop = control.should_training_stop or state.global_step == steps
    return Stop()


# ---- a worker ----

KINDS: dict[str, Callable[[str, str], Result]] = {"lightning": lightning, "transformers": transformers}
CASES = {"lightning": LIGHTNING, "transformers": TRANSFORMERS}


def copied(result: Result) -> Result:
    return {**result, "values": {name: value.detach().clone() for name, value in result["values"].items()}}


def run_worker(kind: str, name: str, place: str) -> None:
    """Leaves what the program returns, or its error, in a file of this worker; ends the process."""
    import pushpull
    job = pushpull.init()
    try:
        result = copied(KINDS[kind](name, place))
        job.end()
    except Exception as error:  # judged by the test
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"}
    torch.save(result, SHARED / f"result-{job.worker}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(FAILED if "error" in result else 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_worker(*sys.argv[1:])
