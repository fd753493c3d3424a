# SPDX-License-Identifier: Apache-2.0
"""Members that are told to end by SIGTERM, as Kubernetes, a scheduler or `kill` does: they leave in order,
with 143, and the job's result is that of the undisturbed one."""
import os
import pathlib
import signal
import unittest
from typing import Any

import job

RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}
STEPS = 60


class LeaveTest(job.JobTestCase):

    def trained(self, weights: pathlib.Path, milliseconds: int = 400, **more: Any) -> dict[str, Any]:
        """A deterministic job that writes its last weights."""
        return self.spec("--steps", STEPS, "--optimizer", "adam", "--values", 20_000, "--weights",
                         weights, "--step-milliseconds", milliseconds,
                         sync={"deterministic": True}, restart=RESTARTS, **more)

    def undisturbed_weights(self) -> bytes:
        weights = self.folder / "whole"
        undisturbed = self.run_job(self.trained(weights, milliseconds=0))
        self.assertEqual(undisturbed.launcher.wait(60), 0, undisturbed.launcher.output)
        return weights.read_bytes()

    def test_server_hands_its_shards_over_and_training_goes_on(self) -> None:
        whole = self.undisturbed_weights()
        weights = self.folder / "weights"
        started = self.run_job(self.trained(weights))
        started.wait_for_step(5)

        started.signal_member("server", 1, signal.SIGTERM)
        started.launcher.wait_for_line("server-1 holds nothing any more and is released")
        started.launcher.wait_for_line("server-1 exited with code 143; restart, 1 of 3")
        job.wait_until(lambda: [s for s in started.status().get("servers", []) 
                                if s["index"] == 1 and s["bytes"] > 0], 30, "the next server-1 has shards")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["steps"], report["state_losses"]), (STEPS, []))
        self.assertEqual(weights.read_bytes(), whole)

    def test_the_last_two_servers_drain_one_after_the_other(self) -> None:
        whole = self.undisturbed_weights()
        weights = self.folder / "weights"
        started = self.run_job(self.trained(weights))
        started.wait_for_step(5)

        for index in range(2):
            started.signal_member("server", index, signal.SIGTERM)
        for index in range(2):
            started.launcher.wait_for_line(f"server-{index} exited with code 143; restart")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["steps"], report["state_losses"]), (STEPS, []))
        self.assertEqual(weights.read_bytes(), whole)

    def test_undrainable_server_ends_at_its_deadline_or_signal(self) -> None:
        for seconds in ("1", "86400"):
            with self.subTest(seconds=seconds):
                spec = self.long_spec(servers=1, restart=RESTARTS)
                started = self.run_job(spec, environment={"PUSHPULL_LEAVE_SECONDS": seconds})
                started.wait_for_step(3)

                pid = started.signal_member("server", 0, signal.SIGTERM)
                started.launcher.wait_for_line("server-0 keeps its shards for now")
                if seconds != "1":
                    os.kill(pid, signal.SIGTERM)

                started.launcher.wait_for_line("server-0 exited with code 143; restart, 1 of 3")
                started.wait_for_step(started.status().get("step", 0) + 5)
                started.launcher.process.send_signal(signal.SIGINT)
                self.assertEqual(started.launcher.wait(15), 130, started.launcher.output)

    def test_worker_leaves_between_two_steps_and_is_replaced(self) -> None:
        for flags in ((), ("--deaf", 1)):
            with self.subTest(flags=flags):
                started = self.run_job(self.spec("--steps", 200, "--step-milliseconds", 200,
                                                 *flags, workers=3, restart=RESTARTS),
                                       environment={"PROBE_IGNORES_SUMS": "1"})
                started.wait_for_step(5)

                started.signal_member("worker", 1, signal.SIGTERM)
                started.launcher.wait_for_line("worker-1 leaves after step")
                started.launcher.wait_for_line("worker-1 exited with code 143; restart, 1 of 3")
                code = started.finish()

                self.assertEqual(code, 0, started.launcher.output)
                report = started.report()
                self.assertEqual((report["steps"], report["restarts"], report["uneven_steps"]),
                                 (200, 1, 0))
                self.assertNotIn("is lost", started.launcher.output)

    def test_samples_of_leaving_members_count_once(self) -> None:
        started = self.run_job(self.spec("--samples", 12000, "--epochs", 2, "--batch", 10,
                                         "--step-milliseconds", 100, workers=3, restart=RESTARTS))
        started.wait_for_step(5)

        started.signal_member("worker", 2, signal.SIGTERM)
        started.signal_member("server", 0, signal.SIGTERM)
        started.signal_member("worker", 0, signal.SIGTERM)
        for name in ("worker-2", "server-0", "worker-0"):
            started.launcher.wait_for_line(f"{name} exited with code 143; restart")
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual({name: report["final"][name] for name in ("least", "most", "total")},
                         {"least": 2, "most": 2, "total": 24000})
        self.assertEqual(report["uneven_steps"], 0)

    def test_worker_that_waits_for_the_job_ends_at_once(self) -> None:
        spec = self.long_spec(workers=2, restart=RESTARTS)
        # The second worker never comes: the first waits for it with its tensors.
        spec["command"] = ["sh", "-c", '[ "$PUSHPULL_INDEX" = 0 ] || exec sleep 1000; exec "$@"', "sh",
                           *spec["command"]]
        started = self.run_job(spec)
        started.launcher.wait_for_line("worker-0 .*joined")

        started.signal_member("worker", 0, signal.SIGTERM)

        started.launcher.wait_for_line("worker-0 exited with code 143; restart, 1 of 3")

    def test_second_signal_ends_a_worker_within_its_step(self) -> None:
        spec = self.long_spec(restart=RESTARTS)
        spec["command"] += ["--stall-at-step", "5", "--stall-worker", "1", "--stall-until",
                            str(self.folder / "never")]
        started = self.run_job(spec)
        started.wait_for_step(5)

        pid = started.signal_member("worker", 1, signal.SIGTERM)
        started.launcher.wait_for_line("worker-1 .*told to end")
        os.kill(pid, signal.SIGTERM)

        started.launcher.wait_for_line("worker-1 exited with code 143; restart, 1 of 3")


if __name__ == "__main__":
    unittest.main()
