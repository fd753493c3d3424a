# SPDX-License-Identifier: Apache-2.0
"""Programs that cannot run, workers that cannot join, and how a job ends without them."""
import signal
import unittest
from typing import Any

import job

STEPS = 10_000
CANNOT_JOIN = "cannot join; the job goes on without it: begins at step 0 only"
# Of a worker with an index above 0.
SAYS_THAT_IT_CANNOT_JOIN = ('[ "$PUSHPULL_INDEX" = 0 ] && exec "$@"; '
                            'printf "pushpull-final: begins at step 0 only" >"$PUSHPULL_TERMINATION_LOG"; exit 1')


class ProgramEndTest(job.JobTestCase):

    def job_of(self, script: str, **more: Any) -> job.LocalJob:
        """Workers run the script; its "$@" is the probe worker of a job that the test ends."""
        spec = self.spec("--steps", STEPS, "--step-milliseconds", 30, **more)
        spec["command"] = ["sh", "-c", script, "sh", *spec["command"]]
        return self.run_job(spec)

    def await_left_out(self, started: job.LocalJob) -> None:
        """Until the coordinator knows that worker 1 takes no part."""
        job.wait_until(lambda: [worker["left_out"] for worker in started.status().get("workers", [])] == ["", CANNOT_JOIN],
                       job.START_SECONDS, "the coordinator knows")

    def test_program_that_cannot_run_has_two_tries(self) -> None:
        started = self.job_of("exec /usr/bin/python3 -c 'trian()'", restart={"initialDelaySeconds": 0})

        code = started.launcher.wait(60)

        self.assertEqual(code, 1, started.launcher.output)
        failure = started.report()["failure"]
        self.assertIn("its program cannot run: NameError: name 'trian' is not defined", failure)
        self.assertIn(failure, started.launcher.output)
        self.assertLessEqual(started.report()["restarts"], 2)

    def test_worker_that_ends_alike_after_a_step_is_lost(self) -> None:
        started = self.job_of('"$@"; echo "no luck"; exit 1', workers=1,
                              restart={"initialDelaySeconds": 0, "backoffLimit": 1})
        started.wait_for_step(3)

        started.kill_and_await_next("worker", 0)
        started.launcher.wait_for_line("worker-0 exited with code 1; restart, 1 of 1, in 0 s: no luck")
        started.await_joined("worker", 0)
        started.signal_member("worker", 0, signal.SIGKILL)

        self.assertEqual(started.launcher.wait(60), 1, started.launcher.output)
        self.assertRegex(started.report()["failure"], r"spec.restart.backoffLimit \(1\) is reached .*: no luck")

    def test_job_succeeds_without_a_worker_that_cannot_join(self) -> None:
        started = self.job_of(SAYS_THAT_IT_CANNOT_JOIN, workers=1, restart={"initialDelaySeconds": 0, "roleLimits": {"workers": 0}},
                              checkpoint={"claim": "c", "everySeconds": 86400}, env=[{"name": "PROBE_IGNORES_SUMS", "value": "1"}])
        started.wait_for_step(3)

        self.assertEqual(started.scale(None, workers=2).returncode, 0)
        started.launcher.wait_for_line(f"pushpull: worker-1 {CANNOT_JOIN}")
        self.await_left_out(started)
        shown = job.run_command("status", "--workdir", started.workdir)
        started.kill_and_await_next("coordinator", 0)
        self.await_left_out(started)  # by the next one

        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertIn(f"worker-1 {CANNOT_JOIN}", shown.stdout)
        self.assertEqual(started.launcher.output.count("worker-1 exited with code 1"), 1, started.launcher.output)
        self.assertRegex(started.launcher.output, rf"succeeded after .*(\n.*)*\nworker-1 {CANNOT_JOIN}")
        report = started.report()
        self.assertEqual((report["phase"], report["left_out"]), ("Succeeded", [{"worker": 1, "why": CANNOT_JOIN}]))
        self.assertEqual((report["checkpoint"]["step"], report["checkpoint"]["saved"]), (report["steps"], 1))

    def test_left_out_worker_that_is_desired_anew_is_tried(self) -> None:
        started = self.job_of(SAYS_THAT_IT_CANNOT_JOIN, workers=1, restart={"initialDelaySeconds": 0})
        started.wait_for_step(3)
        self.assertEqual(started.scale(None, workers=2).returncode, 0)
        self.await_left_out(started)

        self.assertEqual(started.scale(None, workers=1).returncode, 0)
        started.launcher.wait_for_line("pushpull: worker-1 is no part of the job; another may join")
        self.assertEqual([worker["left_out"] for worker in started.status()["workers"]], ["", ""])
        self.assertEqual(started.scale(None, workers=2).returncode, 0)

        job.wait_until(lambda: started.launcher.output.count(f"pushpull: worker-1 {CANNOT_JOIN}") == 2,
                       job.START_SECONDS, "worker-1 has had another two tries")


class CleanEndTest(job.JobTestCase):
    ALARMING = ("is lost", "no coordinator", "no copy", "warning", "error")

    def test_clean_end_logs_nothing_alarming(self) -> None:
        for servers, replication in ((2, 0), (3, 1)):
            spec = self.spec("--steps", 30, servers=servers)
            spec["servers"]["replication"] = replication
            started = self.run_job(spec, name=f"r{replication}")

            self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)

            self.assertEqual([word for word in self.ALARMING if word in started.launcher.output], [], started.launcher.output)

    def test_job_that_is_stopped_logs_nothing_alarming(self) -> None:
        spec = self.long_spec(servers=3)
        spec["servers"]["replication"] = 1
        started = self.run_job(spec)
        started.wait_for_step(3)

        started.launcher.process.send_signal(signal.SIGINT)

        self.assertEqual(started.launcher.wait(60), 130, started.launcher.output)
        self.assertEqual([word for word in self.ALARMING[1:3] if word in started.launcher.output], [], started.launcher.output)


if __name__ == "__main__":
    unittest.main()
