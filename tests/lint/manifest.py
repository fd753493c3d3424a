#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/manifest.md lists every field of the CRD, with what the CRD says of it. --fix writes the page's table anew."""
import re

import crd
import tree as lint

PAGE = "docs/manifest.md"
BEGIN, END = "<!-- fields: tests/lint/manifest.py --fix -->\n", "<!-- end of fields -->\n"
_UNLESS_SUSPENDED = re.compile(r"self\.(spec(?:\.\w+)+) == oldSelf\.\1\b|self\.(spec\.\w+)\.\?(\w+)\.orValue\((-?\d+)\) == oldSelf\.\2\.\?\3\.orValue\(\4\)")
_NEVER = re.compile(r"\(!has\(self\.(\w+)\) \|\| self\.\1 == oldSelf\.\1\)")
_LOCAL = " Kubernetes only."


def changes(path: str, fixed: set[str], frozen: set[str]) -> str:
    prefixes = {re.sub(r"\[\]", "", path[:end.start()]) for end in re.finditer(r"\.|$", path)}
    return "never" if prefixes & fixed else "while suspended" if prefixes & frozen else "yes"


def table(text: str) -> str:
    rules = [line for line in text.splitlines() if "- rule:" in line]
    frozen = {whole or f"{part}.{name}" for rule in rules if "'Suspended'" in rule
              for whole, part, name, _ in _UNLESS_SUSPENDED.findall(rule)}
    fixed = {"spec." + name for rule in rules if "oldSelf.spec" not in rule for name in _NEVER.findall(rule)}
    rows = ["| field | type | default | bounds | may change | where | effect |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for path, is_leaf, facts in crd.fields(text):
        if not path.startswith("spec."):
            continue
        bounds = facts.get("enum") or " to ".join(facts[end] for end in ("minimum", "maximum") if end in facts)
        where = "Kubernetes" if facts["description"].endswith(_LOCAL) else "`pushpull run`" if path == "spec.checkpoint.uri" else ""
        default = f"`{facts['default']}`" if is_leaf and "default" in facts else ""
        cells = [f"`{path}`", facts["type"], default, bounds, changes(path, fixed, frozen) if is_leaf else "", where,
                 facts["description"].removesuffix(_LOCAL)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def with_table(page: str, text: str) -> str:
    head, begin, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    return head + begin + table(text) + END + tail if begin else page


def check(tree: lint.Tree) -> list[str]:
    if crd.PATH not in tree.files:
        return []
    page = tree.text(PAGE) if PAGE in tree.files else ""
    is_current = BEGIN in page and with_table(page, tree.text(crd.PATH)) == page
    return [] if is_current else [f"{PAGE}:1: is not what {crd.PATH} says; run tests/lint/manifest.py --fix"]


if __name__ == "__main__":
    lint.main_with_fix(check, __doc__, lambda here: (PAGE, with_table(here.text(PAGE), here.text(crd.PATH))))
