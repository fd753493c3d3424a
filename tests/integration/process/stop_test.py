# SPDX-License-Identifier: Apache-2.0
"""However a job is ended from outside, nothing of it is left: no process, no shared memory."""
import os
import pathlib
import shlex
import signal
import unittest

import job


class StopTest(job.JobTestCase):

    def tearDown(self) -> None:
        for segment in self.shared_memory():
            segment.unlink(missing_ok=True)

    def shared_memory(self) -> list[pathlib.Path]:
        return list(pathlib.Path("/dev/shm").glob(f"pushpull-{self.job_name}-*"))

    def test_stop_signals_end_job_in_order(self) -> None:
        for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(signal=number.name):
                started = self.run_job(self.long_spec())
                started.wait_for_step(3)

                os.kill(started.launcher.pid, number)
                code = started.launcher.wait(15)

                self.assertEqual(code, expected, started.launcher.output)
                self.wait_until_gone(5)
                self.assertEqual(self.shared_memory(), [])
                self.assertNotIn("killed by signal", started.launcher.output)
                self.assertNotIn("the job fails", started.launcher.output)
                self.assertIn(": stopped after ", started.launcher.output)

    def test_signal_while_starting_ends_job(self) -> None:
        started = self.run_job(self.long_spec())
        started.launcher.wait_for_line("coordinator listening")

        os.kill(started.launcher.pid, signal.SIGINT)
        code = started.launcher.wait(15)

        self.assertEqual(code, 130, started.launcher.output)
        self.wait_until_gone(5)

    def test_killed_launcher_leaves_nothing(self) -> None:
        spec = self.long_spec()
        # The worker is a shell's child: PR_SET_PDEATHSIG does not reach it.
        spec["command"] = ["sh", "-c", ': > "/dev/shm/${PUSHPULL_SHM_PREFIX}left"; '
                           + shlex.join(spec["command"]) + " & wait"]
        started = self.run_job(spec)
        started.wait_for_step(3)
        self.assertEqual(len(self.shared_memory()), 1)

        os.kill(started.launcher.pid, signal.SIGKILL)

        self.wait_until_gone(5)
        job.wait_until(lambda: not self.shared_memory(), 5, "no shared memory is left")

    def test_workdir_is_free_after_launcher_was_killed(self) -> None:
        first = self.run_job(self.long_spec())
        first.wait_for_step(3)
        os.kill(first.launcher.pid, signal.SIGKILL)
        self.wait_until_gone(5)

        second = self.run_job(self.spec("--steps", 5))

        self.assertEqual(second.launcher.wait(30), 0, second.launcher.output)


if __name__ == "__main__":
    unittest.main()
