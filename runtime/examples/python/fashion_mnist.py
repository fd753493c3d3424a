# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network learns Fashion-MNIST, in PyTorch."""
import gzip
import os

import pushpull, pushpull.torch as pp
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", 5))
DATA = os.environ.get("DATA", "/usr/share/datasets/fashion-mnist")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load(name, header, *shape):
    with gzip.open(f"{DATA}/{name}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header).view(-1, *shape)


def data_set(part):
    return TensorDataset(load(f"{part}-images-idx3", 16, 1, 28, 28) / 255, load(f"{part}-labels-idx1", 8).long())


pushpull.init()
torch.manual_seed(1)
train, test = data_set("train"), data_set("t10k")
model = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 10)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
optimizer = pp.DistributedOptimizer(optimizer, model=model)
loader = pp.ElasticDataLoader(train, batch_size=64, shuffle=True, epochs=EPOCHS)


def test_accuracy():
    model.eval()
    with torch.no_grad():
        images, labels = (each.to(DEVICE) for each in test.tensors)
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return accuracy


for epoch in loader.epochs():
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}/{EPOCHS} test accuracy {test_accuracy():.4f}", flush=True)
