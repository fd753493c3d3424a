# SPDX-License-Identifier: Apache-2.0
"""A Transformer learns to continue the licences in /usr/share/common-licenses, character by character, in PyTorch."""
import pathlib

import pushpull, pushpull.torch as pp
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, CONTEXT, WIDTH = 5, 64, 64

files = {file.read_bytes() for file in pathlib.Path("/usr/share/common-licenses").iterdir()}
text = torch.tensor(list(b"".join(sorted(files)))).clamp(max=127)


class Windows(Dataset):
    """CONTEXT characters, and for each of them the one that follows."""

    def __init__(self, characters):
        self.characters = characters

    def __len__(self):
        return (len(self.characters) - 1) // CONTEXT

    def __getitem__(self, index):
        window = self.characters[index * CONTEXT:(index + 1) * CONTEXT + 1]
        return window[:-1], window[1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(128, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0, batch_first=True,
                                           norm_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Linear(WIDTH, 128)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -torch.inf).triu(1), persistent=False)

    def forward(self, characters):
        embedded = self.characters(characters) + self.places(torch.arange(CONTEXT))
        return self.out(self.layers(embedded, self.mask))


def loss_of(characters, following):
    return nn.functional.cross_entropy(model(characters).flatten(0, 1), following.flatten())


pushpull.init()
torch.manual_seed(1)
held_out = len(text) // 20
train, test = Windows(text[:-held_out]), Windows(text[-held_out:])
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
optimizer = pp.DistributedOptimizer(optimizer, model=model, clip_norm=1.0)
loader = pp.ElasticDataLoader(train, batch_size=16, shuffle=True, epochs=EPOCHS)

for epoch in loader.epochs():
    for characters, following in loader:
        optimizer.zero_grad()
        loss_of(characters, following).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = sum(loss_of(*batch).item() for batch in DataLoader(test, 64, drop_last=True)) / (len(test) // 64)
    model.train()
    print(f"epoch {epoch + 1}/{EPOCHS} test loss {loss:.3f}", flush=True)
