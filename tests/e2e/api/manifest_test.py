# SPDX-License-Identifier: Apache-2.0
"""What the API server says of manifests, with the CRD's schema and rules: the same as `pushpull validate`."""
import json
import pathlib
import re
import unittest

import api_server
import manifest_rows

MANIFESTS = api_server.ROOT / "tests/data/manifests"

# Not "<nil>: some validation rules were not checked", nor ".spec.x: accessor error", which say that there are others.
_INVALID_FIELD = re.compile(r"(?:is invalid: |^\* )(?P<field>[^\s:<.][^\s:]*): ", re.MULTILINE)
_UNKNOWN_FIELD = re.compile(r'unknown field "(?P<field>[^"]+)"')

# Wrong as text, which never reaches the API server: kubectl takes the last of two values, and each of two documents.
TAKEN_BY_KUBECTL = ("given_twice.yaml", "nul_by_escape.yaml", "two_documents.yaml")


def fields_of(error: str) -> set[str]:
    """The fields that an answer of the API server names."""
    return {match["field"] for pattern in (_INVALID_FIELD, _UNKNOWN_FIELD) for match in pattern.finditer(error)}


def stated_problems(text: str) -> list[str]:
    return [line[len("# expect: "):] for line in text.splitlines() if line.startswith("# expect: ")]


def is_inside(place: str, field: str) -> bool:
    """Whether `field` is the place or inside it; validate quotes keys that are no plain words."""
    place = re.sub(r'\["(.*?)"\]', r".\1", place)
    return manifest_rows.same_place(place, field) or field.startswith((place + ".", place + "["))


class ManifestTest(api_server.ApiTestCase):

    def dry_run(self, path: pathlib.Path) -> tuple[bool, str]:
        """Whether it would be taken, and what was printed."""
        result = api_server.kubectl("apply", "--dry-run=server", "-f", path)
        return result.returncode == 0, result.stdout + result.stderr

    def test_rows_are_judged_as_they_state(self) -> None:
        for index, row in enumerate(manifest_rows.ROWS):
            with self.subTest(row.name):
                path = self.folder / f"{index}.json"
                path.write_text(json.dumps(row.manifest(index)), encoding="utf-8")

                is_taken, answer = self.dry_run(path)

                fields = fields_of(answer)
                stated = row.cluster_field or row.field
                self.assertEqual(is_taken, stated is None, answer)
                self.assertEqual(len(fields), 0 if stated is None else 1, answer)
                for field in fields:
                    self.assertTrue(manifest_rows.same_place(stated, field), answer)

    def test_valid_manifests_are_taken(self) -> None:
        self.must(api_server.kubectl("apply", "-f", "-", text="{apiVersion: v1, kind: Namespace, metadata: {name: vision}}"))
        paths = sorted((MANIFESTS / "valid").iterdir()) + [api_server.ROOT / "runtime/examples/fashion-mnist.yaml"]
        for path in paths:
            with self.subTest(path.name):
                is_taken, answer = self.dry_run(path)

                self.assertTrue(is_taken, answer)

    def test_broken_manifests_are_rejected_as_by_validate(self) -> None:
        for path in sorted((MANIFESTS / "broken").iterdir()):
            with self.subTest(path.name):
                stated = stated_problems(path.read_text(encoding="utf-8", errors="replace"))

                is_taken, answer = self.dry_run(path)

                self.assertEqual(is_taken, path.name in TAKEN_BY_KUBECTL, answer)
                # The API server runs no rules where the schema is broken, so it may name fewer.
                places = [problem.split(": ")[0] for problem in stated]
                fields = fields_of(answer) if "apiVersion: must be" not in " ".join(stated) else set()  # of that kind
                for field in fields:
                    self.assertTrue(any(is_inside(place, field) for place in places), answer)


if __name__ == "__main__":
    unittest.main()
