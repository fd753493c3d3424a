# SPDX-License-Identifier: Apache-2.0
"""Flags that no other test needs, and combinations of flags that have no effect, which are refused."""
import json
import os
import subprocess
import unittest

import job

FOLDER = os.path.dirname(job.PUSHPULL)
OPERATOR = os.path.join(FOLDER, "pushpull-operator")
TRAINER = os.path.join(FOLDER, "pushpull-train")
MEMBER = {"PUSHPULL_JOB": "x", "PUSHPULL_ROLE": "worker", "PUSHPULL_INDEX": "0", "PUSHPULL_COORDINATOR": "127.0.0.1:1"}


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(words, env={**os.environ, **MEMBER}, capture_output=True, text=True,
                          timeout=job.PATIENCE * job.COMMAND_SECONDS, check=False)


class FlagsTest(job.JobTestCase):

    def test_version_is_one_json_object(self) -> None:
        for program in filter(os.path.exists, (job.PUSHPULL, OPERATOR)):
            with self.subTest(os.path.basename(program)):
                done = run(program, "version", "--json")

                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("version", json.loads(done.stdout))

    def test_timeout_needs_wait(self) -> None:
        for words in (("scale", "--servers", "2"), ("set", "mode=Async"), ("checkpoint", "now")):
            with self.subTest(words[0]):
                refused = run(job.PUSHPULL, *words, "--coordinator", "127.0.0.1:1", "--timeout", "5")

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn("--timeout requires --wait", refused.stderr)

    @unittest.skipUnless(os.path.exists(TRAINER), "built without the trainer")
    def test_flags_without_effect_are_refused(self) -> None:
        for words, needed in ((("--bypass-codec",), "--codec"), (("--inject-nan-worker", "1"), "--inject-nan-at-step"),
                              (("--optimizer", "adam", "--momentum", "0.5"), "sgd")):
            with self.subTest(words[0]):
                refused = run(TRAINER, *words)

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(needed, refused.stderr)

    def test_unknown_log_level_is_refused(self) -> None:
        manifest = self.write_manifest(self.spec())
        for role in (("coordinator", "--manifest", str(manifest)), ("server", "--job", "x", "--index", "0", "--coordinator", "127.0.0.1:1", "--listen", "127.0.0.1:0")):
            with self.subTest(role[0]):
                refused = run(job.PUSHPULL, *role, "--log-level", "loud")

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn("loud", refused.stderr)


if __name__ == "__main__":
    unittest.main()
