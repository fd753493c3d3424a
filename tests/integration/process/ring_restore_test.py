# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of jobs in mode AllReduce, which their workers write and read."""
import json
import pathlib
import signal
import unittest
from typing import Any

import job

STEPS = 120


class RingRestoreTest(job.JobTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.dir = self.folder / "checkpoints"
        self.weights = self.folder / "weights"

    def checkpointed(self, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**spec, "checkpoint": {"uri": f"file://{self.dir}", **more},
                "restart": {"backoffLimit": 3, "initialDelaySeconds": 0}}

    def adam(self, mode: str, milliseconds: int = 2, workers: int = 2) -> dict[str, Any]:
        """A deterministic job that writes its last weights."""
        servers = 0 if mode == "AllReduce" else 2
        return self.spec("--steps", STEPS, "--optimizer", "adam", "--values", 150_000, "--weights", self.weights,
                         "--step-milliseconds", milliseconds, servers=servers, workers=workers,
                         sync={"mode": mode, "deterministic": True})

    def endless(self, **more: Any) -> dict[str, Any]:
        return self.checkpointed(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 5, "--optimizer", "sgd",
                                           servers=0, sync={"mode": "AllReduce"}), **more)

    def counted(self, mode: str, workers: int) -> dict[str, Any]:
        """A job that counts how often each sample is used."""
        return self.checkpointed(self.spec("--samples", 3000, "--epochs", 2, "--batch", 5, "--step-milliseconds", 10,
                                           servers=0 if mode == "AllReduce" else 2, workers=workers, sync={"mode": mode}))

    def saved_steps(self) -> list[int]:
        listed = job.run_command("checkpoint", "list", self.dir, "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return [one["step"] for one in json.loads(listed.stdout)["checkpoints"]]

    def test_stopped_job_goes_on_bitwise_in_either_mode(self) -> None:
        self.assertEqual(self.run_job(self.adam("AllReduce", 0), name=f"{self.job_name}-whole").finish(), 0)
        whole = self.weights.read_bytes()
        for before, after in (("AllReduce", "AllReduce"), ("AllReduce", "Sync"), ("Sync", "AllReduce")):
            with self.subTest(before=before, after=after):
                name = f"{self.job_name}-{before}-{after}".lower()
                first = self.run_job(self.checkpointed(self.adam(before, 100)), name=name)
                first.wait_for_step(20)
                first.launcher.process.send_signal(signal.SIGINT)
                self.assertEqual(first.launcher.wait(60), 130, first.launcher.output)
                first.launcher.wait_for_line(r"checkpoint of step \d+ saved")
                self.weights.unlink(missing_ok=True)

                second = self.run_job(self.checkpointed(self.adam(after)), name=name)
                code = second.finish()

                self.assertEqual(code, 0, second.launcher.output)
                self.assertGreaterEqual(second.report()["checkpoint"]["restored_step"], 20)
                self.assertEqual(self.weights.read_bytes(), whole)

    def test_the_last_step_is_saved_before_workers_leave(self) -> None:
        ended = self.run_job(self.checkpointed(self.adam("AllReduce", 0, workers=3)))

        code = ended.finish()

        self.assertEqual(code, 0, ended.launcher.output)
        self.assertEqual(self.saved_steps(), [STEPS])
        verified = job.run_command("checkpoint", "verify", self.dir)
        self.assertEqual(verified.returncode, 0, verified.stderr)

    def test_next_coordinator_saves_the_last_step(self) -> None:
        spec = self.checkpointed(self.adam("AllReduce", 15))
        spec["restart"]["initialDelaySeconds"] = 2  # the workers end their work meanwhile
        started = self.run_job(spec)
        started.wait_for_step(3)

        started.signal_member("coordinator", 0, signal.SIGKILL)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(self.saved_steps(), [STEPS])

    def test_when_all_workers_die_the_checkpoint_counts(self) -> None:
        started = self.run_job(self.endless(everySeconds=1))
        job.wait_until(lambda: started.status().get("checkpoint", {}).get("saved", 0) > 0, job.START_SECONDS, "a checkpoint")

        for worker in (0, 1):
            started.signal_member("worker", worker, signal.SIGKILL)
        again = started.launcher.wait_for_line(r"training begins again with the checkpoint of step (\d+)")

        saved = int(again.group(1))
        self.assertGreater(saved, 0)
        started.launcher.wait_for_line(f"values in place start_step={saved}")
        started.wait_for_step(saved + 5)

    def test_samples_of_a_restored_job_count_once(self) -> None:
        for mode in ("AllReduce", "Sync"):
            with self.subTest(restored_in=mode):
                name = f"{self.job_name}-{mode}".lower()
                first = self.run_job(self.counted("AllReduce", workers=3), name=name)
                first.wait_for_step(30)
                first.launcher.process.send_signal(signal.SIGINT)
                self.assertEqual(first.launcher.wait(60), 130, first.launcher.output)

                second = self.run_job(self.counted(mode, workers=2), name=name)
                code = second.finish()

                self.assertEqual(code, 0, second.launcher.output)
                final = second.report()["final"]
                self.assertEqual((final["least"], final["most"], final["total"]), (2, 2, 6000))

    def test_stopped_job_that_is_stuck_saves_what_stands(self) -> None:
        spec = self.spec("--steps", job.LONG_JOB_STEPS, "--optimizer", "sgd", "--stall-at-step", 20, "--stall-worker", 1,
                         "--stall-until", self.folder / "never", servers=0, sync={"mode": "AllReduce"})
        stalled = self.run_job(self.checkpointed(spec))
        job.wait_until(lambda: stalled.status().get("stall"), job.START_SECONDS, "a stall")

        stalled.launcher.process.send_signal(signal.SIGTERM)

        self.assertEqual(stalled.launcher.wait(45), 143, stalled.launcher.output)
        self.assertEqual(self.saved_steps(), [21])

    def test_requested_checkpoint_is_complete_on_return(self) -> None:
        started = self.run_job(self.endless())
        started.wait_for_step(5)

        saved = job.run_command("checkpoint", "now", "--workdir", started.workdir, "--wait", "--json")

        self.assertEqual(saved.returncode, 0, saved.stderr)
        self.assertEqual(self.saved_steps(), [json.loads(saved.stdout)["step"]])

    def test_unwritable_folder_fails_the_save_not_the_job(self) -> None:
        (self.folder / "file").write_text("in the way")
        self.dir = self.folder / "file" / "checkpoints"
        started = self.run_job(self.endless())
        started.wait_for_step(5)

        saved = job.run_command("checkpoint", "now", "--workdir", started.workdir, "--wait")

        self.assertEqual(saved.returncode, 1, saved.stdout)
        self.assertRegex(saved.stderr, rf"worker-\d+: .*{self.folder}/file")
        started.wait_for_step(started.status()["step"] + 10)

    def test_damage_ends_the_job_with_file_and_offset(self) -> None:
        spec = self.checkpointed(self.adam("AllReduce", 0))
        self.assertEqual(self.run_job(spec).finish(), 0, self.output())
        damaged: pathlib.Path = next(self.dir.rglob("*.chunks"))
        data = bytearray(damaged.read_bytes())
        data[400] ^= 1
        damaged.write_bytes(data)

        again = self.run_job(spec)

        self.assertEqual(again.finish(), 3)
        self.assertRegex(again.launcher.output, rf"cannot restore the checkpoint: {damaged} at byte \d+")


if __name__ == "__main__":
    unittest.main()
