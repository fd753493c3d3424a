#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests can be found: tests/unit mirrors runtime and operator, and the name of a test is at most 50
characters.

tests/unit/runtime/server/lane_test.cc is of runtime/server/lane.{h,cc}; so is lane_order_test.cc, an
aspect of it. A test of more than one file is of its folder and begins with what it is about, as listed.
"""
import os.path
import re

import tree as lint

NAME_LENGTH = 50
_CPP_TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\s*\)")
_PYTHON_TEST = re.compile(r"^\s*def test_(\w+)", re.MULTILINE)

# Tests of a folder, not of a file: what they are about.
OF_FOLDERS = {
    "tests/unit/operator/controller/job_life_test.cc": "a job from its creation to its end",
    "tests/unit/operator/plan/model_test.cc": "plans against a model of the API server, by seeds",
    "tests/unit/runtime/checkpoint/crash_test.cc": "writing and reading under loss of power",
    "tests/unit/runtime/checkpoint/golden_test.cc": "files of released versions",
    "tests/unit/runtime/job/manifest_table_test.cc": "the table of manifests under tests/data",
    "tests/unit/runtime/job/schema_test.cc": "the CRD against the parser",
    "tests/unit/runtime/membership/tls_session_test.cc": "sessions over TLS",
    "tests/unit/runtime/transport/conformance_test.cc": "what every transport promises",
}


def check_lengths(tree: lint.Tree, name: str) -> list[str]:
    pattern = _PYTHON_TEST if name.endswith(".py") else _CPP_TEST
    return [f"{name}:{line}: {match[1]} has {len(match[1])} characters, more than {NAME_LENGTH}"
            for line, match in lint.matches(pattern, tree.text(name)) if len(match[1]) > NAME_LENGTH]


def check_mirror(name: str, sources: dict[str, set[str]]) -> list[str]:
    folder, _, file = name.removeprefix("tests/unit/").rpartition("/")
    folder = folder.replace("fakes", "tests/fakes")
    stem = file.removesuffix("_test.cc")
    known = sources.get(folder, set())
    if name in OF_FOLDERS or any(stem == s or stem.startswith(s + "_") for s in known):
        return []
    return [f"{name}:1: there is no {folder}/{stem}.h or .cc: name it after the file it tests"]


def check(tree: lint.Tree) -> list[str]:
    sources: dict[str, set[str]] = {}
    for name in tree.cpp("runtime/", "operator/", "tests/fakes/"):
        folder, _, file = name.rpartition("/")
        folder = folder.replace("tests/fakes/inproc", "tests/fakes")
        sources.setdefault(folder, set()).add(os.path.splitext(file)[0])
    findings = []
    for name in tree.files:
        if name.startswith("tests/") and name.endswith(("_test.cc", "_test.py")):
            findings += check_lengths(tree, name)
        if name.startswith("tests/unit/") and name.endswith("_test.cc"):
            findings += check_mirror(name, sources)
    return findings + [f"tests/lint/test_names.py:1: {name} does not exist"
                       for name in OF_FOLDERS if name not in tree.files and "README.md" in tree.files]


if __name__ == "__main__":
    lint.main(check, __doc__)
