# SPDX-License-Identifier: Apache-2.0
"""Distributed training of a PyTorch model: wrap the optimizer and replace the loader, and the script stays as it is.

    import pushpull, pushpull.torch as pp

    pushpull.init()
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    loader = pp.ElasticDataLoader(train, batch_size=64, epochs=3)
    for epoch in loader.epochs():
        for images, labels in loader:  # this worker's samples
            optimizer.zero_grad()
            loss_function(model(images), labels).backward()  # gradients travel while this runs
            optimizer.step()                                 # the forward pass waits for each layer's new values
"""
from .._state import State
from ._checkpoint import load_checkpoint
from ._data import ElasticDataLoader, ElasticSampler
from ._local_ranks import init
from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "ElasticDataLoader", "ElasticSampler", "State", "init", "load_checkpoint"]
