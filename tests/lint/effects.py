#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every setting has an effect that a test proves: tests/effects.md names the tests of each one.

Settings are the fields of the CRD, the flags of every command, the environment variables that the product
reads or sets, and the chart's values. A row `| `setting`, ... | `test`, ... |` may hold several of each. A test
is `Suite.Name` of a C++ test, `test_name` of a Python one, or `it: text` of the chart's tests.
"""
import json
import re

import crd
import tree as lint

TABLE = "tests/effects.md"
VALUES = "charts/pushpull/values.schema.json"
_PROGRAMS = {"operator/cmd/main.cc": "pushpull-operator", "runtime/train/main.cc": "pushpull-train"}
_TOKEN = re.compile(r"`([^`]+)`")
_FLAG = re.compile(r'add_(?:option|flag)\(\s*"([^",]+)')
_VARIABLE = re.compile(r'"(PUSHPULL_[A-Z_]+)"')
_CPP_TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")
_PYTHON_TEST = re.compile(r"\bdef (test_\w+)\(")
_CHART_TEST = re.compile(r"^ *- (it: .+)$", re.MULTILINE)


def flags(tree: lint.Tree) -> set[str]:
    """`run --report`: the program, or the source file whose name is mostly that of the subcommand, and the flag."""
    found = {(_PROGRAMS.get(name, name.rpartition("/")[2].removesuffix(".cc")), flag)
             for name in tree.cpp("runtime/cmd/", *_PROGRAMS) for flag in _FLAG.findall(tree.text(name))}
    return {" ".join(flag) for flag in found}


def variables(tree: lint.Tree) -> set[str]:
    return {name for file in tree.cpp("runtime/", "operator/") for name in _VARIABLE.findall(tree.text(file))}


def values(tree: lint.Tree) -> set[str]:
    schema = json.loads(tree.text(VALUES)) if VALUES in tree.files else {}

    def leaves(node: dict, path: str) -> set[str]:
        reference = node.get("$ref", "").rpartition("/")[2]
        node = schema["definitions"][reference] if reference else node
        inner = [leaves(value, f"{path}.{key}") for key, value in node.get("properties", {}).items()]
        return set().union(*inner) if inner else {path.lstrip(".")}

    return leaves(schema, "") - {"", "global"}  # Helm itself gives `global` to every chart.


def fields(tree: lint.Tree) -> set[str]:
    return {field.path for field in crd.fields(tree.text(crd.PATH)) if field.is_leaf} if crd.PATH in tree.files else set()


def tests(tree: lint.Tree) -> set[str]:
    found = {".".join(test) for name in tree.cpp("tests/") for test in _CPP_TEST.findall(tree.text(name))}
    for name in tree.files:
        if name.startswith("tests/") and name.endswith("_test.py"):
            found.update(_PYTHON_TEST.findall(tree.text(name)))
        if name.startswith("charts/pushpull/tests/"):
            found.update(_CHART_TEST.findall(tree.text(name)))
    return found


def check(tree: lint.Tree) -> list[str]:
    known, findings, listed = tests(tree), [], set()
    settings = fields(tree) | flags(tree) | variables(tree) | values(tree)
    rows = tree.text(TABLE).splitlines() if TABLE in tree.files else []
    for number, line in enumerate(rows, 1):
        cells = line.split(" | ")
        if not line.startswith("| `") or len(cells) != 2:
            continue
        names, shown = _TOKEN.findall(cells[0]), _TOKEN.findall(cells[1])
        listed.update(names)
        findings += [f"{TABLE}:{number}: there is no setting {name}; delete it" for name in names if name not in settings]
        findings += [f"{TABLE}:{number}: there is no test {name}" for name in shown if name not in known]
        if not shown:
            findings.append(f"{TABLE}:{number}: {names[0]} names no test")
    return findings + [f"{TABLE}: {name} is missing; name the test that proves its effect, or remove the setting"
                       for name in sorted(settings - listed)]


if __name__ == "__main__":
    lint.main(check, __doc__)
