# SPDX-License-Identifier: Apache-2.0
"""The worker process of a job of `pushpull.local`, run by path; the worker itself is the process that called `local`.

Passes its environment to that process, and ends when the worker has left or is gone.
"""
import fcntl
import json
import os
import sys

_END_OF_JOB = 3


def end_of_job(why: str) -> int:
    """Reports that this worker's end ends the job, and why (docs/interfaces.md, section 4). Returns the exit code."""
    path = os.environ.get("PUSHPULL_TERMINATION_LOG")
    if path:
        with open(path, "w") as message:
            message.write(f"pushpull-final: {why}")
    return _END_OF_JOB


def wait_for_end_of(folder: str) -> None:
    """Blocks until the process that started the job ends or releases its lock, which no child inherits."""
    with open(f"{folder}/alive") as alive:
        fcntl.lockf(alive, fcntl.LOCK_SH)


def main(folder: str) -> int:
    member = {name: value for name, value in os.environ.items() if name.startswith("PUSHPULL_")}
    try:
        members = os.open(f"{folder}/members", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads
        return end_of_job("nobody waits for the job")
    os.write(members, json.dumps(member).encode() + b"\n")
    wait_for_end_of(folder)
    return 0 if os.path.exists(f"{folder}/done") else end_of_job("the worker's process is gone")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
