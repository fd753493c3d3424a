# SPDX-License-Identifier: Apache-2.0
"""Members that die, stop or send what is no number: the job goes on or ends, and says why.

Bounds on time are those of the promise: ten seconds after a server died, a minute after one stopped.
"""
import contextlib
import os
import re
import signal
import unittest

import job

NO_RESTARTS = {"backoffLimit": 0}
QUICK_RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}
IGNORES_SUMS = [{"name": "PROBE_IGNORES_SUMS", "value": "1"}]
NONFINITE = "pushpull_nonfinite_gradients_total"


def failure_line(output: str) -> str:
    """The line that says why the job failed."""
    lines = [line for line in output.splitlines() if re.search(r"pushpull: job \S+ failed: ", line)]
    assert len(lines) == 1, output
    return lines[0]


class ServerTest(job.JobTestCase):

    def assert_names_server_tensor_and_step(self, line: str) -> None:
        self.assertRegex(line, r"\bserver-1\b")
        self.assertRegex(line, r"\bt[0-2]\b")
        self.assertRegex(line, r"\bstep \d+")

    def test_killed_server_ends_job_within_ten_seconds(self) -> None:
        started = self.run_job(self.long_spec(restart=NO_RESTARTS))
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGKILL)
        code = started.launcher.wait(10)

        self.assertEqual(code, 1, started.launcher.output)
        self.assert_names_server_tensor_and_step(failure_line(started.launcher.output))
        self.assertEqual(started.report()["phase"], "Failed")
        self.wait_until_gone(5)

    def test_stopped_server_ends_job_within_a_minute(self) -> None:
        started = self.run_job(self.long_spec(restart={**NO_RESTARTS, "peerTimeoutSeconds": 3}))
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGSTOP)
        code = started.launcher.wait(60)

        self.assertEqual(code, 1, started.launcher.output)
        self.assert_names_server_tensor_and_step(failure_line(started.launcher.output))
        self.wait_until_gone(5)

    def test_killed_coordinator_ends_job(self) -> None:
        started = self.run_job(self.long_spec(restart=NO_RESTARTS))
        started.wait_for_step(5)

        started.signal_member("coordinator", 0, signal.SIGKILL)
        code = started.launcher.wait(30)

        self.assertEqual(code, 1, started.launcher.output)
        self.assertIn("coordinator", failure_line(started.launcher.output))
        self.wait_until_gone(5)


class StallTest(job.JobTestCase):
    """A worker that sends heartbeats but no gradients, for as long as the test wants."""

    def stalling_job(self, **sync: object) -> job.LocalJob:
        return self.run_job(self.spec(
            "--steps", 2000, "--step-milliseconds", 20, "--stall-at-step", 20, "--stall-worker", 1,
            "--stall-until", self.folder / "stall-is-over", sync={"stallSeconds": 3, **sync},
            env=IGNORES_SUMS, restart=QUICK_RESTARTS))

    def test_stalled_step_is_named_while_it_lasts(self) -> None:
        started = self.stalling_job()

        started.launcher.wait_for_line(
            r"coordinator step 20 waits for worker-1: no gradient of tensor \"t\d\" for \d")
        status = started.status()
        job.wait_until(lambda: started.metrics("coordinator")["pushpull_stalled"] == 1, 10, "gauge")
        missing = {name: value for name, value in started.metrics("coordinator").items() if "stall_missing" in name}
        (self.folder / "stall-is-over").touch()
        started.launcher.wait_for_line("coordinator step 20 goes on")
        code = started.finish()

        self.assertIn("step 20 waits for worker-1", status["stalled"])
        self.assertRegex(status["stalled"], r"; worker-1: computing for \d+\.\d s, step 20, last pushed tensor \"t\d\"")
        self.assertRegex(status["stalled"], r"; worker-0 waits$")
        self.assertEqual(missing, {'pushpull_stall_missing{worker="0"}': 0, 'pushpull_stall_missing{worker="1"}': 1})
        self.assertRegex(status["workers"][0]["activity"], r"^waiting for \d+\.\d s, step 20, .*no answer from server-")
        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.launcher.output.count("waits for worker-1"), 1)

    def test_stalled_worker_is_replaced_if_so_configured(self) -> None:
        started = self.stalling_job(onStall="DropWorker")

        started.launcher.wait_for_line(r"worker-1 .*; restart, 1 of 3")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertIn("worker-1 is lost: step 20 waits for worker-1", started.launcher.output)

    def test_stall_fails_the_job_where_the_manifest_says_so(self) -> None:
        started = self.stalling_job(onStall="Fail")

        code = started.launcher.wait(40)

        self.assertEqual(code, 1, started.launcher.output)
        self.assertIn("step 20 waits for worker-1", failure_line(started.launcher.output))


