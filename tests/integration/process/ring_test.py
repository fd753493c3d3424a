# SPDX-License-Identifier: Apache-2.0
"""Mode AllReduce: workers that sum gradients among themselves, without servers."""
import hashlib
import pathlib
import re
import unittest
from typing import Any

import job

QUICK_RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}


class RingTest(job.JobTestCase):

    def ring_spec(self, *probe_flags: Any, workers: int = 2, **more: Any) -> dict[str, Any]:
        sync = {"mode": "AllReduce", **more.pop("sync", {})}
        return self.spec(*probe_flags, servers=0, workers=workers, sync=sync,
                         restart=QUICK_RESTARTS, **more)

    def long_ring_spec(self) -> dict[str, Any]:
        return self.ring_spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 5, "--optimizer", "sgd")

    def digest(self, spec: dict[str, Any], file: pathlib.Path, name: str) -> str:
        """Of the last weights, which a job at full speed has written."""
        code = self.run_job(spec, name=name).finish()
        self.assertEqual(code, 0, self.output())
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def test_sums_are_those_of_all_workers(self) -> None:
        for workers in (1, 2, 3):
            with self.subTest(workers=workers):
                started = self.run_job(self.ring_spec("--steps", 50, "--optimizer", "sum", workers=workers),
                                       name=f"{self.job_name}-{workers}")

                code = started.finish()

                self.assertEqual(code, 0, started.launcher.output)
                self.assertEqual(started.report()["restarts"], 0)

    def test_no_server_is_started(self) -> None:
        started = self.run_job(self.long_ring_spec())
        started.wait_for_step(3)

        status = started.status()

        self.assertEqual((status["mode"], status["servers"]), ("AllReduce", []))
        self.assertIsNone(started.endpoint("server"))
        self.assertEqual(len(status["workers"]), 2)

    def test_weights_are_the_same_in_every_run_and_with_servers(self) -> None:
        file = self.folder / "weights"
        flags = ("--steps", 60, "--values", 5000, "--optimizer", "adam", "--weights", file)
        sync = {"deterministic": True}

        first = self.digest(self.ring_spec(*flags, sync=sync), file, "first")
        second = self.digest(self.ring_spec(*flags, sync=sync), file, "second")
        served = self.digest(self.spec(*flags, sync=sync), file, "served")

        self.assertEqual(first, second)
        self.assertEqual(first, served)

    def test_workers_choose_one_algorithm_together(self) -> None:
        # A trial of all seven algorithms takes 7 * (4 + 48 + 128) calls at most.
        flags = ("--steps", 1300, "--values", 50_000, "--optimizer", "sum")
        for deterministic in (False, True):
            with self.subTest(deterministic=deterministic):
                started = self.run_job(self.ring_spec(*flags, workers=3, sync={"deterministic": deterministic}),
                                       name=f"{self.job_name}-{deterministic}".lower())

                code = started.finish()

                self.assertEqual(code, 0, started.launcher.output)
                chosen = re.findall(r"(worker-\d) algorithm chosen stage=ring collective=all-reduce bytes=600000 "
                                    r"algorithm=(\S+)", started.launcher.output)
                workers = [] if deterministic else ["worker-0", "worker-1", "worker-2"]
                self.assertEqual(sorted(worker for worker, _ in chosen), workers, started.launcher.output)
                self.assertLessEqual(len({algorithm for _, algorithm in chosen}), 1)

    def test_samples_of_a_killed_worker_count_once(self) -> None:
        started = self.run_job(self.ring_spec("--samples", 3000, "--epochs", 2, "--batch", 5,
                                              "--step-milliseconds", 10, workers=3))
        started.wait_for_step(10)

        started.kill_and_await_next("worker", 1)
        job.wait_until(lambda: len([w for w in started.status()["workers"] if w["alive"]]) == 3,
                       job.START_SECONDS, "three workers")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["restarts"], 1, started.launcher.output)
        final = report["final"]
        self.assertEqual((final["least"], final["most"], final["total"]), (2, 2, 6000))

    def test_killed_worker_costs_one_step_at_most(self) -> None:
        started = self.run_job(self.long_ring_spec())
        started.wait_for_step(10)
        before = started.metrics("worker", 0)["pushpull_step"]

        started.kill_and_await_next("worker", 1)
        started.wait_for_step(int(before) + 20)

        # Other changes of a ring, as the next worker's join, interrupt a call that has not failed.
        self.assertLessEqual(started.launcher.output.count("the step is repeated"), 1)
        self.assertNotIn("training begins again", started.launcher.output)
        self.assertIsNone(started.launcher.process.poll(), started.launcher.output)

    def test_workers_come_and_go(self) -> None:
        started = self.run_job(self.long_ring_spec())
        started.wait_for_step(3)

        for workers in (3, 1, 2):
            with self.subTest(workers=workers):
                scaled = started.scale(workers=workers)
                self.assertEqual(scaled.returncode, 0, scaled.stderr)
                job.wait_until(lambda: len([w for w in started.status()["workers"] if w["member"]]) == workers,
                               job.START_SECONDS, f"{workers} members")
                started.wait_for_step(started.status()["step"] + 5)

        self.assertEqual(started.scale(servers=2).returncode, 2)

    def test_batch_changes_between_two_steps(self) -> None:
        started = self.run_job(self.ring_spec("--samples", 20000, "--epochs", 1, "--batch", 5, "--step-milliseconds", 10))
        started.wait_for_step(3)

        changed = started.set("globalBatch=64", "--wait")
        code = started.finish()

        self.assertEqual(changed.returncode, 0, changed.stderr)
        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["final"]["total"], 20000)

    def test_steps_go_on_while_the_coordinator_is_replaced(self) -> None:
        started = self.run_job(self.long_ring_spec())
        started.wait_for_step(3)

        started.kill_and_await_next("coordinator", 0)
        started.wait_for_status("Running", term=2)
        started.wait_for_step(started.status()["step"] + 10)

        self.assertIsNone(started.launcher.process.poll(), started.launcher.output)

    def test_value_that_is_not_finite_fails_the_job(self) -> None:
        started = self.run_job(self.ring_spec("--steps", 50, "--nan-at-step", 5, "--nan-worker", 1))

        code = started.finish()

        self.assertEqual(code, 1, started.launcher.output)
        self.assertIn("not finite", started.launcher.output)
        self.assertIn("step 5", started.launcher.output)

    def test_what_needs_servers_is_refused(self) -> None:
        for field, value in (("spec.servers.replicas", "2"), ("spec.sync.backupWorkers", "1"),
                             ("spec.sync.gated", "true")):
            with self.subTest(field=field):
                manifest = self.write_manifest(self.ring_spec("--steps", 1))

                refused = job.run_command("validate", manifest, "--set", f"{field}={value}")

                self.assertEqual(refused.returncode, 2)
                self.assertIn(field.removesuffix(".uri"), refused.stderr + refused.stdout)
                self.assertIn("AllReduce", refused.stderr + refused.stdout)


if __name__ == "__main__":
    unittest.main()
