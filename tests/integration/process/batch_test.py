# SPDX-License-Identifier: Apache-2.0
"""The batch of a running job: `pushpull set globalBatch`, and the noise scale by which to choose it."""
import subprocess
import unittest

import job

SAMPLES, EPOCHS = 24000, 3
QUICK_RESTARTS = {"backoffLimit": 20, "initialDelaySeconds": 0}


class BatchTest(job.JobTestCase):

    def counting_job(self, **more: object) -> job.LocalJob:
        """Counts, in its parameters, how often each sample has contributed to them."""
        spec = self.spec("--samples", SAMPLES, "--epochs", EPOCHS, "--batch", 7, "--step-milliseconds", 300,
                         workers=3, restart=QUICK_RESTARTS, **more)
        spec["workers"]["globalBatch"] = 128
        return self.run_job(spec)

    def change(self, started: job.LocalJob, batch: int) -> subprocess.CompletedProcess:
        changed = started.set(f"globalBatch={batch}", "--wait")
        self.assertEqual(changed.returncode, 0, changed.stderr)
        status = started.status()
        self.assertEqual((status["batch"], status["global_batch"]), (batch, batch))
        return changed

    def test_batch_changes_and_every_sample_counts_once(self) -> None:
        started = self.counting_job(sync={"gated": True})
        started.wait_for_step(10)
        self.assertEqual(started.status()["batch"], 128)

        grown = self.change(started, 512)
        started.wait_for_step(started.status()["step"] + 5)
        started.kill_and_await_next("worker", 1)
        after_death = started.status()
        self.change(started, 128)
        shown = job.run_command("status", "--workdir", started.workdir)
        code = started.finish()

        self.assertRegex(grown.stdout, r"globalBatch 512, in force by step \d+")
        self.assertEqual(after_death["batch"], 512)
        self.assertIn("batch 128\n", shown.stdout)
        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        final = report["final"]
        self.assertEqual((final["least"], final["most"], final["total"]), (EPOCHS, EPOCHS, SAMPLES * EPOCHS))
        self.assertEqual((report["batch"], report["uneven_steps"]), (128, 0))
        events = [event["text"] for event in report["events"]]
        self.assertIn("globalBatch: 512 requested", events)
        self.assertIn("globalBatch: steps have 128 samples instead of 512", events)

    def test_next_coordinator_knows_the_batch_that_was_set(self) -> None:
        started = self.counting_job()
        started.wait_for_step(5)
        self.change(started, 256)

        started.kill_and_await_next("coordinator", 0)
        started.wait_for_status("Running", term=2)
        started.wait_for_step(started.status()["step"] + 5)
        status = job.wait_until(lambda: (now := started.status())["batch"] and now, 30, "a server's report")

        self.assertEqual((status["batch"], status["global_batch"]), (256, 256))
        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertEqual(started.report()["final"]["total"], SAMPLES * EPOCHS)

    def test_bad_batches_are_refused(self) -> None:
        started = self.run_job(self.long_spec())
        started.wait_for_step(3)

        self.assert_refused(started, (["globalBatch=0"], "globalBatch: must be a number from 1 to 2147483647"),
                            (["globalBatch=many"], "globalBatch: must be a number"),
                            (["batch=3"], "can be mode, staleness, backupWorkers, gated or globalBatch"))
        refused = started.set("globalBatch=8")
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("divides no data set among its workers", refused.stderr)
        self.assertEqual(started.status()["batch"], 0)

    def test_noise_scale_of_a_known_gradient_is_found(self) -> None:
        # 30,000 values of mean 0.02 and deviation 1: 30,000 / (30,000 * 0.02^2) samples.
        spec = self.spec("--steps", 600, "--values", 30_000, "--tensors", 1, "--optimizer", "sgd",
                         "--noise-samples", 4000, "--step-milliseconds", 60, workers=3,
                         sync={"noiseScale": True})
        started = self.run_job(spec)

        found = job.wait_until(
            lambda: (now := started.status()).get("step", 0) >= 90 and now["noise_scale"], 100, "a noise scale")
        metric = started.metrics("coordinator")["pushpull_gradient_noise_scale"]
        shown = job.run_command("status", "--workdir", started.workdir)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        for value in (found, metric, started.report()["noise_scale"]):
            self.assertAlmostEqual(value / 2500, 1, delta=0.05)
        self.assertRegex(shown.stdout, r"noise scale 2\d\d\d samples")


if __name__ == "__main__":
    unittest.main()
