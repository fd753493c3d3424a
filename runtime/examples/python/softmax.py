# SPDX-License-Identifier: Apache-2.0
"""Softmax regression on Fashion-MNIST, in NumPy: pushpull run runtime/examples/python/softmax.yaml"""
import gzip

import numpy as np
import pushpull


def load(name, header, width):
    with gzip.open(f"/usr/share/datasets/fashion-mnist/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header).reshape(-1, width)


images = load("train-images-idx3", 16, 784) / np.float32(255)
labels = load("train-labels-idx1", 8, 1)[:, 0]
order = np.random.default_rng(1).permutation(len(images))  # the same in every worker
w, b = np.zeros((784, 10), np.float32), np.zeros(10, np.float32)
with pushpull.init() as job:
    job.use_samples(len(images), batch=128, epochs=5)
    job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
    job.store.register("b", b, optimizer=pushpull.SGD(lr=0.1))
    job.start()
    for shard in job.samples():  # each step ends by committing its samples and waiting for the new values
        x, y = images[order[shard.indices]], labels[order[shard.indices]]
        scores = np.exp(x @ w + b)
        error = (scores / scores.sum(axis=1, keepdims=True) - np.eye(10, dtype=np.float32)[y]) / max(1, shard.count)
        job.store.push_pull("w", x.T @ error)
        job.store.push_pull("b", error.sum(axis=0))
    job.report_result("accuracy", float(np.mean((images @ w + b).argmax(axis=1) == labels)))
