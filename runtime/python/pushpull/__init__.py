# SPDX-License-Identifier: Apache-2.0
"""Workers of a Pushpull job: servers add up the gradients of all workers and run the optimizer.

    import numpy, pushpull

    with pushpull.init() as job:                                   # from the environment of `pushpull run`
        w, gradient = numpy.zeros(10, "f"), numpy.empty(10, "f")
        job.store.register("w", w, optimizer=pushpull.SGD(lr=0.1))
        job.start()                                                # w now has the job's value
        for step in job.steps(100):
            gradient[:] = 2 * (w - 3)
            job.store.push_pull("w", gradient, out=w)              # done when the next step begins

Arrays are float32, float16 or bfloat16, C-contiguous and in CPU memory: NumPy, torch, or anything with DLPack. They are never
copied in Python. Every blocking call releases the interpreter lock; Ctrl-C interrupts it.
"""
import importlib.metadata

from ._checkpoint import Checkpoint, OptimizerState, Position, Rows, load_checkpoint
from ._collectives import all_gather, all_reduce, barrier, broadcast
from ._engine import Handle
from ._errors import PushPullError, Released
from ._job import Job, Shard, current_job, init
from ._local import local, spawn
from ._messages import recv, send, send_recv
from ._optimizers import SGD, Adagrad, Adam, AdamW, Optimizer, Sum
from ._state import State
from ._store import Array, Store

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Array", "Checkpoint", "Handle", "Job", "Optimizer", "OptimizerState", "Position",
           "PushPullError", "Released", "Rows", "Shard", "State", "Store", "Sum", "all_gather", "all_reduce", "barrier", "broadcast",
           "current_job", "init", "load_checkpoint", "local", "recv", "send", "send_recv", "spawn"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return importlib.metadata.version("pushpull")
    raise AttributeError(f"module 'pushpull' has no attribute '{name}'")
