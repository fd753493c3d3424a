# SPDX-License-Identifier: Apache-2.0
"""Who holds a job's steps up: the coordinator names a slow worker in one series and in the status, and nobody in an even
job. Compute is sleep, so that a busy machine makes no worker slow."""
import unittest

import job

IGNORES_SUMS = [{"name": "PROBE_IGNORES_SUMS", "value": "1"}]
# The window of a decision is 8 s, and three decisions make a name.
NAMED_SECONDS = 60.0


def named(metrics: dict[str, float]) -> dict[str, float]:
    """The series of pushpull_culprit that are not 0."""
    return {name: value for name, value in metrics.items() if name.startswith("pushpull_culprit{") and value > 0}


class CulpritTest(job.JobTestCase):

    def paced_job(self, *flags: object, workers: int = 3) -> job.LocalJob:
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 100, *flags, workers=workers,
                                         env=IGNORES_SUMS))
        started.wait_for_step(5)
        return started

    def test_slow_worker_is_named_by_one_series_and_in_status(self) -> None:
        started = self.paced_job("--slow-worker", 1, "--slow-factor", 5)

        job.wait_until(lambda: named(started.metrics("coordinator")), NAMED_SECONDS, "somebody is named")
        metrics = started.metrics("coordinator")
        status = started.status()
        table = job.run_command("status", "--workdir", started.workdir).stdout

        self.assertEqual(list(named(metrics)), ['pushpull_culprit{kind="worker",member="worker-1"}'])
        self.assertEqual([(found["kind"], found["member"]) for found in status["culprits"]], [("worker", "worker-1")])
        self.assertRegex(table, r"(?m)^slow: worker-1 holds the others up for \d+\.\d ms of each step \(\d+ %\)$")
        self.assertGreater(metrics['pushpull_worker_lateness_seconds{worker="1"}'], 0.2)
        self.assertLess(metrics['pushpull_worker_lateness_seconds{worker="0"}'], 0.1)
        started.launcher.wait_for_line(r"coordinator worker-1 holds the others up for ")

    def test_nobody_is_named_in_an_even_job(self) -> None:
        started = self.paced_job()

        # Enough for several decisions on whole windows.
        begin = started.status()["step"]
        started.wait_for_step(begin + 120, seconds=90)

        self.assertEqual(named(started.metrics("coordinator")), {})
        self.assertEqual(started.status()["culprits"], [])
        self.assertNotIn("holds the others up", started.launcher.output)

    def test_worker_counts_bytes_and_time_of_each_link(self) -> None:
        started = self.paced_job(workers=2)
        wanted = [f'pushpull_link_{what}_total{{server="{server}"}}'
                  for what in ("bytes", "seconds", "server_seconds") for server in range(2)]

        def are_counted() -> bool:
            metrics = started.metrics("worker")
            return all(metrics.get(name, 0) > 0 for name in wanted)
        job.wait_until(are_counted, 30, "each link is counted")


if __name__ == "__main__":
    unittest.main()
