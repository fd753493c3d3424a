# SPDX-License-Identifier: Apache-2.0
"""Writes the tensors of a checkpoint to a file that torch.load(FILE, weights_only=True) reads.

    python3 -m pushpull.torch.export PATH -o FILE [--with-optimizer]

The file has a dictionary of the tensors by name, as model.load_state_dict takes it. With --with-optimizer it has "model", which is
that, "optimizer" with the state of each tensor by name, and "step". A row-sparse tensor becomes two, NAME.keys and NAME.rows.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import numpy
import torch

from .._checkpoint import Checkpoint, Rows, load_checkpoint
from .._errors import PushPullError


def tensors_of(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The values by name, in the dtype in which they were registered."""
    found: dict[str, torch.Tensor] = {}
    for name, value in checkpoint.items():
        if isinstance(value, Rows):
            found[f"{name}.keys"] = torch.from_numpy(value.keys.astype(numpy.int64))
            found[f"{name}.rows"] = torch.from_numpy(numpy.array(value.rows))
        else:
            found[name] = torch.from_numpy(value).to(getattr(torch, checkpoint.dtype(name)))
    return found


def optimizers_of(checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
    """The optimizers' state by name, for those tensors that have some."""
    found: dict[str, dict[str, Any]] = {}
    for name in checkpoint:
        rows, updates, keys = checkpoint.optimizer_state(name)
        state: dict[str, Any] = {key: torch.from_numpy(row) for key, row in zip(keys, rows)}
        if checkpoint.has_rows(name):
            state = {"states": torch.from_numpy(rows)}
        if keys:
            found[name] = {**state, "step": updates}
    return found


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m pushpull.torch.export", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", help="the folder of a checkpoint, or that of one job's checkpoints: the newest complete one")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file, which is replaced")
    parser.add_argument("--with-optimizer", action="store_true", help="also the optimizers' state")
    arguments = parser.parse_args()
    fresh = f"{arguments.output}.new"
    try:
        checkpoint = load_checkpoint(arguments.path)
        content: dict[str, Any] = tensors_of(checkpoint)
        if arguments.with_optimizer:
            content = {"model": content, "optimizer": optimizers_of(checkpoint), "step": checkpoint.step}
        torch.save(content, fresh)
        os.replace(fresh, arguments.output)
    except (PushPullError, OSError) as error:
        print(f"pushpull.torch.export: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
