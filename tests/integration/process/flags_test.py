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

    def test_unknown_words_are_named(self) -> None:
        for words, told in (("frobnicate", "pushpull: unknown command frobnicate (see --help)"),
                            ("statsu", "unknown command statsu (did you mean status?)"),
                            ("checkpoint lst", "pushpull checkpoint: unknown command lst (did you mean list?)"),
                            ("bench frobnicate", "pushpull bench: unknown command frobnicate (see"),
                            ("scale --servrs 3", "pushpull scale: unknown flag --servrs (did you mean --servers?)"),
                            ("--frob", "pushpull: unknown flag --frob (see")):
            with self.subTest(words):
                refused = run(job.PUSHPULL, *words.split())

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
                self.assertIn(told, refused.stderr)
                self.assertIn("--help", refused.stderr)

    def test_each_command_names_an_unknown_flag(self) -> None:
        for command in ("run", "validate", "status", "scale", "set", "checkpoint now", "checkpoint list",
                        "checkpoint verify", "plan", "bench sync", "version", "server", "coordinator"):
            with self.subTest(command):
                refused = run(job.PUSHPULL, *command.split(), "--frobnicate=1")

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(f"pushpull {command}: unknown flag --frobnicate (see --help)", refused.stderr)

    def test_a_wrong_address_names_its_flag(self) -> None:
        server = ("server", "--job", "x", "--index", "0", "--coordinator", "127.0.0.1:1")
        coordinator = ("coordinator", "--manifest", "job.yaml")
        commands = [*((*server, flag) for flag in ("--metrics", "--listen", "--coordinator")),
                    *((*coordinator, flag) for flag in ("--metrics", "--listen")),
                    *((command, "--coordinator") for command in ("status", "scale", "set", "trace"))]
        for words in commands:
            with self.subTest(" ".join(words)):
                refused = run(job.PUSHPULL, *words, "0")

                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(f'{words[-1]}: must be host:port with a port from 0 to 65535, is "0"', refused.stderr)

    def test_a_wrong_address_names_its_variable(self) -> None:
        for name in ("PUSHPULL_COORDINATOR", "PUSHPULL_RING", "PUSHPULL_GROUP"):
            with self.subTest(name):
                refused = subprocess.run([job.PROBE], env={**os.environ, **MEMBER, name: "here"}, capture_output=True, text=True,
                                         timeout=job.PATIENCE * job.COMMAND_SECONDS, check=False)

                self.assertNotEqual(refused.returncode, 0)
                self.assertIn(f'{name}: must be host:port with a port from 0 to 65535, is "here"', refused.stderr)

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
