# SPDX-License-Identifier: Apache-2.0
"""Programs that train models of timm and torchvision as they are, for adapter_test.py: `model_programs.py NAME WAY`, as programs.py."""
import importlib.util
import sys
from typing import Any

import torch
from program_ways import Context, program, run_worker
from torch import nn
from torch.nn import functional as F

STEPS = 10


def fit_images(context: Context, model: nn.Module) -> nn.Module:
    optimizer = context.wrap(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), model)
    for step in range(STEPS):
        x, y = context.batch(step)
        images = torch.randn(len(x), 3, 64, 64, generator=torch.Generator().manual_seed(1000 * step + context.worker))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images + y[:, None, None, None]), y)
        loss.backward()
        optimizer.step()
        context.log(loss)
    return model


def add(package: str, name: str) -> None:
    """A program that trains the model `name` of the package."""
    def run(context: Context) -> nn.Module:
        if package == "timm":
            import timm
            return fit_images(context, timm.create_model(name, num_classes=3))
        import torchvision
        model: Any = getattr(torchvision.models, name)
        return fit_images(context, model(num_classes=3))
    run.__name__ = name
    if importlib.util.find_spec(package) is not None:
        program()(run)


for each in ("test_resnet", "test_convnext", "test_efficientnet", "test_vit", "test_mambaout"):
    add("timm", each)
# No ResNet-18: with batch norm over so few values a rounding error becomes a difference of 10% in six steps, also in one process.
add("torchvision", "swin_t")

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_worker(*sys.argv[1:])
