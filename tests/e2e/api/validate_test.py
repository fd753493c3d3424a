# SPDX-License-Identifier: Apache-2.0
"""`pushpull validate` on every row of manifest_rows.py; manifest_test.py asks an API server the same."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import manifest_rows

PUSHPULL = os.environ.get("PUSHPULL_BIN", "build/release/pushpull")


def validate(path: pathlib.Path) -> tuple[int, dict]:
    result = subprocess.run([PUSHPULL, "validate", "--json", str(path)],
                            capture_output=True, text=True, timeout=30)
    return result.returncode, json.loads(result.stdout)


class ValidateTest(unittest.TestCase):

    def test_rows_are_judged_as_they_state(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for index, row in enumerate(manifest_rows.ROWS):
                with self.subTest(row.name):
                    path = pathlib.Path(folder) / "manifest.yaml"
                    path.write_text(json.dumps(row.manifest(index)), encoding="utf-8")

                    code, verdict = validate(path)

                    fields = [problem["field"] for problem in verdict["problems"]]
                    self.assertEqual(code, 0 if row.field is None else 2, verdict)
                    if row.field is None:
                        self.assertEqual(fields, [])
                    else:
                        self.assertEqual(len(fields), 1, verdict)
                        self.assertTrue(manifest_rows.same_place(row.field, fields[0]), verdict)

    def test_names_of_rows_are_unique(self) -> None:
        names = [row.name for row in manifest_rows.ROWS]

        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
