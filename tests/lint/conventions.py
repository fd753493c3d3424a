#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that one look at a line can check: licence line, file names, words that do not belong into the
repository, the one lock, who reads the environment, and that shell scripts can be parsed.
"""
import re
import subprocess
from typing import Callable, NamedTuple, Optional

import classes
import tree as lint

LICENCE = "SPDX-License-Identifier: Apache-2.0"
BANNED_NAMES = {"util", "utils", "misc", "common", "helper", "helpers", "manager", "internal", "impl"}

# The lints themselves name what they look for.
LINTS = "tests/lint/"


class Rule(NamedTuple):
    pattern: re.Pattern
    allowed: tuple[str, ...]  # starts of paths
    advice: str
    in_comments: bool = False


# In C++ files.
CPP_RULES = [
    Rule(re.compile(r"\bstd::(?:\w*_)?mutex\b|\bstd::(?:lock_guard|unique_lock|scoped_lock|shared_lock)\b"
                    r"|\bstd::condition_variable\w*|\babsl::\w*(?:Mutex|CondVar)\w*"),
         ("runtime/base/mutex.h", "tests/python/fake_accelerator.cc"), "locks are those of runtime/base/mutex.h"),
    Rule(re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b"),
         ("runtime/cmd/", "runtime/train/main.cc", "runtime/examples/", "operator/cmd/", "tests/bench/", "tests/integration/",
          "tests/fakes/seeds.h"),
         "only a program's main reads the environment; pass the value in"),
    # A disk that hangs must not keep a process from ending.
    Rule(re.compile(r"\.detach\(\)"), ("runtime/worker/disk_thread.cc",), "every thread has an owner that joins it"),
    Rule(re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b"), (), "do it, or open an issue", True),
    Rule(re.compile(r"\bNOLINT(?:NEXTLINE|BEGIN)?\b(?!\([\w.,* -]+\):? *[\w-])"), (),
         "name the check and the reason: NOLINT(check): reason", True),
]

# In protobuf files.
PROTO_RULES = [
    Rule(re.compile(r"^[ \t]*map[ \t]*<", re.MULTILINE), (),
         "Debian's libprotobuf lays map fields out differently under the thread sanitizer and "
         "crashes there; use a repeated message"),
]

# In every text file.
TEXT_RULES = [
    Rule(re.compile(r"(?<![\w.$}])/(?:home|Users)/[a-z]\w*|(?<![\w.$}])/(?:root|work)/"), (),
         "a path of one developer's machine"),
    Rule(re.compile(r"\b(?:registry-1\.)?docker\.io\b|\b(?:ghcr|gcr|quay)\.io\b|\bregistry\.k8s\.io\b"
                    r"|\b(?:files\.)?pypi\.org\b|\bpythonhosted\.org\b|\b(?:proxy|sum)\.golang\.org\b"
                    r"|\bregistry\.npmjs\.org\b|\b(?:deb|security)\.debian\.org\b"
                    r"|https?://(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.[\d.]+"), (),
         "a registry's host; take the machine's own configuration"),
]


def first_lines(tree: lint.Tree, name: str) -> list[str]:
    return tree.text(name).splitlines()[:2]


def comment_mark(name: str, lines: list[str]) -> Optional[str]:
    """How a source file starts a comment; None: not a source file."""
    if name.endswith((*lint.CPP, ".proto")):
        return "//"
    is_script = name.endswith((".py", ".sh")) or (lines and lines[0].startswith("#!"))
    return "#" if is_script else None


def check_licence(tree: lint.Tree, name: str) -> list[str]:
    lines = first_lines(tree, name)
    mark = comment_mark(name, lines)
    if mark is None:
        return []
    after_shebang = lines[1:] if lines and lines[0].startswith("#!") else lines
    wanted = f"{mark} {LICENCE}"
    if after_shebang[:1] == [wanted]:
        return []
    return [f"{name}:1: the first line of a source file is {wanted}"]


def check_shell(tree: lint.Tree, name: str) -> list[str]:
    """A shell script is read line by line: a mistake far down shows itself when that line is reached."""
    is_shell = name.endswith(".sh") or first_lines(tree, name)[:1] in (["#!/usr/bin/env bash"], ["#!/bin/bash"])
    if not is_shell:
        return []
    parsed = subprocess.run(["bash", "-n"], input=tree.text(name), capture_output=True, text=True)
    return [f"{name}:{line}: {text}"
            for line, text in re.findall(r"^bash: line (\d+): (.*)$", parsed.stderr, re.MULTILINE)[:1]]


def check_name(name: str) -> list[str]:
    words = set(re.split(r"[/_.-]", name.rpartition(".")[0] or name))
    return [f"{name}:1: a file is not named {word}: name what it is for"
            for word in sorted(words & BANNED_NAMES)]


def check_header(tree: lint.Tree, name: str) -> list[str]:
    if name.endswith(".h") and "#pragma once" not in tree.text(name):
        return [f"{name}:1: a header has #pragma once"]
    return []


def check_rules(name: str, rules: list[Rule], text_of: Callable[[Rule], str]) -> list[str]:
    findings = []
    for rule in rules:
        if name.startswith((LINTS, *rule.allowed)):
            continue
        findings += [f"{name}:{line}: {match.group(0)}: {rule.advice}"
                     for line, match in lint.matches(rule.pattern, text_of(rule))]
    return findings


def check_one_definition(tree: lint.Tree) -> list[str]:
    """Classes of headers share one namespace: two of one name in one program are undefined behaviour."""
    found = classes.Classes()
    for name in tree.cpp("runtime/", "operator/"):
        if name.endswith(".h"):
            found.add_file(name, tree.code(name))
    first: dict[tuple[str, str], classes.Class] = {}
    findings = []
    for (folder, name), it in found.finish().items():
        other = first.setdefault((folder.split("/")[0], name), it)
        if other is not it and "::" not in name:
            findings.append(f"{it.file}:{it.line}: {name} is also in {other.file}: give one another name")
    return findings


def check(tree: lint.Tree) -> list[str]:
    findings = check_one_definition(tree)
    for name in tree.files:
        findings += check_name(name) + check_licence(tree, name) + check_header(tree, name)
        findings += check_shell(tree, name)
        text = tree.text(name)
        findings += check_rules(name, TEXT_RULES, lambda rule: text)
        if name.endswith(".proto"):
            findings += check_rules(name, PROTO_RULES, lambda rule: text)
        if name.endswith(lint.CPP):
            code = tree.code(name)
            findings += check_rules(name, CPP_RULES, lambda rule: text if rule.in_comments else code)
    return findings


if __name__ == "__main__":
    lint.main(check, __doc__)
