#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changed source files of the programs compile by themselves: without precompiled headers and without the other files of
their unity build, either of which hides a missing #include. tidy.py says what counts as changed, and has the compile
commands.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import tidy
import tree as lint


def command_of(entry: dict[str, str]) -> list[str]:
    """The compiler's command, without its launcher and without an object file."""
    words = shlex.split(entry["command"])
    compiler = next(i for i, word in enumerate(words) if "clang" in pathlib.Path(word).name)
    return [*words[compiler:], "-fsyntax-only"]


def compile_alone(entry: dict[str, str]) -> str:
    done = subprocess.run(command_of(entry), cwd=entry["directory"], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode != 0 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/tidy", help="folder of compile_commands.json")
    options = parser.parse_args()
    tree = lint.Tree(pathlib.Path(__file__).resolve().parents[2])
    entries = json.loads((tree.root / options.build / "compile_commands.json").read_text(encoding="utf-8"))
    by_name = {os.path.relpath(entry["file"], tree.root): entry for entry in entries}
    by_name = {name: entry for name, entry in by_name.items() if name.startswith(("runtime/", "operator/"))}
    names = tidy.sources(tidy.changed_files(tree), set(by_name))
    print(f"alone: {' '.join(names) or 'no changed file'}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = [text for text in pool.map(lambda name: compile_alone(by_name[name]), names) if text]
    for text in findings:
        print(text)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
