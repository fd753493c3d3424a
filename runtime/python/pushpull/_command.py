# SPDX-License-Identifier: Apache-2.0
"""The command `pushpull`: the package's program, which replaces this process.

Jobs find the Python of this environment first: in `spec.command`, `python3` is the one with this package.
"""
import os
import pathlib
import sys

PROGRAM = str(pathlib.Path(__file__).with_name("bin") / "pushpull")


def main() -> None:
    """Runs `pushpull` with the arguments of this process; does not return."""
    environment = dict(os.environ)
    folders = [os.path.dirname(sys.executable), *environment.get("PATH", os.defpath).split(os.pathsep)]
    environment["PATH"] = os.pathsep.join(dict.fromkeys(folders))
    os.execve(PROGRAM, [PROGRAM, *sys.argv[1:]], environment)
