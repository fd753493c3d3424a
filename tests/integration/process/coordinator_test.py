# SPDX-License-Identifier: Apache-2.0
"""A coordinator that dies, comes back, or comes back too late: steps continue, and only one is in charge."""
import hashlib
import json
import os
import pathlib
import signal
import unittest

import job
import switched_network

QUICK_RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}
STEPS = 300


class RestartTest(job.JobTestCase):

    def outcome(self, name: str, *kills: int, by: int = signal.SIGKILL) -> tuple[str, dict[int, float]]:
        """Digest of the last weights of a deterministic job whose coordinator is killed at these
        steps, and its losses by step."""
        path = self.folder / name
        with job.Jobs() as jobs:
            spec = jobs.spec("--steps", STEPS, "--values", 20_000, "--optimizer", "adam",
                             "--step-milliseconds", 100, "--weights", path, servers=2, workers=3,
                             sync={"deterministic": True}, restart=QUICK_RESTARTS)
            spec["servers"]["replication"] = 1 if name == "replicated" else 0
            started = jobs.run_job(spec)
            for term, step in enumerate(kills, start=2):
                started.wait_for_step(step)
                started.signal_member("coordinator", 0, by)
                started.wait_for_status("Running", term=term)
            code = started.finish()
            self.assertEqual(code, 0, started.launcher.output)
            report = started.report()
        self.assertEqual(report["steps"], STEPS)
        self.assertEqual(report["samples"], 3 * STEPS)
        self.assertEqual(report["restarts"], len(kills), started.launcher.output)
        losses = {point["step"]: round(point["loss"], 9) for point in report["losses"]}
        self.assertEqual(len(losses), STEPS)
        return hashlib.sha256(path.read_bytes()).hexdigest(), losses

    def test_coordinator_that_ends_costs_no_step_and_no_bit(self) -> None:
        expected = self.outcome("undisturbed")

        self.assertEqual(self.outcome("alone", 10, 40), expected)
        self.assertEqual(self.outcome("replicated", 10, 40), expected)
        self.assertEqual(self.outcome("told", 10, 40, by=signal.SIGTERM), expected)

    def test_status_reports_a_missing_coordinator(self) -> None:
        started = self.run_job(self.long_spec(restart={"backoffLimit": 3, "initialDelaySeconds": 5}))
        started.wait_for_step(5)

        started.signal_member("coordinator", 0, signal.SIGKILL)
        started.launcher.wait_for_line("server-0 no coordinator: steps continue")
        # The launcher may read this line before it learns of the coordinator's end.
        job.wait_until(lambda: started.endpoint("coordinator") is None, job.START_SECONDS, "no coordinator")
        before = started.metrics("server")["pushpull_step"]
        shown = job.run_command("status", "--workdir", started.workdir)
        job.wait_until(lambda: started.metrics("server")["pushpull_step"] > before + 20, 20, "steps")

        self.assertEqual(shown.returncode, 3, shown.stderr)
        self.assertIn("coordinator is not there", shown.stderr)
        status = started.wait_for_status("Running")
        self.assertEqual(status["term"], 2)


    def test_coordinator_that_stood_still_steps_down(self) -> None:
        spec = self.spec("--steps", STEPS, "--step-milliseconds", 200, "--optimizer", "adam", servers=2, workers=2,
                         sync={"mode": "Async"}, restart=QUICK_RESTARTS)
        spec["servers"]["replication"] = 1
        started = self.run_job(spec)
        started.wait_for_step(5)

        started.signal_member("coordinator", 0, signal.SIGSTOP)
        for name in ("server-0", "server-1", "worker-0", "worker-1"):
            started.launcher.wait_for_line(f"{name} no coordinator: steps continue")
        started.signal_member("coordinator", 0, signal.SIGCONT)

        started.launcher.wait_for_line("it stood still for .* s, and connections of its members have closed")
        started.wait_for_status("Running", term=2)
        self.assertEqual(started.finish(), 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["steps"], STEPS)
        self.assertEqual(report["restarts"], 1, started.launcher.output)


class DoneTest(job.JobTestCase):

    def test_a_worker_done_before_counts_as_done(self) -> None:
        folder = self.folder / "checkpoints"
        spec = self.spec("--steps", 200, "--step-milliseconds", 10, "--optimizer", "adam", "--slow-worker", 1, "--slow-factor", 10,
                         sync={"mode": "Async"}, restart=QUICK_RESTARTS, checkpoint={"uri": f"file://{folder}", "everySeconds": 3600})
        started = self.run_job(spec)

        def state_of_first() -> str:
            return next((worker["state"] for worker in started.status().get("workers", []) if worker["index"] == 0), "")
        job.wait_until(lambda: state_of_first() == "done", job.START_SECONDS, "worker-0 is done")
        started.signal_member("coordinator", 0, signal.SIGKILL)
        started.wait_for_status("Running", term=2)
        job.wait_until(lambda: state_of_first() == "done", job.START_SECONDS, "the next coordinator knows it")

        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertEqual(len(list(folder.glob("*/*/step-*"))), 1, started.launcher.output)


