# SPDX-License-Identifier: Apache-2.0
"""Jobs whose tensors are float16 or bfloat16: two bytes a value between workers and servers, sums and weights what they
should be on every channel and in every mode, and what does not go with them is refused by name."""
import unittest

import channel_weights
import job

VALUES = 300_000  # five chunks: they are cut by their float32 values
TENSORS = 1
SIZE = ("--values", VALUES, "--tensors", TENSORS)
NO_RESTARTS = {"backoffLimit": 0}


class HalfTest(job.JobTestCase):

    def test_two_bytes_a_value_both_ways_and_sums_are_right(self) -> None:
        for dtype in ("float16", "bfloat16"):
            with self.subTest(dtype=dtype):
                started = self.run_job(self.spec("--steps", 20, *SIZE, "--dtype", dtype))

                self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)
                moved = started.report()["bytes"]
                steps_and_first_values = 2 * 2 * VALUES * TENSORS * 21
                self.assertAlmostEqual(moved["pushed"] / steps_and_first_values, 1, delta=0.01)
                self.assertAlmostEqual(moved["pulled"] / steps_and_first_values, 1, delta=0.01)

    def test_weights_are_bitwise_equal_on_every_channel(self) -> None:
        channel_weights.check_equal(self, *SIZE, "--dtype", "bfloat16", others={"registered": ("--registered", 1)})

    def test_every_mode_with_servers_takes_them(self) -> None:
        for sync in ({"gated": True}, {"mode": "Async"}, {"mode": "Bounded", "staleness": 2}):
            with self.subTest(sync=sync):
                spec = self.spec("--steps", 20, "--optimizer", "sgd", "--dtype", "bfloat16", sync=sync)
                started = self.run_job(spec)

                self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)

    def test_workers_without_servers_sum_them_as_float32(self) -> None:
        for dtype in ("float16", "bfloat16"):
            weights = []
            for servers, mode in ((0, "AllReduce"), (2, "Sync")):
                with self.subTest(dtype=dtype, mode=mode):
                    file = self.folder / f"{dtype}-{mode}.weights"
                    spec = self.spec("--steps", 20, "--optimizer", "adam", "--dtype", dtype, "--weights", file,
                                     servers=servers, sync={"mode": mode, "deterministic": True})
                    started = self.run_job(spec)

                    self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)
                    weights.append(file.read_bytes())
            self.assertTrue(weights[0] == weights[1], dtype)

    def test_a_codec_with_them_is_refused_by_name(self) -> None:
        spec = self.spec("--steps", 5, "--dtype", "float16", "--codec", "bf16", restart=NO_RESTARTS)
        started = self.run_job(spec)

        self.assertNotEqual(started.launcher.wait(60), 0, started.launcher.output)
        self.assertIn('tensor "t0": dtype float16 takes no codec, which is bf16', started.launcher.output)


if __name__ == "__main__":
    unittest.main()
