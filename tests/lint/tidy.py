#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy-14 on changed files, and on a file with known violations that must be reported.

Changed: since the merge base with origin/main; where that is HEAD itself (CI), the last commit; and
whatever is not committed yet. A header is looked at through its .cc. --all takes every file.
The compile commands are those of build/tidy, so LibTorch's files are not among them.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import tree as lint

PROGRAM = "clang-tidy-14"
KNOWN_BAD = "tests/lint/tidy_known_bad.cc"
# Checks that KNOWN_BAD violates, one of each family of .clang-tidy.
EXPECTED = {
    "bugprone-use-after-move",
    "clang-analyzer-core.NullDereference",
    "clang-diagnostic-unused-variable",
    "concurrency-mt-unsafe",
    "cppcoreguidelines-avoid-non-const-global-variables",
    "cppcoreguidelines-owning-memory",
    "google-explicit-constructor",
    "modernize-use-override",
    "performance-unnecessary-value-param",
    "readability-container-size-empty",
    "readability-function-size",
    "readability-identifier-naming",
}


def run(tree: lint.Tree, *arguments: str) -> tuple[int, str]:
    command = [PROGRAM, "--quiet", *arguments]
    result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + (result.stderr if result.returncode > 1 else "")


def check_configuration(tree: lint.Tree) -> list[str]:
    """A configuration that reports nothing is broken, not content."""
    flags = ["-std=c++20", "-Wall", "-I."]
    _, output = run(tree, KNOWN_BAD, "--", *flags)
    missing = sorted(EXPECTED - set(re.findall(r"[\w.-]+", " ".join(re.findall(r"\[(.*)\]", output)))))
    if not missing:
        return []
    return [f"{KNOWN_BAD}:1: .clang-tidy does not report {', '.join(missing)} here", output]


def base_commit(tree: lint.Tree) -> str:
    """What the changed files are changed against; empty: nothing to compare with."""
    head = tree.git("rev-parse", "HEAD").strip()
    for command in [("merge-base", "origin/main", "HEAD"), ("rev-parse", "HEAD~1")]:
        try:
            base = tree.git(*command).strip()
        except subprocess.CalledProcessError:
            continue
        if base != head:
            return base
    return ""


def changed_files(tree: lint.Tree) -> list[str]:
    """Most changed lines first; a file that git does not know yet counts as wholly changed."""
    lines: dict[str, int] = {}
    base = base_commit(tree)
    for row in tree.git("diff", "--numstat", base or "HEAD").splitlines():
        added, removed, name = row.split("\t")
        lines[name] = int(added) + int(removed) if added != "-" else 0
    for name in tree.git("ls-files", "--others", "--exclude-standard").splitlines():
        lines[name] = tree.text(name).count("\n")
    return sorted(lines, key=lambda name: -lines[name])


def compiled_files(tree: lint.Tree, build: str) -> set[str]:
    commands = json.loads((tree.root / build / "compile_commands.json").read_text(encoding="utf-8"))
    names = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands}
    return {str(n.relative_to(tree.root)) for n in names if n.is_relative_to(tree.root)}


def sources(names: list[str], compiled: set[str]) -> list[str]:
    """The compiled files among `names`, each once; for a header the .cc beside it."""
    wanted = [re.sub(r"\.h$", ".cc", name) for name in names]
    return [name for name in dict.fromkeys(wanted) if name in compiled]


def check_files(tree: lint.Tree, build: str, names: list[str]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda name: run(tree, "-p", build, name), names))
    return [output for code, output in results if code != 0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--root", type=pathlib.Path, default=default, help="working tree to check")
    parser.add_argument("--build", default="build/tidy", help="folder of compile_commands.json")
    parser.add_argument("--max-files", type=int, default=12, help="the most changed ones first")
    parser.add_argument("--all", action="store_true", help="every file of the compile commands")
    options = parser.parse_args()

    tree = lint.Tree(options.root.resolve())
    compiled = compiled_files(tree, options.build)
    ours = {n for n in compiled if n.startswith(("runtime/", "operator/", "tests/"))}
    names = sorted(ours) if options.all else sources(changed_files(tree), ours)
    left_out = [] if options.all else names[options.max_files :]
    names = names if options.all else names[: options.max_files]

    print(f"clang-tidy: {' '.join(names) or 'no changed file'}", flush=True)
    if left_out:
        print(f"clang-tidy: {len(left_out)} more changed files not looked at: --all takes every one")
    findings = check_configuration(tree) + check_files(tree, options.build, names)
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
