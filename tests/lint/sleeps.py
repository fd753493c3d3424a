#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No sleeps: a test that sleeps is slow and flaky, a product that sleeps cannot be stopped.

Tests step a fake clock, or wait on a condition with a deadline. The benchmarks under tests/bench may
sleep; product code only where ALLOWED says why.
"""
import re

import tree as lint

# file -> reason
ALLOWED: dict[str, str] = {
    "tests/e2e/cluster/env.sh": "a shell can wait for a condition only by looking again; all its waits pause here",
}

_SLEEP = {
    ".py": re.compile(r"\btime\.sleep\b|\bfrom\s+time\s+import\b.*\bsleep\b|\basyncio\.sleep\b"),
    ".sh": re.compile(r"(?:^|[;&|(]|\b(?:do|then|else))[ \t]*sleep[ \t]+[\d$.\"]", re.MULTILINE),
}
_SLEEP.update(dict.fromkeys(
    lint.CPP, re.compile(r"\bsleep_for\b|\bsleep_until\b|\b(?:usleep|nanosleep|sleep)\s*\(")))


def check(tree: lint.Tree) -> list[str]:
    findings = []
    for name in tree.files:
        suffix = "." + name.rpartition(".")[2]
        if suffix not in _SLEEP or not name.startswith(("tests/", "runtime/", "operator/")):
            continue
        if name.startswith(("tests/bench/", "tests/lint/")) or name in ALLOWED:
            continue
        text = tree.code(name) if suffix in lint.CPP else re.sub("#.*", "", tree.text(name))
        for line, match in lint.matches(_SLEEP[suffix], text):
            findings.append(f"{name}:{line}: {match.group(0).strip()}: wait on a condition with a "
                            "deadline, or step a fake clock")
    return findings


if __name__ == "__main__":
    lint.main(check, __doc__)
