#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Spelling and words of Markdown and of comments: codespell, proselint on Markdown, and the words that
docs/glossary.md lists under "Words that are not used", each with what to write instead. `Code` in
back-ticks and code blocks are left alone.
"""
import functools
import re
import subprocess

import proselint.tools

import tree as lint

GLOSSARY = "docs/glossary.md"
_UNUSED_SECTION = re.compile(r"^## Words that are not used$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (?!---|not )(?P<word>[^|]+?) +\| (?P<instead>[^|]+?) +\|$", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)

# Matters of typography and of taste in literature.
PROSELINT_IGNORES = ("typography.", "lexical_illusions", "misc.but", "hedging", "leonard", "redundancy.garner",
                     "after_the_deadline", "garner.phrasal_adjectives", "uncomparables", "weasel_words", "spelling.able_atable")
# Identifiers, and words that are right here.
CODESPELL_IGNORES = r"\w*[a-z][A-Z]\w*|\w*_\w*|\b(?:ser|te|fo|ans|nd|ue|crate|mis|inout|wit|hist)\b"


def prose(tree: lint.Tree, name: str) -> list[tuple[int, str]]:
    """(line number, text without code) of what a person reads in a file."""
    if name.endswith(".md"):
        text = _CODE.sub(lambda match: lint.blank(match[0]), tree.text(name))
        return list(enumerate(text.splitlines(), 1))
    return [(number, _CODE.sub("", text)) for number, text in lint.comments(tree, name)]


def unused_words(tree: lint.Tree) -> list[tuple[re.Pattern, str]]:
    section = _UNUSED_SECTION.search(tree.text(GLOSSARY)) if GLOSSARY in tree.files else None
    rows = _ROW.finditer(section[1]) if section else []
    return [(re.compile(rf"\b(?:{'|'.join(map(re.escape, row['word'].split(', ')))})\b", re.IGNORECASE), row["instead"])
            for row in rows]


def check_words(tree: lint.Tree, names: list[str]) -> list[str]:
    words = unused_words(tree)
    findings = []
    for name in names:
        if name == GLOSSARY:
            continue
        for number, text in prose(tree, name):
            findings += [f"{name}:{number}: '{match[0]}': write {instead}"
                         for pattern, instead in words if (match := pattern.search(text)) is not None]
    return findings


def check_spelling(tree: lint.Tree, names: list[str]) -> list[str]:
    lines = [(name, number, text) for name in names for number, text in prose(tree, name)]
    result = subprocess.run(["codespell", "--ignore-regex", CODESPELL_IGNORES, "-"],
                            input="\n".join(text for _, _, text in lines), capture_output=True, text=True)
    findings = []
    for place, correction in re.findall(r"^(\d+): .*\n\t(.*)$", result.stdout, re.MULTILINE):
        name, number, _ = lines[int(place) - 1]
        findings.append(f"{name}:{number}: {correction}")
    return findings


# proselint reads its options anew for every text.
proselint.tools.load_options = functools.cache(proselint.tools.load_options)


def check_style(tree: lint.Tree, names: list[str]) -> list[str]:
    findings = []
    for name in names:
        text = _CODE.sub(lambda match: lint.blank(match[0]), tree.text(name))
        for rule, message, line, *_ in proselint.tools.lint(text):
            if not rule.startswith(PROSELINT_IGNORES):
                findings.append(f"{name}:{line + 1}: {message} ({rule})")
    return findings


def check(tree: lint.Tree) -> list[str]:
    pages = [n for n in tree.files if n.endswith(".md")]
    read = [n for n in tree.files if not n.startswith(("tests/lint/", "tests/data/")) and (n in pages or lint.comments(tree, n))]
    return check_words(tree, read) + check_spelling(tree, read) + check_style(tree, pages)


if __name__ == "__main__":
    lint.main(check, __doc__)
