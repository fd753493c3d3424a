# SPDX-License-Identifier: Apache-2.0
"""All processes of a job with checkpoints are told to end at once, as by deleting its pods: the last step that was made
is saved, or it is said what is lost."""
import json
import os
import re
import signal
import unittest
from typing import Any, Optional

import job

STEPS_BEFORE = 5
# Longer than any of these takes; a deadline that ends a role is a failure here.
LEAVE_SECONDS = 300


class TakedownTest(job.JobTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.dir = self.folder / "checkpoints"
        self.workers: list[job.Program] = []
        self.servers: list[job.Program] = []
        self.ring: dict[str, str] = {}

    def start_roles(self, servers: int = 2, workers: int = 2, flags: tuple = (), leave: float = LEAVE_SECONDS,
                    checkpoint: Optional[dict[str, Any]] = None, **more: Any) -> None:
        """By hand: nobody starts again what ends."""
        spec = self.spec(servers=servers, workers=workers, **more)
        self.ring = {} if servers else {"PUSHPULL_RING": "127.0.0.1:0"}
        spec["checkpoint"] = {"uri": f"file://{self.dir}"} if checkpoint is None else checkpoint
        if not spec["checkpoint"]:
            del spec["checkpoint"]
        manifest = self.write_manifest(spec)
        times = {"PUSHPULL_LEAVE_SECONDS": str(leave)}
        self.coordinator = self.start(job.PUSHPULL, "coordinator", "--manifest", manifest, "--listen", "127.0.0.1:0",
                                      "--metrics", "127.0.0.1:0", environment=times)
        self.address = self.coordinator.wait_for_line(r"listening control=(\S+)").group(1)
        self.servers = [self.start(job.PUSHPULL, "server", "--job", self.job_name, "--index", index, "--coordinator",
                                   self.address, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", environment=times)
                        for index in range(servers)]
        self.workers = [self.start_worker(index, *flags) for index in range(workers)]

    def start_worker(self, index: int, *flags: Any) -> job.Program:
        command = [job.PROBE, "--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 50, "--optimizer", "sgd", *flags]
        return self.start(*command, environment={
            "PUSHPULL_JOB": self.job_name, "PUSHPULL_ROLE": "worker", "PUSHPULL_INDEX": str(index),
            "PUSHPULL_COORDINATOR": self.address, "PUSHPULL_METRICS_PORT": "0", **self.ring})

    def roles(self) -> dict[str, list[job.Program]]:
        return {"coordinator": [self.coordinator], "servers": self.servers, "workers": self.workers}

    def status(self) -> dict[str, Any]:
        shown = job.run_command("status", "--coordinator", self.address, "--json")
        return json.loads(shown.stdout) if shown.returncode == 0 else {}

    def wait_for_step(self, step: int) -> None:
        job.wait_until(lambda: self.status().get("step", 0) >= step, job.START_SECONDS, f"step {step}")

    def end_all(self, order: tuple[str, ...]) -> None:
        for role in order:
            for program in self.roles()[role]:
                os.kill(program.pid, signal.SIGTERM)
        for role in order:
            for program in self.roles()[role]:
                self.assertEqual(program.wait(60), 143, self.output())

    def saved_steps(self) -> list[int]:
        listed = job.run_command("checkpoint", "list", self.dir, "--json")
        return [one["step"] for one in json.loads(listed.stdout)["checkpoints"]] if listed.returncode == 0 else []

    def last_step(self) -> int:
        """The step after which the last worker left."""
        return max(int(step) for step in re.findall(r"leaves after step (\d+)", self.coordinator.output))

    def test_last_step_is_saved_in_every_mode_and_order(self) -> None:
        modes = {"Sync": {}, "gated": {"gated": True}, "backup": {"backupWorkers": 1}, "Async": {"mode": "Async"},
                 "Bounded": {"mode": "Bounded", "staleness": 2}, "AllReduce": {"mode": "AllReduce"}}
        orders = (("coordinator", "servers", "workers"), ("workers", "servers", "coordinator"),
                  ("servers", "coordinator", "workers"))
        for at, (name, sync) in enumerate(modes.items()):
            order = orders[at % len(orders)]
            with self.subTest(mode=name, order=order):
                self.dir = self.folder / name
                self.start_roles(servers=0 if name == "AllReduce" else 2, workers=3, sync=sync)
                self.wait_for_step(STEPS_BEFORE)

                self.end_all(order)

                saved = self.saved_steps()
                if sync.get("mode") in ("Async", "Bounded"):
                    self.assertGreaterEqual(saved[0], self.last_step(), self.output())
                else:
                    self.assertEqual(saved[0], self.last_step(), self.output())
                self.coordinator.wait_for_line(rf"all members end, the checkpoint of step {saved[0]} is the last")
                verified = job.run_command("checkpoint", "verify", self.dir)
                self.assertEqual(verified.returncode, 0, verified.stderr)

    def test_the_others_end_the_step_of_a_worker_that_hangs(self) -> None:
        self.start_roles(flags=("--stall-at-step", 20, "--stall-worker", 1, "--stall-until", self.folder / "never"),
                         sync={"stallSeconds": 1})
        job.wait_until(lambda: self.status().get("stall"), job.START_SECONDS, "a stall")
        hanging = self.workers.pop()

        self.end_all(("coordinator", "servers", "workers"))
        os.kill(hanging.pid, signal.SIGKILL)

        self.assertEqual(self.saved_steps()[0], self.last_step(), self.output())
        self.assertEqual(self.last_step(), 21)

    def test_what_is_not_saved_is_said_with_both_steps(self) -> None:
        (self.folder / "file").write_text("in the way")
        for name, checkpoint, text in (
                ("unwritable", {"uri": f"file://{self.folder}/file/checkpoints"},
                 rf"all members end after step (\d+), the last checkpoint is of step 0: .*{self.folder}/file"),
                ("none", {}, r"all members end after step (\d+): without spec.checkpoint the job's steps are lost")):
            with self.subTest(name=name):
                self.start_roles(checkpoint=checkpoint)
                self.wait_for_step(STEPS_BEFORE)

                self.end_all(("workers", "servers", "coordinator"))

                said = self.coordinator.wait_for_line(text)
                self.assertEqual(int(said.group(1)), self.last_step(), self.output())

    def test_a_coordinator_that_ends_alone_saves_nothing(self) -> None:
        self.start_roles()
        self.wait_for_step(STEPS_BEFORE)

        os.kill(self.coordinator.pid, signal.SIGTERM)

        self.assertEqual(self.coordinator.wait(20), 143, self.output())
        self.assertNotIn("all members end", self.coordinator.output)
        for member in (*self.servers, *self.workers):
            self.assertIsNone(member.process.poll(), self.output())

    def test_when_all_servers_end_the_job_is_saved(self) -> None:
        self.start_roles()
        self.wait_for_step(STEPS_BEFORE)

        for server in self.servers:
            os.kill(server.pid, signal.SIGTERM)

        self.coordinator.wait_for_line(r"checkpoint of step \d+ saved")

    def test_a_job_that_begins_at_an_older_step_says_so(self) -> None:
        for mode, servers in (("Sync", 2), ("AllReduce", 0)):
            with self.subTest(mode=mode):
                self.dir = self.folder / f"older-{mode}"
                self.start_roles(servers=servers, sync={"mode": mode})
                self.wait_for_step(STEPS_BEFORE)
                saved = job.run_command("checkpoint", "now", "--coordinator", self.address, "--wait", "--json")
                step = json.loads(saved.stdout)["step"]
                self.wait_for_step(step + 60)  # longer than the time between two notes
                for program in (*self.workers, *self.servers, self.coordinator):
                    os.kill(program.pid, signal.SIGKILL)
                    program.wait(10)

                self.start_roles(servers=servers, sync={"mode": mode})

                said = self.coordinator.wait_for_line(
                    rf"training begins at step {step}, the job had reached step (\d+): the steps between are lost")
                self.assertGreater(int(said.group(1)), step)
                address = self.coordinator.wait_for_line(r"listening .*metrics=(\S+)").group(1)
                lost = job.wait_until(lambda: job.read_metrics(address)["pushpull_steps_lost_total"], 10, "the metric")
                self.assertEqual(lost, int(said.group(1)) - step)
                self.end_all(("coordinator", "servers", "workers"))

                self.start_roles(servers=servers, sync={"mode": mode})
                self.coordinator.wait_for_line(r"training resumes at step \d+")


if __name__ == "__main__":
    unittest.main()
