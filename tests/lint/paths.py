#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every path, test and function that Markdown or a comment names exists.

Markdown: links, `tokens` in back-ticks, and words of code blocks, as far as they look like a path of
this repository: they start with one of its folders, or with one beside the Markdown file and have an
ending. A * must match something. Paths that a build or a run makes are left alone. A test is named by its
suite: `SuiteTest.Name`. In docs/walks.md each `Function` after a `path/file.cc` stands in that file.

Comments of C++, protobuf, Python, shell, CMake and YAML: every word that ends as a source file or a page
does, by its path, by a part of it from the right, or by its name alone.
"""
import pathlib
import posixpath
import re

import tree as lint

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TOKEN = re.compile(r"`([^`\n]+)`")
_WORD = re.compile(r"[^\s\"'`,;()<>|=\[\]]+")
_PATH = re.compile(r"(?:\./)?[\w.*-]+(?:/[\w.*{},-]+)*/?")
_ENDING = re.compile(r"\.(?:h|cc|cu|md|py|sh|yaml|yml|txt|proto|json|supp)$")
_TEST = re.compile(r"(\w+Test)\.(\w+)")
_TEST_DEFINED = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")
_FUNCTION = re.compile(r"(?:\w+::)*(~?[A-Z]\w*)(?:\(\))?")
WALKS = "docs/walks.md"
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
            wanted = posixpath.normpath(posixpath.join(base, path))
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


_COMMENT_PATH = re.compile(r"(?<![\w./<*}-])(?:[\w-]+/)*[A-Za-z0-9{][\w{},-]*\.(?:h|cc|md|py|sh|proto)(?![\w/-]|\.\w)")
_INCLUDED = re.compile(r"#[ \t]*include[ \t]+<([^>\n]+)>")


def check_comments(tree: lint.Tree, name: str, endings: set[str]) -> list[str]:
    return [f"{name}:{number}: {path} does not exist"
            for number, text in lint.comments(tree, name)
            for match in _COMMENT_PATH.findall(text)
            for path in alternatives(match) if path not in endings]


def endings_of(tree: lint.Tree) -> set[str]:
    """Every file of the tree, and every header of a library that is used, by each part from the right."""
    names = list(tree.files)
    for name in tree.cpp():
        names += _INCLUDED.findall(tree.text(name))
    parts = [name.split("/") for name in names]
    return {"/".join(part[start:]) for part in parts for start in range(len(part))}


def check_walks(tree: lint.Tree) -> list[str]:
    findings = []
    for number, line in enumerate(tree.text(WALKS).splitlines(), 1):
        source = ""
        for token in _TOKEN.findall(line):
            function = _FUNCTION.fullmatch(token)
            if token in tree.files:
                source = tree.code(token)
                path = token
            elif function is not None and source and not re.search(rf"\b{function[1]}\b", source):
                findings.append(f"{WALKS}:{number}: {path} has no {function[1]}")
    return findings


def check(tree: lint.Tree) -> list[str]:
    paths = Paths(tree)
    endings = endings_of(tree)
    findings = [f for n in tree.files if n.endswith(".md") for f in check_file(paths, n)]
    for name in tree.files:
        if not name.startswith(("tests/lint/", "tests/data/")):
            findings += check_comments(tree, name, endings)
    return findings + (check_walks(tree) if WALKS in tree.files else [])


if __name__ == "__main__":
    lint.main(check, __doc__)
