# SPDX-License-Identifier: Apache-2.0
"""Servers that are lost without a copy of what they held, in real processes: the job goes on with what
the workers have, ends as it would have, and says what was lost."""
import pathlib
import signal
import unittest
from typing import Any

import job

RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}
STEPS = 60


class LossTest(job.JobTestCase):

    def trained(self, weights: pathlib.Path, optimizer: str = "sgd", milliseconds: int = 400,
                values: int = 20_000, **more: Any) -> dict[str, Any]:
        """A deterministic job that writes its last weights."""
        return self.spec("--steps", STEPS, "--optimizer", optimizer, "--values", values, "--weights",
                         weights, "--step-milliseconds", milliseconds,
                         sync={"deterministic": True}, restart=RESTARTS, **more)

    def only_loss(self, started: job.LocalJob) -> dict[str, Any]:
        report = started.report()
        self.assertEqual((report["phase"], report["steps"]), ("Succeeded", STEPS))
        self.assertEqual(len(report["state_losses"]), 1, report)
        loss = report["state_losses"][0]
        self.assertTrue(loss["repaired"])
        self.assertEqual(loss["servers"], [1])
        self.assertIn(loss["text"], started.launcher.output)
        return loss

    def test_killed_server_costs_no_bit_of_the_weights(self) -> None:
        whole = self.folder / "whole"
        undisturbed = self.run_job(self.trained(whole, milliseconds=0))
        self.assertEqual(undisturbed.launcher.wait(60), 0, undisturbed.launcher.output)
        self.assertEqual(undisturbed.report()["state_losses"], [])
        weights = self.folder / "weights"
        started = self.run_job(self.trained(weights))
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGKILL)
        repaired = job.wait_until(
            lambda: [text for text in started.status().get("state_losses", []) if "workers" in text
                     and "without them" in text], 30, "the loss is said in the status")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertIn("lost with server-1", repaired[0])
        loss = self.only_loss(started)
        self.assertEqual(started.report()["restarts"], 1)
        self.assertEqual(loss["chunks_from_workers"], loss["chunks"])
        self.assertGreaterEqual(loss["lowest_step"], 5)
        self.assertFalse(loss["has_optimizer_state"])
        self.assertEqual(weights.read_bytes(), whole.read_bytes())

    def test_server_that_was_stopped_comes_back_with_everything(self) -> None:
        whole = self.folder / "whole"
        undisturbed = self.run_job(self.trained(whole, "adam", milliseconds=0))
        self.assertEqual(undisturbed.launcher.wait(60), 0, undisturbed.launcher.output)
        weights = self.folder / "weights"
        spec = self.trained(weights, "adam")
        spec["restart"] = {**RESTARTS, "peerTimeoutSeconds": 10}
        started = self.run_job(spec)
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGSTOP)
        # Longer than the launcher leaves a server that nobody waits for.
        started.launcher.wait_for_line("waiting up to 30 s")
        with self.assertRaises(AssertionError):
            started.launcher.wait(5 / job.PATIENCE)
        started.signal_member("server", 1, signal.SIGCONT)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        loss = self.only_loss(started)
        self.assertEqual(started.report()["restarts"], 0)
        self.assertEqual(loss["returned_shards"], len(loss["shards"]))
        self.assertEqual(weights.read_bytes(), whole.read_bytes())

    def test_optimizer_state_comes_from_the_last_checkpoint(self) -> None:
        spec = self.trained(self.folder / "weights", "adam",
                            checkpoint={"uri": f"file://{self.folder}/checkpoints"})
        started = self.run_job(spec)
        started.wait_for_step(5)
        saved = job.run_command("checkpoint", "now", "--wait", "--workdir", started.workdir)
        self.assertEqual(saved.returncode, 0, saved.stderr)
        step = started.status()["checkpoint"]["step"]

        started.signal_member("server", 1, signal.SIGKILL)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        loss = self.only_loss(started)
        self.assertTrue(loss["has_optimizer_state"])
        self.assertEqual(loss["optimizer_state_step"], step)
        self.assertGreaterEqual(loss["lowest_step"], step)
        self.assertIn(f"optimizer state of the checkpoint of step {step}", started.launcher.output)

    def test_killed_servers_of_a_replicated_job_are_replaced(self) -> None:
        # Small: with replication an answer that breaks off in the middle costs the worker its copy.
        spec = self.trained(self.folder / "weights", values=100, servers=3)
        spec["servers"]["replication"] = 1
        started = self.run_job(spec)
        started.wait_for_step(5)

        # Stopped before any is killed, so that none can take over what another one held.
        for kind in (signal.SIGSTOP, signal.SIGKILL):
            for index in range(3):
                started.signal_member("server", index, kind)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["steps"], report["restarts"]), (STEPS, 3))
        self.assertTrue(report["state_losses"])
        self.assertTrue(all(loss["repaired"] for loss in report["state_losses"]))

    def test_every_sample_still_counts_once(self) -> None:
        epochs = 3
        started = self.run_job(self.spec("--samples", 12000, "--epochs", epochs, "--batch", 40,
                                         "--step-milliseconds", 100, servers=1, restart=RESTARTS))
        started.wait_for_step(5)

        started.signal_member("server", 0, signal.SIGKILL)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual(len(report["state_losses"]), 1)
        self.assertEqual((report["final"]["least"], report["final"]["most"]), (epochs, epochs))

    def test_killed_server_beyond_backoff_limit_ends_job(self) -> None:
        started = self.run_job(self.long_spec(restart={**RESTARTS, "backoffLimit": 1}))
        started.wait_for_step(5)
        first = started.endpoint("server", 1)
        started.signal_member("server", 1, signal.SIGKILL)
        started.launcher.wait_for_line("without them")

        job.wait_until(lambda: (started.endpoint("server", 1) or first)["pid"] != first["pid"], 10,
                       "server-1 is there again")
        started.signal_member("server", 1, signal.SIGKILL)
        code = started.launcher.wait(20)

        self.assertEqual(code, 1, started.launcher.output)
        self.assertRegex(started.launcher.output, r"failed: server-1 .*\bbackoffLimit\b")

    def test_shards_that_nobody_has_come_from_a_checkpoint(self) -> None:
        for sync in ({"mode": "Async"}, {"mode": "Bounded", "staleness": 2}, {"gated": True}, {"backupWorkers": 1}):
            with self.subTest(sync=sync):
                name = f"{self.job_name}-{'-'.join(sync)}".lower()
                spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 20, "--optimizer", "sgd", workers=3,
                                 sync=sync, restart=RESTARTS,
                                 checkpoint={"uri": f"file://{self.folder}/checkpoints", "everySeconds": 1})
                started = self.run_job(spec, name=name)
                saved = job.wait_until(lambda: started.status().get("checkpoint", {}).get("step", 0), 30, "a checkpoint")

                started.signal_member("server", 1, signal.SIGKILL)

                started.launcher.wait_for_line(r"server-1 was ended by signal 9 .*all members restart, 1 of 3")
                again = started.launcher.wait_for_line(r"restoring step (\d+)")
                self.assertGreaterEqual(int(again.group(1)), saved)
                started.wait_for_step(int(again.group(1)) + 1)
                started.launcher.process.send_signal(signal.SIGINT)
                self.assertEqual(started.launcher.wait(60), 130, started.launcher.output)

    def test_rules_decide_about_a_lost_server(self) -> None:
        for action, has_checkpoint, text in (("RestartJob", False, "all members restart, 1 of 3"),
                                             ("FailJob", True, "job .* failed: ")):
            with self.subTest(action=action):
                rules = [{"role": "Server", "exitCodes": {"in": [137]}, "action": action}]
                spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 20, "--optimizer", "sgd",
                                 sync={"mode": "Async"}, restart={**RESTARTS, "rules": rules})
                if has_checkpoint:
                    spec["checkpoint"] = {"uri": f"file://{self.folder}/{action}", "everySeconds": 1}
                started = self.run_job(spec, name=f"{self.job_name}-{action}".lower())
                job.wait_until(lambda: started.status().get("checkpoint", {}).get("saved", 0) > 0
                               if has_checkpoint else started.status().get("step", 0) > 5, 30, "a step, saved if it can be")

                started.signal_member("server", 1, signal.SIGKILL)

                started.launcher.wait_for_line(text)


if __name__ == "__main__":
    unittest.main()
