# SPDX-License-Identifier: Apache-2.0
"""Distributed training of a PyTorch model: wrap the optimizer, and the script stays as it is.

    import pushpull, pushpull.torch as pp

    pushpull.init()
    optimizer = pp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    for images, labels in loader:
        optimizer.zero_grad()
        loss_function(model(images), labels).backward()  # gradients travel while this goes on
        optimizer.step()                                 # the forward pass waits for each layer's new values
    pushpull.current_job().end()
"""
from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
