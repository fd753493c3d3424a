#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every path, and every test, that a Markdown file names exists.

Looked at: links, `tokens` in back-ticks, and words of code blocks, as far as they look like a path of
this repository: they start with one of its folders, or with one beside the Markdown file and have an
ending. A * must match something. Paths that a build or a run makes are left alone. A test is named by its
suite: `SuiteTest.Name`.
"""
import pathlib
import re

import tree as lint

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TOKEN = re.compile(r"`([^`\n]+)`")
_WORD = re.compile(r"[^\s\"'`,;()<>|=\[\]]+")
_PATH = re.compile(r"(?:\./)?[\w.*-]+(?:/[\w.*{},-]+)*/?")
_ENDING = re.compile(r"\.(?:h|cc|cu|md|py|sh|yaml|yml|txt|proto|json|supp)$")
_TEST = re.compile(r"(\w+Test)\.(\w+)")
_TEST_DEFINED = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")
MADE = ("build/", ".pushpull/")


def alternatives(path: str) -> list[str]:
    """a/b.{h,cc} as a/b.h and a/b.cc."""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    return [path[: match.start()] + choice + path[match.end():]
            for choice in match.group(1).split(",")]


class Paths:
    def __init__(self, tree: lint.Tree):
        self.tree = tree
        self.known = set(tree.files)
        for name in tree.files:
            self.known.update(str(parent) for parent in pathlib.PurePosixPath(name).parents)
        self.tests = {test for name in tree.cpp("tests/") for test in _TEST_DEFINED.findall(tree.text(name))}
        self.top = {name.split("/")[0] for name in tree.files if "/" in name}

    def exists(self, path: str, folder: str) -> bool:
        """Relative to the root or to the folder of the Markdown file."""
        for base in ["", folder]:
            wanted = str(pathlib.PurePosixPath(base, path))
            if wanted in self.known:
                return True
            if "*" in wanted and any(pathlib.PurePosixPath(k).match(wanted) for k in self.known):
                return True
        return False

    def is_path(self, word: str, folder: str) -> bool:
        if not _PATH.fullmatch(word) or word.startswith(MADE):
            return False
        first = word.removeprefix("./").split("/")[0]
        if word.startswith("./"):
            return True
        if "/" not in word:
            return False
        beside = (self.tree.root / folder / first).is_dir()
        return first in self.top or (beside and _ENDING.search(word) is not None)


def check_file(paths: Paths, name: str) -> list[str]:
    folder = name.rpartition("/")[0]
    findings = []
    fenced = False
    for number, line in enumerate(paths.tree.text(name).splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        words = _WORD.findall(line) if fenced else [w for t in _TOKEN.findall(line) for w in _WORD.findall(t)]
        wanted = [w.rstrip(".:") for w in words if paths.is_path(w.rstrip(".:"), folder)]
        if not fenced:
            links = [link.split("#")[0] for link in _LINK.findall(line)]
            wanted += [link for link in links if link and "://" not in link and "mailto:" not in link]
            tests = [match for token in _TOKEN.findall(line) if (match := _TEST.fullmatch(token))]
            findings += [f"{name}:{number}: there is no test {match[0]}"
                         for match in tests if match.groups() not in paths.tests]
        for word in wanted:
            findings += [f"{name}:{number}: {path} does not exist"
                         for path in alternatives(word) if not paths.exists(path, folder)]
    return findings


def check(tree: lint.Tree) -> list[str]:
    paths = Paths(tree)
    return [f for n in tree.files if n.endswith(".md") for f in check_file(paths, n)]


if __name__ == "__main__":
    lint.main(check, __doc__)
