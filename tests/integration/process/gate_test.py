# SPDX-License-Identifier: Apache-2.0
"""Gated steps on real processes: whoever dies or comes, every sample counts once in every chunk."""
import unittest

import job

SAMPLES, EPOCHS, BATCH = 6000, 3, 10


class GateTest(job.JobTestCase):

    def counting_job(self, **more: object) -> job.LocalJob:
        """Counts, in its parameters, how often each sample has contributed to them."""
        spec = self.spec("--samples", SAMPLES, "--epochs", EPOCHS, "--batch", BATCH,
                         "--step-milliseconds", 60, workers=3,
                         restart={"backoffLimit": 20, "initialDelaySeconds": 0}, **more)
        return self.run_job(spec)

    def assert_counts(self, started: job.LocalJob, restarts: int) -> None:
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        final = report["final"]
        self.assertEqual((final["least"], final["most"], final["total"]),
                         (EPOCHS, EPOCHS, SAMPLES * EPOCHS))
        self.assertEqual(report["restarts"], restarts)

    def test_every_sample_counts_once_though_workers_are_killed(self) -> None:
        started = self.counting_job(sync={"gated": True})
        for death, step in enumerate((10, 30, 55, 80)):
            started.wait_for_step(step)
            started.kill_and_await_next("worker", death % 3)

        self.assertTrue(started.status()["gated"])
        self.assert_counts(started, restarts=4)

    def test_shards_move_while_workers_come_and_die(self) -> None:
        started = self.counting_job(sync={"gated": True})
        for servers, workers, step in ((4, 4, 10), (1, 2, 40)):
            started.wait_for_step(step)
            scaled = started.scale(servers, workers=workers)
            self.assertEqual(scaled.returncode, 0, scaled.stderr)
            started.kill_and_await_next("worker", 0)

        self.assert_counts(started, restarts=2)

    def test_running_job_gets_and_loses_the_gate(self) -> None:
        started = self.counting_job()
        for setting, gated, step in (("gated=true", True, 10), ("gated=false", False, 30),
                                     ("gated=true", True, 50)):
            started.wait_for_step(step)
            changed = started.set(setting, "--wait")
            self.assertEqual(changed.returncode, 0, changed.stderr)
            self.assertEqual(started.status()["gated"], gated)
        started.kill_and_await_next("worker", 1)

        self.assert_counts(started, restarts=1)

    def test_bad_settings_are_refused(self) -> None:
        started = self.run_job(self.long_spec(sync={"gated": True}))
        started.wait_for_step(3)

        self.assert_refused(
            started, (["backupWorkers=1"], "needs spec.sync.backupWorkers 0, which is 1"),
            (["gated=maybe"], "gated: must be true or false"),
            (["mode=Async", "gated=true"], "needs mode Sync"))


if __name__ == "__main__":
    unittest.main()
