#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what clang-format-14 would change in C++ files, as a patch; with --fix changes
it. The version is pinned, since each formats a little differently.
"""
import argparse
import concurrent.futures
import difflib
import os
import pathlib
import subprocess
import sys

import tree as lint

PROGRAM = "clang-format-14"


def formatted(tree: lint.Tree, name: str) -> str:
    command = [PROGRAM, "--style=file", str(tree.root / name)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def changes(tree: lint.Tree) -> list[tuple[str, str]]:
    """(file, its formatted text) of every file that is not formatted."""
    names = tree.cpp()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = pool.map(lambda name: formatted(tree, name), names)
    return [(name, text) for name, text in zip(names, texts) if text != tree.text(name)]


def patch(before: str, name: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}"
    )
    return "".join(lines)


def check(tree: lint.Tree) -> list[str]:
    return [patch(tree.text(name), name, text) for name, text in changes(tree)]


def fix(root: pathlib.Path) -> None:
    tree = lint.Tree(root)
    for name, text in changes(tree):
        (root / name).write_text(text, encoding="utf-8")
        print(f"formatted {name}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        fix(pathlib.Path(__file__).resolve().parents[2])
    else:
        lint.main(check, __doc__)