class ResizeTest(job.JobTestCase):
    """What one coordinator has made of the size, the next one's job goes on with."""

    def assert_follows(self, events: str) -> None:
        """A number: so many workers are asked for, and come; with "!" nobody waits for them. "x": the coordinator dies."""
        spec = self.spec("--steps", 10 * STEPS, "--step-milliseconds", 20, "--values", 1000, "--optimizer", "adam", workers=3,
                         restart={**QUICK_RESTARTS, "backoffLimit": 6})
        started = self.run_job(spec, name="r-" + events.replace(" ", "").replace("!", "q"))
        started.wait_for_step(5)
        term = 1
        for event in events.split():
            if event == "x":
                term += 1
                started.signal_member("coordinator", 0, signal.SIGKILL)
                started.wait_for_status("Running", term=term)
            else:
                flags = () if event.endswith("!") else ("--wait",)
                scaled = started.scale(None, *flags, workers=event.rstrip("!"))
                self.assertEqual(scaled.returncode, 0, scaled.stderr + started.launcher.output)
        self.assertEqual(started.finish(), 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["steps"], 10 * STEPS)
        self.assertEqual(report["restarts"], term - 1, started.launcher.output)

    def test_workers_come_back_under_the_next_coordinator(self) -> None:
        for events in ("2 x 3", "1 x 2 3", "x 2 x 3", "2 3 x 1", "2! x 3", "1! x 2! x"):
            with self.subTest(events):
                self.assert_follows(events)


class TwoCoordinatorsTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.manifest = self.write_manifest(self.long_spec(workers=1))

    def start_coordinator(self, term: int, *flags: str) -> job.Program:
        return self.start(job.PUSHPULL, "coordinator", "--manifest", self.manifest, "--listen",
                          "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--term", term, *flags)

    @staticmethod
    def address_of(coordinator: job.Program) -> str:
        return coordinator.wait_for_line(r"listening control=(\S+)").group(1)

    def status_at(self, address: str) -> dict[str, object]:
        shown = job.run_command("status", "--coordinator", address, "--json")
        return json.loads(shown.stdout) if shown.returncode == 0 else {}

    def start_members(self, network: switched_network.SwitchedNetwork) -> list[job.Program]:
        servers = [self.start(job.PUSHPULL, "server", "--job", self.job_name, "--index", index,
                              "--coordinator", network.address, "--listen", "127.0.0.1:0",
                              "--metrics", "127.0.0.1:0") for index in range(2)]
        worker = self.start(job.PROBE, "--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 5,
                            environment={"PUSHPULL_JOB": self.job_name, "PUSHPULL_ROLE": "worker",
                                         "PUSHPULL_INDEX": "0", "PUSHPULL_METRICS_PORT": "0",
                                         "PUSHPULL_COORDINATOR": network.address})
        worker.wait_for_line("values in place")
        return [*servers, worker]

    def test_one_that_is_silent_on_open_connections_is_replaced(self) -> None:
        older = self.start_coordinator(1)
        network = switched_network.SwitchedNetwork(self.address_of(older))
        self.addCleanup(network.close)
        members = self.start_members(network)
        os.kill(older.pid, signal.SIGSTOP)
        address = self.address_of(self.start_coordinator(2, "--recover"))

        network.switch(address, kept=True)

        for member in members:
            member.wait_for_line("connected to a coordinator again")
        job.wait_until(lambda: self.status_at(address).get("phase") == "Running", 20, "term 2")
        self.assertEqual([member.process.poll() for member in members], [None, None, None])

    def test_one_that_is_cut_off_steps_down(self) -> None:
        self.manifest = self.write_manifest(self.long_spec(workers=1, restart={"peerTimeoutSeconds": 3}))
        coordinator = self.start_coordinator(1)
        network = switched_network.SwitchedNetwork(self.address_of(coordinator))
        self.addCleanup(network.close)
        members = self.start_members(network)

        for member in members:
            os.kill(member.pid, signal.SIGSTOP)

        coordinator.wait_for_line("3 of its 3 members have been silent for up to 3 s: steps down")
        self.assertEqual(coordinator.wait(10), 1)

    def test_coordinator_of_a_lower_term_is_rejected(self) -> None:
        older = self.start_coordinator(1)
        network = switched_network.SwitchedNetwork(self.address_of(older))
        self.addCleanup(network.close)
        members = self.start_members(network)
        os.kill(older.pid, signal.SIGSTOP)
        second = self.start_coordinator(2, "--recover")
        address = self.address_of(second)
        network.switch(address)
        job.wait_until(lambda: self.status_at(address).get("phase") == "Running", 20, "term 2")

        os.kill(second.pid, signal.SIGKILL)
        # Not the one that was stopped: it ends when it finds its connections closed.
        outdated = self.start_coordinator(1, "--recover")
        network.switch(self.address_of(outdated))
        for member in members:
            member.wait_for_line("a coordinator of term 1 is outdated")
        outdated.wait_for_line("one of term 2 has taken over")
        third = self.start_coordinator(3, "--recover")
        address = self.address_of(third)
        network.switch(address)

        job.wait_until(lambda: self.status_at(address).get("phase") == "Running", 20, "term 3")
        step = self.status_at(address)["step"]
        job.wait_until(lambda: self.status_at(address).get("step", 0) > step + 50, 30, "steps")
        self.assertEqual([member.process.poll() for member in members], [None, None, None])


if __name__ == "__main__":
    unittest.main()
