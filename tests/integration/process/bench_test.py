# SPDX-License-Identifier: Apache-2.0
"""`pushpull bench sync` on gradients that are tiny: what it says, not how fast it is."""
import json
import os
import pathlib
import tempfile
import unittest

import job


class BenchTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pushpull-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "TMPDIR": str(self.folder)}
        self.environment.pop("PUSHPULL_TLS_DIR", None)

    def bench(self, *words: object) -> dict:
        done = job.run_command("bench", "sync", "--json", *words, environment=self.environment,
                               seconds=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [], "files of the benchmark are left")
        return json.loads(done.stdout)

    def test_every_sum_is_checked_and_every_byte_counted(self) -> None:
        for channel in ("tcp", "shm", "grpc"):
            with self.subTest(channel=channel):
                result = self.bench("--bytes", "1M", "--steps", 3, "--channel", channel)

                self.assertTrue(result["verified"])
                self.assertEqual(result["channel"], channel)
                self.assertEqual(result["wire_bytes_per_step"], 4_000_000)
                self.assertFalse(result["payload_checksum"])
                for key in ("goodput_bytes_per_second", "link_bytes_per_second", "wire_over_link",
                            "link_cpu_seconds_per_gigabyte", "cpu_seconds_per_gigabyte",
                            "cpu_over_link", "messages_per_second"):
                    self.assertGreater(result[key], 0, key)
                self.assertGreaterEqual(result["step_seconds"]["p99"], result["step_seconds"]["p50"])
                self.assertEqual(len(result["step_cpu_seconds"]), 3)
                self.assertGreater(min(result["step_cpu_seconds"]), 0)

    def test_one_small_tensor_is_compared_with_a_round_trip(self) -> None:
        result = self.bench("--workers", 1, "--servers", 1, "--bytes", "1Ki", "--tensors", "1Ki",
                            "--steps", 20, "--payload-checksum", "on")

        self.assertTrue(result["verified"])
        self.assertTrue(result["payload_checksum"])
        self.assertEqual(result["wire_bytes_per_step"], 2 * 1024)
        self.assertGreater(result["round_trip_seconds"], 0)

    def test_registered_gradients_give_right_sums(self) -> None:
        result = self.bench("--bytes", "5M", "--steps", 20, "--channel", "shm", "--registered")

        self.assertTrue(result["verified"])
        self.assertTrue(result["registered"])

    def test_sums_are_right_in_the_order_of_the_workers(self) -> None:
        result = self.bench("--workers", 3, "--bytes", "1M", "--steps", 3, "--deterministic")

        self.assertTrue(result["verified"])
        self.assertTrue(result["deterministic"])

    def test_a_wrong_value_is_one_line(self) -> None:
        for words in (("--bytes", "12X"), ("--channel", "rdma"), ("--tensors", "many"),
                      ("--workers", 0), ("--steps", "few"), ("--payload-checksum", "maybe"), ("--registered",),
                      ("--tls",)):
            with self.subTest(words=words):
                done = job.run_command("bench", "sync", *words, environment=self.environment)

                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(words[0].removeprefix("--"), done.stderr)


if __name__ == "__main__":
    unittest.main()
