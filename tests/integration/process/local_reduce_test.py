# SPDX-License-Identifier: Apache-2.0
"""spec.sync.localReduce on real processes: workers of one host, or rack, push as much as one of them would, the sums
are those of all workers, and whoever dies, comes or goes, each worker's gradients count once."""
import unittest
from typing import Any, Optional

import job

RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}
STEPS = 300
TENSORS, VALUES = 4, 100_000  # two chunks a tensor
GRADIENT_BYTES = 4 * TENSORS * VALUES
SAMPLES, EPOCHS, BATCH = 100_000, 3, 100  # beside two chunks of counts a step has 4 KiB of each worker
# Over so many steps gradients are counted: one that is under way belongs to the step before or after.
WINDOW_STEPS = 20
PUSHED = "pushpull_push_bytes_total"
WINDOW_SECONDS = 60.0


class Received:
    """What the servers of a running job have received from workers."""

    def __init__(self, started: job.LocalJob, servers: int, gradient_bytes: int = GRADIENT_BYTES) -> None:
        self._started = started
        self._servers = servers
        self._gradient_bytes = gradient_bytes

    def _read(self) -> tuple[float, float]:
        """Steps, and gradients."""
        series = [self._started.metrics("server", index) for index in range(self._servers)]
        pushed = sum(value for each in series for name, value in each.items() if name.startswith(PUSHED))
        return series[0]["pushpull_step"], pushed / self._gradient_bytes

    def _read_next(self) -> tuple[float, float]:
        """When the first server says the step anew, which it does a few times a second."""
        before = self._read()

        def read() -> Optional[tuple[float, float]]:
            now = self._read()
            return now if now[0] > before[0] else None
        return job.wait_until(read, WINDOW_SECONDS, f"a step after {before[0]:.0f}")

    def gradients_a_step(self, most: float) -> float:
        """Over the first window of steps in which they are no more: workers push for themselves until their links are
        up, and for 64 steps after one of them was late, as it may be on a busy machine."""
        begin = self._read_next()

        def window() -> Optional[float]:
            nonlocal begin
            now = self._read_next()
            if now[0] - begin[0] < WINDOW_STEPS:
                return None
            gradients = (now[1] - begin[1]) / (now[0] - begin[0])
            begin = now
            return gradients if gradients <= most else None
        return job.wait_until(window, WINDOW_SECONDS, f"{WINDOW_STEPS} steps with {most:.1f} gradients each, at most")


class LocalReduceCase(job.JobTestCase):
    """Jobs whose workers push together, and what they must come to."""

    def adding_job(self, by: str, name: str, workers: int = 4, milliseconds: int = 100, **more: Any) -> dict[str, Any]:
        """Its last weights are exact in whatever order gradients are summed."""
        return self.spec("--steps", STEPS, "--step-milliseconds", milliseconds, "--optimizer", "add",
                         "--tensors", TENSORS, "--values", VALUES, "--weights", self.folder / name,
                         workers=workers, sync={"localReduce": by}, restart=RESTARTS, **more)

    def weights(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def reference(self, workers: int) -> bytes:
        """The weights of workers that push for themselves."""
        plain = self.run_job(self.adding_job("None", "plain", workers, milliseconds=0), name=f"{self.job_name}-plain")
        self.assertEqual(plain.finish(), 0, plain.launcher.output)
        self.assertEqual(len(self.weights("plain")), GRADIENT_BYTES)
        return self.weights("plain")

    def assert_ends_well(self, started: job.LocalJob, restarts: int = 0) -> dict[str, Any]:
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["restarts"], restarts, started.launcher.output)
        return report


class LocalReduceTest(LocalReduceCase):

    def counting_job(self, workers: int) -> job.LocalJob:
        """Counts, in its parameters, how often each sample has contributed to them."""
        return self.run_job(self.spec("--samples", SAMPLES, "--epochs", EPOCHS, "--batch", BATCH,
                                      "--step-milliseconds", 50, workers=workers, sync={"localReduce": "Host"},
                                      restart=RESTARTS))

    def test_a_group_pushes_what_one_worker_would(self) -> None:
        weights = {}
        for by, least, most in (("None", 3.7, 4.3), ("Host", 0.9, 1.2)):
            started = self.run_job(self.adding_job(by, by), name=f"{self.job_name}-{by.lower()}")
            started.wait_for_step(5)

            gradients = Received(started, 2).gradients_a_step(most)
            self.assert_ends_well(started)

            self.assertGreaterEqual(gradients, least)
            weights[by] = self.weights(by)

        self.assertEqual(len(weights["None"]), GRADIENT_BYTES)
        self.assertTrue(any(weights["None"]))
        self.assertTrue(weights["Host"] == weights["None"])

    def test_a_group_goes_on_when_a_worker_is_killed(self) -> None:
        started = self.counting_job(workers=3)
        received = Received(started, 2, gradient_bytes=4 * SAMPLES)
        started.wait_for_step(10)

        started.kill_and_await_next("worker", 1)
        started.await_joined("worker", 1)
        received.gradients_a_step(1.3)
        report = self.assert_ends_well(started, restarts=1)

        # One death may leave one step uneven: its batch counts twice in a chunk, or not at all.
        final = report["final"]
        self.assertAlmostEqual(final["total"], SAMPLES * EPOCHS, delta=BATCH)
        self.assertGreaterEqual(final["least"], EPOCHS - 1)
        self.assertLessEqual(final["most"], EPOCHS + 1)

    def test_a_killed_server_costs_no_gradient(self) -> None:
        expected = self.reference(workers=3)
        spec = self.adding_job("Host", "weights", workers=3)
        spec["servers"]["replication"] = 1
        started = self.run_job(spec)
        started.wait_for_step(10)
        job.wait_until(lambda: started.status().get("shards_moving") == 0, job.START_SECONDS, "all replicas are there")
        received = Received(started, 2)
        received.gradients_a_step(1.3)

        started.kill_and_await_next("server", 1)
        started.await_joined("server", 1)
        received.gradients_a_step(1.3)
        report = self.assert_ends_well(started, restarts=1)

        self.assertEqual(report["state_losses"], [])
        self.assertTrue(self.weights("weights") == expected)

    def test_workers_of_a_group_come_and_go(self) -> None:
        started = self.counting_job(workers=2)
        received = Received(started, 2, gradient_bytes=4 * SAMPLES)
        started.wait_for_step(3)

        for workers in (4, 3):
            scaled = started.scale(None, "--wait", workers=workers)
            self.assertEqual(scaled.returncode, 0, scaled.stderr)
            received.gradients_a_step(1.3)
        report = self.assert_ends_well(started)

        self.assertEqual(report["workers"], 3)
        final = report["final"]
        self.assertEqual((final["least"], final["most"], final["total"]), (EPOCHS, EPOCHS, SAMPLES * EPOCHS))

    def test_a_value_that_is_not_finite_names_its_worker(self) -> None:
        for step in (0, 20):
            with self.subTest(step=step):
                spec = self.spec("--steps", 100, "--nan-at-step", step, "--nan-worker", 1, workers=3,
                                 sync={"localReduce": "Host"}, restart={"backoffLimit": 0})
                started = self.run_job(spec, name=f"{self.job_name}-{step}")

                code = started.finish()

                self.assertEqual(code, 1, started.launcher.output)
                failure = started.report()["failure"]
                self.assertRegex(failure, r"\bworker-1\b")
                self.assertRegex(failure, rf"\bstep {step}\b")
                self.assertNotRegex(failure, r"\bworker-[02]\b")


if __name__ == "__main__":
    unittest.main()