class ReplicatedServerTest(job.JobTestCase):

    def replicated_spec(self, *flags: object, **restart: int) -> dict[str, object]:
        spec = self.spec("--steps", 600, "--step-milliseconds", 50, *flags, servers=3,
                         restart={**QUICK_RESTARTS, **restart})
        spec["servers"]["replication"] = 1
        return spec

    def test_killed_server_is_restarted_and_nothing_is_lost(self) -> None:
        started = self.run_job(self.replicated_spec())
        started.wait_for_step(5)

        started.kill_and_await_next("server", 1)
        started.await_joined("server", 1)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["steps"], report["restarts"], report["servers"]), (600, 1, 3))
        self.assertGreater(report["bytes"]["replicated"], 0)

    def test_stopped_server_is_replaced(self) -> None:
        started = self.run_job(self.replicated_spec(peerTimeoutSeconds=10))
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGSTOP)
        started.launcher.wait_for_line(r"server-1 .*; restart, 1 of 3")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual((started.report()["steps"], started.report()["restarts"]), (600, 1))

    def test_killed_server_beyond_backoff_limit_ends_job(self) -> None:
        started = self.run_job(self.replicated_spec(backoffLimit=0))
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGKILL)
        code = started.launcher.wait(20)

        self.assertEqual(code, 1, started.launcher.output)
        self.assertRegex(failure_line(started.launcher.output), r"\bserver-1\b.*\bbackoffLimit\b")
        self.wait_until_gone(5)

    def test_two_killed_servers_end_job_that_needs_one_of_them(self) -> None:
        spec = self.replicated_spec("--values", 3_000_000, backoffLimit=0)
        started = self.run_job(spec)
        started.wait_for_step(2)
        second = started.endpoint("server", 1)["pid"]  # unknown once the job has ended

        started.signal_member("server", 0, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(second, signal.SIGKILL)
        code = started.launcher.wait(20)

        self.assertEqual(code, 1, started.launcher.output)
        self.assertRegex(failure_line(started.launcher.output), r"\bshards? |server-[01]")


class WorkerTest(job.JobTestCase):

    def test_killed_worker_is_restarted_while_others_go_on(self) -> None:
        started = self.run_job(self.spec("--steps", 500, "--step-milliseconds", 60, workers=3,
                                         restart=QUICK_RESTARTS, env=IGNORES_SUMS))
        started.wait_for_step(5)

        started.kill_and_await_next("worker", 1)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["restarts"], 1)
        self.assertEqual(report["steps"], 500)
        self.assertEqual(report["contributors"], {"min": 2, "max": 3})

    def test_stopped_worker_is_replaced(self) -> None:
        started = self.run_job(self.spec("--steps", 600, "--step-milliseconds", 50, workers=2,
                                         restart={**QUICK_RESTARTS, "peerTimeoutSeconds": 10},
                                         env=IGNORES_SUMS))
        started.wait_for_step(5)

        started.signal_member("worker", 1, signal.SIGSTOP)
        started.launcher.wait_for_line(r"worker-1 .*; restart, 1 of 3")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["restarts"], 1)

    def test_killed_worker_without_restarts_ends_job(self) -> None:
        started = self.run_job(self.long_spec(restart=NO_RESTARTS))
        started.wait_for_step(5)

        started.signal_member("worker", 1, signal.SIGKILL)
        code = started.launcher.wait(20)

        self.assertEqual(code, 1, started.launcher.output)
        self.assertRegex(failure_line(started.launcher.output), r"\bworker-1\b.*\bsignal 9\b")
        self.wait_until_gone(5)


class NonFiniteTest(job.JobTestCase):

    def run_with_nan(self, policy: str, *flags: object) -> job.LocalJob:
        return self.run_job(self.spec("--nan-at-step", 7, "--nan-worker", 1, *flags,
                                      sync={"nonFinite": policy}, env=IGNORES_SUMS,
                                      restart=NO_RESTARTS))

    def test_nan_ends_job_that_wants_to_fail(self) -> None:
        started = self.run_with_nan("Fail", "--steps", 100)

        code = started.launcher.wait(30)

        self.assertEqual(code, 1, started.launcher.output)
        line = failure_line(started.launcher.output)
        self.assertRegex(line, r"\bt[0-2]\b")
        self.assertRegex(line, r"\bworker-1\b")
        self.assertRegex(line, r"\bstep 7\b")
        self.wait_until_gone(5)

    def test_nan_is_counted_and_named_when_job_goes_on(self) -> None:
        for policy in ("Skip", "Drop"):
            with self.subTest(policy=policy):
                started = self.run_with_nan(policy, "--steps", 300, "--step-milliseconds", 100)
                started.wait_for_step(20)

                counted = sum(started.metrics("server", index)[NONFINITE] for index in range(2))
                code = started.finish()

                self.assertEqual(code, 0, started.launcher.output)
                self.assertEqual(counted, 3)
                self.assertEqual(started.report()["steps"], 300)
                for tensor in range(3):
                    named = [line for line in started.launcher.output.splitlines()
                             if re.search(rf"\bt{tensor}\b", line) and "worker-1" in line
                             and re.search(r"\bstep[ =]7\b", line)]
                    self.assertTrue(named, started.launcher.output)


if __name__ == "__main__":
    unittest.main()
