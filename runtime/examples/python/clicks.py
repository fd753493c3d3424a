# SPDX-License-Identifier: Apache-2.0
"""Sparse embeddings of users and items learn who clicks what, from made-up clicks, in PyTorch."""
import pushpull, pushpull.torch as pp
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, USERS, ITEMS, WIDTH, CLICKS = 5, 2000, 1000, 8, 200_000

made = torch.Generator().manual_seed(1)
tastes, kinds = torch.randn(USERS, 4, generator=made), torch.randn(ITEMS, 4, generator=made)
users, items = (torch.randint(count, (CLICKS,), generator=made) for count in (USERS, ITEMS))
clicked = torch.bernoulli(torch.sigmoid(2 * (tastes[users] * kinds[items]).sum(dim=1)), generator=made)
train = TensorDataset(users[1000:], items[1000:], clicked[1000:])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH, sparse=True), nn.Embedding(ITEMS, WIDTH, sparse=True)
        self.score = nn.Linear(WIDTH, 1)
        nn.init.normal_(self.users.weight, std=0.3)
        nn.init.normal_(self.items.weight, std=0.3)

    def forward(self, users, items):
        return self.score(self.users(users) * self.items(items))[:, 0]


pushpull.init()
torch.manual_seed(1)
model = Model()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.2)
optimizer = pp.DistributedOptimizer(optimizer, model=model)
loader = pp.ElasticDataLoader(train, batch_size=512, shuffle=True, epochs=EPOCHS)

for epoch in loader.epochs():
    for who, what, click in loader:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(who, what), click).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = ((model(users[:1000], items[:1000]) > 0) == clicked[:1000].bool()).float().mean().item()
    model.train()
    print(f"epoch {epoch + 1}/{EPOCHS} test accuracy {accuracy:.3f}", flush=True)
