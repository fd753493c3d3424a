# SPDX-License-Identifier: Apache-2.0
"""Each manifest of mistakes.py is refused, or its mistake is told by a condition, within ten seconds. The answers are those of
docs/mistakes.md; PUSHPULL_WRITE_DOCS=1 writes it."""
import os
import time
import unittest
from typing import Any, NamedTuple

from api_server import ROOT, wait_until
from mistakes import MISTAKES, Mistake
from nodes import NodeCase, get, kubectl

PAGE = ROOT / "docs/mistakes.md"
TOLD_SECONDS = 10
GONE_SECONDS = 60
HEAD = """# Common mistakes and their messages

Each row is a manifest with one mistake, and the message that `kubectl apply` or a condition of the job had for it on a
cluster, within ten seconds. `tests/e2e/nodes/mistakes_test.py` makes this page.

| in the manifest | told by | message |
| --- | --- | --- |
"""


class Answer(NamedTuple):
    seconds: float
    by: str
    message: str


def answer(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Conditions that say what is wrong: where they are and their text."""
    wrong = {"Reconciled": "False", "Degraded": "True", "Failed": "True"}
    return [(f"{it['type']}, {it['reason']}", it["message"]) for it in told.get("status", {}).get("conditions", [])
            if it["status"] == wrong.get(it["type"])]


def row(mistake: Mistake, told: Answer) -> str:
    text = " ".join(mistake.new.replace(mistake.old, "", 1).split()) or f"no {' '.join(mistake.old.split())}"
    cells = (f"`{text}`", told.by, " ".join(told.message.split()))
    return "| " + " | ".join(cell.replace("|", "\\|").replace("](", "]\\(") for cell in cells) + " |\n"


class MistakesTest(NodeCase):

    def tell(self, mistake: Mistake) -> Answer:
        began = time.monotonic()
        applied = kubectl("apply", "-f", "-", text=mistake.manifest())
        if applied.returncode != 0:
            return Answer(time.monotonic() - began, "`kubectl apply`", applied.stderr)

        def found() -> list[tuple[str, str]]:
            return [one for one in answer(get("tj", "first")) if all(word in one[1] for word in mistake.words)]
        try:
            told = wait_until(found, TOLD_SECONDS, lambda: f"{mistake.new}: told: {get('tj', 'first')['status']}")
            return Answer(time.monotonic() - began, *told[0])
        finally:
            kubectl("delete", "tj", "first", "--cascade=foreground", f"--timeout={GONE_SECONDS}s")

    def test_each_is_told(self) -> None:
        self.expected_trouble = ["."]  # each is a user's mistake
        rows, longest = [], 0.0
        for mistake in MISTAKES:
            with self.subTest(mistake.new):
                told = self.tell(mistake)
                for word in mistake.words:
                    self.assertIn(word, told.message)
                longest = max(longest, told.seconds)
                rows.append(row(mistake, told))
        self.say(f"{len(rows)} of {len(MISTAKES)} told, the last {longest:.1f} s after it was applied")
        if os.environ.get("PUSHPULL_WRITE_DOCS"):
            PAGE.write_text(HEAD + "".join(rows), encoding="utf-8")
        listed = PAGE.read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.split(" | ")[0] for line in listed[len(HEAD.splitlines()):]],
                         [line.split(" | ")[0] for line in rows])


if __name__ == "__main__":
    unittest.main()
