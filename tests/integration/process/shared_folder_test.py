# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes whose spec.checkpoint names one folder: none of them begins from another's checkpoint, removes
one or rebuilds its shards from one, unless its manifest says so by path."""
import json
import pathlib
import shutil
import signal
import unittest
from typing import Any

import job

ALICE = "alice"
BOB = "bob"
RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}


class SharedFolderTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.dir = self.folder / "checkpoints"

    def saving(self, steps: int, *probe_flags: Any, **checkpoint: Any) -> dict[str, Any]:
        """A job that saves to the folder of both."""
        return self.spec("--steps", steps, *probe_flags, checkpoint={"uri": f"file://{self.dir}", **checkpoint})

    def ended(self, name: str, spec: dict[str, Any]) -> job.LocalJob:
        """Run to its end at once."""
        started = self.run_job(spec, name=name)
        self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)
        return started

    def steps_of(self, name: str) -> list[int]:
        """Of the job's complete checkpoints, wherever they are below the folder; newest first."""
        listed = job.run_command("checkpoint", "list", self.dir, "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return [entry["step"] for entry in json.loads(listed.stdout)["checkpoints"] if entry.get("job") == name]

    def own_folder(self, name: str) -> pathlib.Path:
        return self.dir / "default" / name

    def test_latest_is_the_jobs_own_checkpoint(self) -> None:
        self.ended(ALICE, self.saving(5))

        other = self.ended(BOB, self.saving(3))
        again = self.ended(ALICE, self.saving(8))

        self.assertRegex(other.launcher.output, r"starts from the beginning .*default/bob")
        self.assertEqual(other.report()["steps"], 3)
        self.assertIsNone(other.report()["checkpoint"]["restored_step"])
        self.assertEqual(again.report()["checkpoint"]["restored_step"], 5)

    def test_keep_counts_and_removes_the_jobs_own_alone(self) -> None:
        self.ended(ALICE, self.saving(5))
        self.ended(BOB, self.saving(3, keep=1))

        self.ended(BOB, self.saving(4, keep=1))

        self.assertEqual(self.steps_of(ALICE), [5])
        self.assertEqual(self.steps_of(BOB), [4])

    def test_lost_optimizer_state_is_not_taken_from_another(self) -> None:
        adam = ("--optimizer", "adam", "--values", 20_000)
        losing = self.saving(60, *adam, "--step-milliseconds", 400)
        started = self.run_job({**losing, "restart": RESTARTS, "sync": {"deterministic": True}}, name=BOB)
        started.wait_for_step(5)
        saved = job.run_command("checkpoint", "now", "--wait", "--workdir", started.workdir)
        self.assertEqual(saved.returncode, 0, saved.stderr)
        step = started.status()["checkpoint"]["step"]
        # Not paced, and saved last.
        self.ended(ALICE, self.saving(40, *adam))

        started.signal_member("server", 1, signal.SIGKILL)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        loss, = started.report()["state_losses"]
        self.assertEqual((loss["has_optimizer_state"], loss["optimizer_state_step"]), (True, step))

    def test_the_path_of_anothers_checkpoint_is_followed(self) -> None:
        self.ended(ALICE, self.saving(5))
        path = self.own_folder(ALICE) / "step-000000000005"

        other = self.ended(BOB, self.saving(8, restoreFrom=str(path)))

        self.assertEqual(other.report()["checkpoint"]["restored_step"], 5)
        other.launcher.wait_for_line("starts from the checkpoint of job default/alice, step 5")
        self.assertEqual(self.steps_of(ALICE), [5])
        self.assertEqual(self.steps_of(BOB), [8])

    def test_a_warm_start_takes_values_alone(self) -> None:
        """With the values of another job's tensors, a job with another optimizer begins at step 0, on other servers or none."""
        trained, begun, gone_on = (self.folder / name for name in ("trained", "begun", "gone_on"))
        self.ended(ALICE, self.saving(9, "--optimizer", "adam", "--values", 200_000, "--weights", trained))
        warm = {"restoreFrom": f"default/{ALICE}/step-000000000009", "restore": "Values"}
        for mode, servers in (("Sync", 3), ("Async", 1), ("AllReduce", 0)):
            with self.subTest(mode=mode):
                def begin(steps: int, weights: pathlib.Path, mode: str = mode, servers: int = servers) -> job.LocalJob:
                    spec = self.saving(steps, "--optimizer", "sgd", "--values", 200_000, "--weights", weights, **warm)
                    return self.ended(BOB, {**spec, "servers": {"replicas": servers}, "sync": {"mode": mode}})

                begin(0, begun)
                other = begin(4, gone_on)

                self.assertEqual(begun.read_bytes(), trained.read_bytes())
                self.assertNotEqual(gone_on.read_bytes(), trained.read_bytes())
                self.assertEqual(other.report()["steps"], 4)
                self.assertIsNone(other.report()["checkpoint"]["restored_step"])
                other.launcher.wait_for_line("beginning with the values of step 9 from .*alice/step-000000000009")
                self.assertIn(4, self.steps_of(BOB))

    def test_a_name_does_not_reach_anothers_checkpoint(self) -> None:
        self.ended(ALICE, self.saving(5))
        shutil.copytree(self.own_folder(ALICE), self.own_folder(BOB))

        refused = self.run_job(self.saving(8, restoreFrom="step-000000000005"), name=BOB)

        self.assertEqual(refused.launcher.wait(60), 2, refused.launcher.output)
        self.assertRegex(refused.launcher.output,
                         "bob/step-000000000005: is a checkpoint of job default/alice, not of default/bob")

    def test_the_folder_of_the_version_before_is_read(self) -> None:
        self.ended(ALICE, self.saving(5))
        old = self.dir / "step-000000000005"
        (self.own_folder(ALICE) / old.name).rename(old)

        again = self.ended(ALICE, self.saving(8, keep=1))
        other = self.ended(BOB, self.saving(3))

        self.assertEqual(again.report()["checkpoint"]["restored_step"], 5)
        again.launcher.wait_for_line(f"checkpoint of the version before, {old};")
        self.assertTrue((old / "MANIFEST").exists())
        self.assertEqual(self.steps_of(ALICE), [5, 8])
        self.assertIsNone(other.report()["checkpoint"]["restored_step"])


if __name__ == "__main__":
    unittest.main()
