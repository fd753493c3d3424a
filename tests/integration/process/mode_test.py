# SPDX-License-Identifier: Apache-2.0
"""The modes Async and Bounded, and `pushpull set` on running jobs."""
import unittest

import job

SLOW_FACTOR = 100
STALENESS = 3


def steps(started: job.LocalJob) -> list[int]:
    return [worker["step"] for worker in started.status()["workers"]]


class ModeTest(job.JobTestCase):

    def slow_job(self) -> job.LocalJob:
        """Worker 0 takes far longer to compute than the others."""
        return self.run_job(self.spec(
            "--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 5, "--optimizer", "sgd",
            "--slow-worker", 0, "--slow-factor", SLOW_FACTOR, workers=3))

    def test_mode_changes_while_training_goes_on(self) -> None:
        started = self.run_job(self.spec("--steps", 3000, "--step-milliseconds", 20,
                                         "--optimizer", "sgd"))
        started.wait_for_step(3)

        for settings, mode, staleness in ((["mode=Async"], "Async", 0),
                                          (["mode=Bounded", "staleness=2"], "Bounded", 2),
                                          (["staleness=5"], "Bounded", 5),
                                          (["mode=Sync"], "Sync", 0)):
            with self.subTest(settings=settings):
                changed = started.set(*settings, "--wait")
                status = started.status()

                self.assertEqual(changed.returncode, 0, changed.stderr)
                self.assertEqual((status["mode"], status["staleness"]), (mode, staleness))
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["restarts"], 0)

    def test_bounded_waits_for_a_slow_worker_and_async_does_not(self) -> None:
        started = self.slow_job()
        started.wait_for_step(3)

        self.assertEqual(started.set("mode=Async", "--wait").returncode, 0)
        before = steps(started)
        job.wait_until(lambda: steps(started)[1] > before[1] + 100, 60, "100 steps of worker-1")
        slow, fast = (now - then for now, then in zip(steps(started)[:2], before[:2]))
        self.assertGreater(fast, 3 * slow)
        bounded = started.set("mode=Bounded", f"staleness={STALENESS}", "--wait")
        self.assertEqual(bounded.returncode, 0, bounded.stderr)
        first = int(bounded.stdout.split()[-1])  # "... from step N"
        job.wait_until(lambda: min(steps(started)) > first + 5, 60, "five steps of everybody")

        # The slow one is asked last, so what it has done meanwhile cannot make it look behind.
        quick = max(started.metrics("worker", index)["pushpull_step"] for index in (1, 2))
        slowest = started.metrics("worker", 0)["pushpull_step"]
        self.assertLessEqual(quick - slowest, STALENESS + 1)
        self.assertGreater(started.metrics("server")["pushpull_staleness_steps_count"], 0)

    def test_worker_that_dies_does_not_hold_others_up(self) -> None:
        spec = self.spec("--steps", 1500, "--step-milliseconds", 30, "--optimizer", "sgd",
                         restart={"backoffLimit": 3, "initialDelaySeconds": 0})
        started = self.run_job(spec, "--set", "spec.sync.mode=Bounded",
                               "--set", "spec.sync.staleness=1")
        started.wait_for_step(50)

        started.kill_and_await_next("worker", 1)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["restarts"], 1)

    def test_bad_settings_are_refused_and_change_nothing(self) -> None:
        started = self.run_job(self.long_spec(sync={"deterministic": True}))
        started.wait_for_step(3)

        self.assert_refused(
            started, (["mode=Asink"], "mode"), (["mode=AllReduce"], "AllReduce"),
            (["staleness=3"], "spec.sync.staleness"),
            (["mode=Async", "staleness=3"], "staleness"),
            (["staleness=-1"], "staleness"), (["mode"], "KEY=VALUE"),
            (["speed=9"], "speed"), (["backupWorkers=x"], "backupWorkers"),
            (["mode=Async"], "spec.sync.deterministic"))
        self.assertEqual(started.status()["mode"], "Sync")
        self.assertIsNone(started.launcher.process.poll(), started.launcher.output)


if __name__ == "__main__":
    unittest.main()
