# SPDX-License-Identifier: Apache-2.0
"""Jobs whose gradients travel as a codec's bytes: the bytes are fewer, sums and weights what they should be on
every channel, and what a server cannot add is refused by name."""
import re
import signal
import unittest
from typing import Any

import channel_weights
import faulty_network
import job

VALUES = 300_000  # two chunks
TENSORS = 1
SIZE = ("--values", VALUES, "--tensors", TENSORS)
RAW_BYTES = 4 * VALUES * TENSORS
NO_RESTARTS = {"backoffLimit": 0}


class CodecTest(job.JobTestCase):

    def test_halves_are_half_the_bytes_and_the_sums_are_right(self) -> None:
        for codec, share in (("none", 1.0), ("fp16", 0.5), ("bf16", 0.5)):
            with self.subTest(codec=codec):
                started = self.run_job(self.spec("--steps", 20, *SIZE, "--codec", codec))

                code = started.launcher.wait(60)

                self.assertEqual(code, 0, started.launcher.output)
                moved = started.report()["bytes"]
                steps_and_first_values = 2 * RAW_BYTES * (20 * share + 1)
                self.assertAlmostEqual(moved["pushed"] / steps_and_first_values, 1, delta=0.01)
                self.assertGreaterEqual(moved["pulled"], 2 * 20 * RAW_BYTES)

    def test_topk_and_onebit_send_the_expected_bytes(self) -> None:
        for codec, bits in (("topk", 0.01 * 48), ("onebit", 1 + 1 / 16)):
            with self.subTest(codec=codec):
                spec = self.spec("--steps", 20, *SIZE, "--optimizer", "sgd", "--codec", codec)
                started = self.run_job(spec)

                code = started.launcher.wait(60)

                self.assertEqual(code, 0, started.launcher.output)
                steps_and_first_values = 2 * RAW_BYTES * (20 * bits / 32 + 1)
                self.assertAlmostEqual(started.report()["bytes"]["pushed"] / steps_and_first_values, 1, delta=0.01)

    def test_weights_are_bitwise_equal_on_every_channel(self) -> None:
        for codec in ("int8", "topk"):
            with self.subTest(codec=codec):
                weights = channel_weights.check_equal(self, *SIZE, "--codec", codec, others={})

                self.assertEqual(len(weights), RAW_BYTES)

    def test_float16_overflow_is_named_and_counted(self) -> None:
        spec = self.spec("--steps", 100, "--codec", "fp16", "--large-at-step", 7, restart=NO_RESTARTS)
        started = self.run_job(spec)

        self.assertEqual(started.launcher.wait(60), 1, started.launcher.output)
        self.assertRegex(started.launcher.output, r"in step 7 has a value that is not finite as fp16")
        self.assertRegex(started.launcher.output, r"too large for the codec.*codec=fp16 values=1")

    def test_codec_trials_keep_sums_exact(self) -> None:
        started = self.run_job(self.spec("--steps", 60, *SIZE, "--codec", "fp16", "--bypass-codec", 1))

        self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)
        # Which of the two is the machine's business.
        said = re.findall(r"codecs (?:pay on this link|do not pay, left out)", started.launcher.output)
        self.assertEqual(len(said), 2, started.launcher.output)

    def test_a_job_with_residuals_is_saved_and_continues(self) -> None:
        folder = self.folder / "checkpoints"

        def spec(steps: int, pause: int) -> dict[str, Any]:
            return {**self.spec("--steps", steps, *SIZE, "--optimizer", "sgd", "--codec", "topk",
                                "--step-milliseconds", pause), "checkpoint": {"uri": f"file://{folder}"}}

        first = self.run_job(spec(job.LONG_JOB_STEPS, 5))
        first.wait_for_step(10)
        first.launcher.process.send_signal(signal.SIGINT)
        self.assertEqual(first.launcher.wait(60), 130, first.launcher.output)
        saved = max(int(path.name.split("-")[1]) for path in folder.glob(f"default/{self.job_name}/step-*"))
        second = self.run_job(spec(saved + 20, 0))

        self.assertEqual(second.launcher.wait(60), 0, second.launcher.output)
        self.assertEqual(second.report()["checkpoint"]["restored_step"], saved)

    def test_residual_codecs_are_rejected_where_they_lose_data(self) -> None:
        for sync, text in (({"mode": "Async"}, "needs spec.sync.mode Sync, which is Async"),
                           ({"backupWorkers": 1}, "needs spec.sync.backupWorkers 0, which is 1"),
                           ({"gated": True}, "needs spec.sync.gated false")):
            with self.subTest(sync=sync):
                spec = self.spec("--steps", 5, "--optimizer", "sgd", "--codec", "topk", sync=sync,
                                 restart=NO_RESTARTS)
                started = self.run_job(spec)

                self.assertNotEqual(started.launcher.wait(60), 0, started.launcher.output)
                self.assertIn(f'tensor "t0": codec topk {text}', started.launcher.output)

    def test_what_was_not_agreed_on_is_refused_by_name(self) -> None:
        expected = {
            faulty_network.Fault.OTHER_CODEC: r"chunk 0: comes with codec bf16, registered with fp16",
            faulty_network.Fault.LATER_CODEC_BYTES: r"fp16 of 1000 values: version 9, this program knows 1"}
        for fault, text in expected.items():
            with self.subTest(fault=fault):
                started = faulty_network.FaultyJob(self, "--steps", job.LONG_JOB_STEPS, "--codec", "fp16",
                                                   "--step-milliseconds", 5)
                job.wait_until(lambda: "values in place" in started.output, job.START_SECONDS, "first values")

                started.network.inject(fault)
                ends = started.wait_for_workers(30)
                # A coordinator without workers would wait for others.
                for program in (started.coordinator, started.server):
                    program.process.kill()

                self.assertEqual(ends, [1, 1], started.output)
                self.assertRegex(started.output, text)
                self.wait_until_gone(5)


if __name__ == "__main__":
    unittest.main()
