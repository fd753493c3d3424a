# SPDX-License-Identifier: Apache-2.0
"""Jobs that succeed with one of their workers (spec.restart.successPolicy), and limits of roles."""
import signal
import unittest
from typing import Any

import job

STEPS = 40
IGNORES_SUMS = [{"name": "PROBE_IGNORES_SUMS", "value": "1"}]


class SuccessPolicyTest(job.JobTestCase):

    def job_of(self, first: int, policy: str, **more: Any) -> job.LocalJob:
        """Worker `first` makes STEPS steps, the others as many as they are let."""
        spec = self.spec("--step-milliseconds", 30, workers=3, env=IGNORES_SUMS,
                         restart={"successPolicy": policy, "initialDelaySeconds": 0}, **more)
        spec["command"] = ["sh", "-c", f'[ "$PUSHPULL_INDEX" = {first} ] && steps={STEPS}; '
                           f'exec "$@" --steps ${{steps:-{job.LONG_JOB_STEPS}}}', "sh", *spec["command"]]
        return self.run_job(spec)

    def test_worker_0_is_enough_and_the_result_is_saved(self) -> None:
        started = self.job_of(0, "Worker0", checkpoint={"claim": "c", "everySeconds": 86400})

        code = started.launcher.wait(60)

        self.assertEqual(code, 0, started.launcher.output)
        self.assertIn("worker-0 is done, and the job with it: spec.restart.successPolicy is Worker0",
                      started.launcher.output)
        for index in (1, 2):
            self.assertIn(f"worker-{index} leaves after step", started.launcher.output)
        report = started.report()
        self.assertEqual((report["phase"], report["restarts"], report["uneven_steps"]), ("Succeeded", 0, 0))
        self.assertGreaterEqual(report["steps"], STEPS)
        self.assertEqual((report["checkpoint"]["step"], report["checkpoint"]["saved"]), (report["steps"], 1))
        self.wait_until_gone(5)

    def test_any_worker_is_enough(self) -> None:
        started = self.job_of(2, "AnyWorker")

        self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)

        self.assertIn("worker-2 is done, and the job with it", started.launcher.output)
        self.assertEqual(started.report()["phase"], "Succeeded")

    def test_another_workers_end_is_not_enough(self) -> None:
        started = self.job_of(2, "Worker0")

        started.launcher.wait_for_line("worker-2 leaves after step")
        started.wait_for_step(STEPS + 20)

        started.launcher.process.send_signal(signal.SIGINT)
        self.assertEqual(started.launcher.wait(30), 130, started.launcher.output)

    def test_released_worker_is_no_success(self) -> None:
        started = self.run_job(self.spec("--samples", 6000, "--batch", 10, "--step-milliseconds", 30, workers=2,
                                         restart={"successPolicy": "AnyWorker"}))
        started.wait_for_step(3)

        for workers in (1, 2):
            scaled = started.scale(None, "--wait", workers=workers)
            self.assertEqual(scaled.returncode, 0, scaled.stderr)

        self.assertEqual(started.status()["phase"], "Running")
        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertEqual(started.report()["final"]["total"], 6000)


class RoleLimitsTest(job.JobTestCase):

    def test_each_role_has_its_own_limit(self) -> None:
        spec = self.long_spec(env=IGNORES_SUMS, restart={
            "backoffLimit": 0, "initialDelaySeconds": 0, "roleLimits": {"servers": 5, "workers": 1}})
        spec["servers"]["replication"] = 1
        started = self.run_job(spec)
        started.wait_for_step(3)

        started.kill_and_await_next("server", 1)
        started.launcher.wait_for_line(r"server-1 .*; restart, 1 of 5")
        started.kill_and_await_next("worker", 1)
        started.launcher.wait_for_line(r"worker-1 .*; restart, 1 of 1")
        started.await_steps_of_worker(1)  # before its first step nothing counts
        started.signal_member("worker", 1, signal.SIGKILL)

        self.assertEqual(started.launcher.wait(30), 1, started.launcher.output)
        self.assertRegex(started.launcher.output, r"failed: worker-1 .* spec.restart.roleLimits.workers \(1\) is reached")


if __name__ == "__main__":
    unittest.main()
