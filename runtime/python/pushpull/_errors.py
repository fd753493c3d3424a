# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package."""
from __future__ import annotations

import re
from typing import Optional

_TENSOR = re.compile(r'tensor "([^"]*)"')
_STEP = re.compile(r"\bstep (\d+)")
_PEER = re.compile(r"\b(?:server|worker)-\d+\b")


class PushPullError(RuntimeError):
    """A call to the library failed. The text says what, where and what to do.

    code    "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED", "CANCELLED", "INVALID_ARGUMENT", "NOT_FOUND",
            "FAILED_PRECONDITION", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED" or "DATA_LOSS"; each call
            documents its codes, and what the caller should do.
    peer    the servers or workers that the text names, as "server-1" or "server-0, server-2"; "coordinator"; or
            None.
    tensor  the name of the tensor, or None.
    step    the number of the step, or None.
    """

    code: str
    peer: Optional[str]
    tensor: Optional[str]
    step: Optional[int]

    def __init__(self, text: str, code: str = "UNKNOWN") -> None:
        super().__init__(text)
        self.code = code
        tensor, step = _TENSOR.search(text), _STEP.search(text)
        peers = dict.fromkeys(_PEER.findall(text))
        self.tensor = tensor[1] if tensor else None
        self.step = int(step[1]) if step else None
        self.peer = ", ".join(peers) or ("coordinator" if "coordinator" in text else None)

    def __reduce__(self) -> tuple[type[PushPullError], tuple[str, str]]:
        return type(self), (str(self), self.code)


class Released(SystemExit):
    """The job has become smaller, or this process was told to end (SIGTERM): the worker has left, and its program ends in order.

    Loops over steps, samples and epochs raise it. `with` blocks and `finally` run; a program may catch it, and then is in no job any
    more. `code` is the exit code: 0, or 143 if another process takes the worker's place.
    """
