#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The spec of a TrainingRuntime has the fields of a TrainingJob's that jobs may share, word by word. --fix writes them anew."""
import re

import crd
import tree as lint

PATH = "charts/pushpull/files/crd/trainingruntimes.yaml"
MARK = "              # Those of trainingjobs.yaml: tests/lint/runtime_crd.py --fix.\n"
# About one job alone.
OWN = ("runtimeRef", "suspend", "managedBy")
_SPEC = re.compile(r"^            spec:\n.*?^              properties:\n(.*?)^            status:\n", re.MULTILINE | re.DOTALL)


def shared_fields(job_crd: str) -> str:
    """The lines of the properties of spec, without those of OWN."""
    properties = re.findall(r"^ {16}\w+:.*\n(?: {17,}.*\n)*", _SPEC.search(job_crd)[1], re.MULTILINE)
    return "".join(text for text in properties if text.split(":")[0].strip() not in OWN)


def with_fields(runtime_crd: str, job_crd: str) -> str:
    return runtime_crd.partition(MARK)[0] + MARK + "              properties:\n" + shared_fields(job_crd)


def check(tree: lint.Tree) -> list[str]:
    if crd.PATH not in tree.files:
        return []
    text = tree.text(PATH) if PATH in tree.files else ""
    is_current = MARK in text and with_fields(text, tree.text(crd.PATH)) == text
    return [] if is_current else [f"{PATH}:1: has not the fields of {crd.PATH}; run tests/lint/runtime_crd.py --fix"]


if __name__ == "__main__":
    lint.main_with_fix(check, __doc__, lambda here: (PATH, with_fields(here.text(PATH), here.text(crd.PATH))))
