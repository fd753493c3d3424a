# SPDX-License-Identifier: Apache-2.0
"""Workers of the jobs that adapter_test.py runs: `adapter_scenarios.py NAME [ARGUMENT...]`."""
import json
import os
import pathlib
import sys
from typing import Any

import pushpull
import torch
from torch import nn
from torch.utils.data import Dataset

SHARED = pathlib.Path(os.environ.get("SCENARIO_FOLDER", ""))


class Parities(Dataset[Any]):
    """Points of a plane, and on which side of a line they are."""

    def __init__(self, count: int) -> None:
        self.points = torch.randn(count, 8, generator=torch.Generator().manual_seed(5))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        point = self.points[index]
        return {"x": point, "labels": (point.sum() > 0).long()}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def accuracy_of(model: Model) -> float:
    data = Parities(1000)
    model.eval()
    return float((model.layers(data.points).argmax(1) == (data.points.sum(1) > 0)).float().mean())


def write(job: pushpull.Job, model: Model) -> None:
    (SHARED / f"model-{job.worker}").write_text(json.dumps({k: v.tolist() for k, v in model.state_dict().items()}))
    job.report_result("accuracy", accuracy_of(model))


def transformers(accumulate: str) -> None:
    from pushpull.torch.transformers import PushPullCallback
    from torch.utils.data import Subset
    from transformers import Trainer, TrainingArguments
    job, data, model = pushpull.init(), Parities(2000), Model()
    own = Subset(data, range(job.worker, len(data), job.workers))
    arguments = TrainingArguments("out", use_cpu=True, num_train_epochs=3, per_device_train_batch_size=20, learning_rate=1e-2,
                                  gradient_accumulation_steps=int(accumulate), logging_steps=10, save_steps=20,
                                  report_to=[], disable_tqdm=True)
    Trainer(model, arguments, train_dataset=own, callbacks=[PushPullCallback()]).train()
    write(job, model)
    job.end()


def lightning(accumulate: str) -> None:
    from lightning.pytorch import LightningModule, Trainer
    from pushpull.torch.lightning import PushPullStrategy

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch)["loss"]
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)]

    job, module = pushpull.init(), Module()
    trainer = Trainer(strategy=PushPullStrategy(clip_norm=1.0), accelerator="cpu", max_epochs=3, logger=False,
                      accumulate_grad_batches=int(accumulate), enable_progress_bar=False, default_root_dir="out")
    trainer.fit(module, torch.utils.data.DataLoader(Parities(2000), batch_size=20))
    write(job, module.model)
    job.end()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
