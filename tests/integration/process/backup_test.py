# SPDX-License-Identifier: Apache-2.0
"""Backup workers on real processes: a slow worker, deaths, and the switch of a running job."""
import time
import unittest

import job

STEP_MILLISECONDS = 20
SLOW_FACTOR = 15


def rate(started: job.LocalJob, steps: int, worker: int = 1) -> float:
    """Steps a second of a worker, between two of its heartbeats that are `steps` or more apart."""

    def step() -> int:
        return started.status()["workers"][worker]["step"]

    def next_heartbeat(at_least: int) -> tuple[int, float]:
        job.wait_until(lambda: step() >= at_least, 120, f"step {at_least}")
        return step(), time.monotonic()

    first, begin = next_heartbeat(step() + 1)
    last, end = next_heartbeat(first + steps)
    return (last - first) / (end - begin)


class BackupTest(job.JobTestCase):

    def job_with_slow_worker(self, steps: int, **more: object) -> job.LocalJob:
        spec = self.spec("--steps", steps, "--step-milliseconds", STEP_MILLISECONDS,
                         "--optimizer", "sgd", "--slow-worker", 0, "--slow-factor", SLOW_FACTOR,
                         workers=4, **more)
        spec["servers"]["replication"] = 1
        return self.run_job(spec)

    def test_running_job_gets_and_loses_a_backup_worker(self) -> None:
        started = self.job_with_slow_worker(job.LONG_JOB_STEPS)
        started.wait_for_step(3)
        with_all = rate(started, 10)

        added = started.set("backupWorkers=1", "--wait")
        status = started.status()
        without_slowest = rate(started, 100)
        removed = started.set("backupWorkers=0", "--wait")
        with_all_again = rate(started, 10)

        print(f"steps/s: {with_all:.1f} with all four, {without_slowest:.1f} with the first three, "
              f"{with_all_again:.1f} with all again")
        self.assertEqual(added.returncode, 0, added.stderr)
        self.assertEqual((status["mode"], status["backup_workers"]), ("Sync", 1))
        self.assertEqual(removed.returncode, 0, removed.stderr)
        # It is printed how much faster, and not judged: nobody waits for the slow one any more.
        self.assertGreater(without_slowest, 1.5 * with_all)
        self.assertLess(with_all_again, without_slowest / 1.5)
        self.assertEqual(len(set(worker["alive"] for worker in started.status()["workers"])), 1)

    def test_deaths_and_other_modes_do_not_disturb_it(self) -> None:
        started = self.job_with_slow_worker(
            1500, sync={"backupWorkers": 1}, restart={"backoffLimit": 6, "initialDelaySeconds": 0})
        started.wait_for_step(20)

        started.kill_and_await_next("worker", 1)
        started.wait_for_step(60)
        started.kill_and_await_next("server", 0)
        started.wait_for_step(120)
        for settings in (["mode=Async"], ["mode=Sync", "backupWorkers=2"], ["backupWorkers=1"]):
            changed = started.set(*settings, "--wait")
            self.assertEqual(changed.returncode, 0, changed.stderr)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["restarts"], 2)

    def test_samples_of_the_slow_count_once(self) -> None:
        started = self.run_job(self.spec(
            "--samples", 3000, "--epochs", 2, "--batch", 10, "--step-milliseconds", 10,
            "--slow-worker", 1, "--slow-factor", SLOW_FACTOR, workers=4, sync={"backupWorkers": 1}))
        code = started.launcher.wait(120)

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        results = report["final"]
        self.assertEqual((results["least"], results["most"], results["total"]), (2, 2, 6000))
        self.assertEqual(report["samples"], 6000)  # those of dropped gradients count once, too

    def test_bad_settings_are_refused(self) -> None:
        started = self.run_job(self.long_spec())
        started.wait_for_step(3)

        self.assert_refused(
            started, (["backupWorkers=2"], "spec.workers.replicas (2)"),
            (["backupWorkers=-1"], "backupWorkers"),
            (["mode=Async", "backupWorkers=1"], "needs mode Sync"))


if __name__ == "__main__":
    unittest.main()
