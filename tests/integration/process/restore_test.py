# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of running jobs: saved on request, on a signal and at the end; a job that is started
again goes on from the newest, on as many servers as it then has; what cannot be used is refused."""
import json
import pathlib
import signal
import subprocess
import unittest
from typing import Any

import job


class RestoreTest(job.JobTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.dir = self.folder / "checkpoints"

    def checkpointed(self, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**spec, "checkpoint": {"uri": f"file://{self.dir}", **more}}

    def adam(self, steps: int, weights: pathlib.Path, milliseconds: int = 2, servers: int = 2,
             **more: Any) -> dict[str, Any]:
        """A deterministic job that writes its last weights."""
        spec = self.spec("--steps", steps, "--optimizer", "adam", "--values", 20_000, "--weights",
                         weights, "--step-milliseconds", milliseconds, servers=servers,
                         sync={"deterministic": True})
        return self.checkpointed(spec, **more)

    def checkpoint(self, *arguments: Any) -> subprocess.CompletedProcess:
        return job.run_command("checkpoint", *arguments)

    def steps(self) -> list[int]:
        listed = self.checkpoint("list", self.dir, "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return [c["step"] for c in json.loads(listed.stdout)["checkpoints"]]

    def test_stopped_job_resumes_bitwise_on_other_server_counts(self) -> None:
        steps = 120
        whole = self.folder / "whole"
        undisturbed = self.run_job({**self.adam(steps, whole, milliseconds=0), "checkpoint":
                                    {"uri": f"file://{self.folder}/other"}})
        self.assertEqual(undisturbed.launcher.wait(60), 0)
        again = self.folder / "again"

        first = self.run_job(self.adam(steps, again, milliseconds=200))
        first.wait_for_step(20)
        first.launcher.process.send_signal(signal.SIGINT)
        self.assertEqual(first.launcher.wait(60), 130, first.launcher.output)
        first.launcher.wait_for_line(r"checkpoint of step \d+ saved")
        saved = self.steps()
        second = self.run_job(self.adam(steps, again, servers=3))
        self.assertEqual(second.launcher.wait(60), 0, second.launcher.output)

        report = second.report()
        self.assertEqual(report["checkpoint"]["restored_step"], saved[0])
        self.assertGreaterEqual(saved[0], 20)
        self.assertEqual(self.steps()[0], steps)  # the end of the job is saved as well
        self.assertEqual(again.read_bytes(), whole.read_bytes())

    def test_stopped_job_that_is_stuck_saves_what_stands(self) -> None:
        stalled = self.run_job(self.checkpointed(self.spec(
            "--steps", job.LONG_JOB_STEPS, "--optimizer", "sgd", "--stall-at-step", 20, "--stall-worker", 1,
            "--stall-until", self.folder / "never", sync={"stallSeconds": 1})))
        job.wait_until(lambda: stalled.status().get("stall"), job.START_SECONDS, "a stall")

        stalled.launcher.process.send_signal(signal.SIGTERM)

        self.assertEqual(stalled.launcher.wait(45), 143, stalled.launcher.output)
        stalled.launcher.wait_for_line("pushpull: checkpoint of step 21 saved")
        self.assertEqual(self.steps()[0], 21)

    def test_stopped_job_without_a_step_ends_at_once(self) -> None:
        spec = self.checkpointed(self.spec("--steps", job.LONG_JOB_STEPS, "--stall-at-step", 0, "--stall-worker", 0,
                                           "--stall-until", self.folder / "never"))
        started = self.run_job(spec)
        started.wait_for_status("Running")

        started.launcher.process.send_signal(signal.SIGTERM)

        self.assertEqual(started.launcher.wait(30), 143, started.launcher.output)
        started.launcher.wait_for_line("no checkpoint: the job has made no step")

    def test_requested_checkpoint_is_complete_on_return(self) -> None:
        running = self.run_job(self.checkpointed(self.long_spec()))
        running.wait_for_step(5)

        saved = self.checkpoint("now", "--workdir", running.workdir, "--wait", "--json")
        verified = self.checkpoint("verify", self.dir)
        status = running.status()
        metrics = running.metrics("coordinator")

        self.assertEqual(saved.returncode, 0, saved.stderr)
        step = json.loads(saved.stdout)["step"]
        self.assertEqual(self.steps(), [step])
        self.assertEqual(verified.returncode, 0, verified.stderr)
        self.assertEqual(status["checkpoint"]["step"], step)
        self.assertEqual(metrics["pushpull_checkpoint_seconds_count"], 1)
        self.assertEqual(metrics["pushpull_checkpoint_failures_total"], 0)

    def test_a_folder_that_cannot_be_written_is_told_at_once(self) -> None:
        # Nobody may create a folder there, not even root.
        running = self.run_job({**self.long_spec(), "checkpoint": {"uri": "file:///sys/pushpull"}})

        running.launcher.wait_for_line("checkpoints cannot be saved: .*/sys/pushpull")
        running.wait_for_status("Running")

        self.assertIn("/sys/pushpull", running.status()["checkpoint"]["problem"])

    def test_saves_come_by_themselves_and_the_oldest_go(self) -> None:
        running = self.run_job(self.checkpointed(self.long_spec(), everySeconds=1, keep=2))

        job.wait_until(lambda: running.status().get("checkpoint", {}).get("saved", 0) >= 4, 30,
                       "four checkpoints")

        self.assertLessEqual(len(self.steps()), 3)  # of which one may be under way

    def test_a_claim_is_a_folder_of_the_workdir(self) -> None:
        spec = {**self.spec("--steps", 5), "checkpoint": {"claim": "models", "path": "/run"}}

        finished = self.run_job(spec)

        self.assertEqual(finished.launcher.wait(60), 0, finished.launcher.output)
        folder = finished.workdir / "claims/models/run/default" / self.job_name
        finished.launcher.wait_for_line(f"checkpoints: {folder}")
        self.assertTrue((folder / "step-000000000005" / "MANIFEST").exists())

    def test_unwritable_folder_fails_the_save_not_the_job(self) -> None:
        (self.folder / "file").write_text("in the way")
        self.dir = self.folder / "file" / "checkpoints"
        running = self.run_job(self.checkpointed(self.long_spec()))
        running.wait_for_step(5)

        saved = self.checkpoint("now", "--workdir", running.workdir, "--wait")

        self.assertEqual(saved.returncode, 1, saved.stdout)
        self.assertRegex(saved.stderr, rf"server-\d+: .*{self.folder}/file")
        running.wait_for_step(running.status()["step"] + 10)

    def test_without_a_place_to_save_a_request_is_refused(self) -> None:
        running = self.run_job(self.long_spec())
        running.wait_for_step(1)

        saved = self.checkpoint("now", "--workdir", running.workdir)

        self.assertEqual(saved.returncode, 1, saved.stdout)
        self.assertIn("has no spec.checkpoint", saved.stderr)

    def finished(self) -> pathlib.Path:
        """The one checkpoint of a job that has ended."""
        ended = self.run_job(self.checkpointed(self.spec("--steps", 5)))
        self.assertEqual(ended.launcher.wait(60), 0, ended.launcher.output)
        return self.dir / "default" / self.job_name / "step-000000000005"

    def refused(self, spec: dict[str, Any], code: int, text: str) -> None:
        before = sorted((path, path.stat().st_mtime_ns) for path in self.dir.rglob("*"))
        launched = self.run_job(spec)
        self.assertEqual(launched.launcher.wait(60), code, launched.launcher.output)
        self.assertRegex(launched.launcher.output, text)
        self.assertEqual(sorted((path, path.stat().st_mtime_ns) for path in self.dir.rglob("*")),
                         before)

    def test_a_flipped_bit_is_refused_with_file_and_offset(self) -> None:
        data = max(self.finished().glob("*.chunks"), key=lambda path: path.stat().st_size)
        whole = bytearray(data.read_bytes())
        whole[300] ^= 4  # a value of the first chunk
        data.write_bytes(whole)

        self.refused(self.checkpointed(self.spec("--steps", 9)), 3,
                     rf"job .* failed: .*{data.name} at byte \d+: wrong checksum")

    def test_a_checkpoint_of_another_model_is_refused(self) -> None:
        self.finished()

        self.refused(self.checkpointed(self.spec("--steps", 9, "--values", 1001)), 2,
                     r"another model: tensor t0: has shape \[1000\] in the checkpoint, \[1001\]")

    def test_a_named_checkpoint_must_be_there(self) -> None:
        self.finished()

        self.refused(self.checkpointed(self.spec("--steps", 9), restoreFrom="step-000000000004"),
                     3, r"step-000000000004")


if __name__ == "__main__":
    unittest.main()
