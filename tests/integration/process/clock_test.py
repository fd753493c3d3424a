# SPDX-License-Identifier: Apache-2.0
"""Wall clocks that jump by ten minutes, under TLS: nothing that a job does depends on the time of day.

A role's clock is that of libfaketime, which takes its offset from a file whenever the role asks for the time.
"""
import datetime
import hashlib
import json
import pathlib
import unittest
from typing import Any

import job
import tls_test

LIBRARY = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
STEPS = 400
ROLES = ("coordinator", "server-0", "server-1", "worker-0", "worker-1")
AHEAD, BEHIND, RIGHT = "+600", "-600", "+0"


class ClockTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        if not LIBRARY.exists():
            self.skipTest("libfaketime is not installed")
        self.certificates = self.folder / "certificates"
        # As the operator's certificates: valid from before they are issued.
        authority = tls_test.Authority(self.folder / "authority", minutes_early=11)
        authority.issue(self.certificates, days=1)
        self.weights, self.let_go = self.folder / "weights", self.folder / "let-go"
        spec = self.spec(sync={"deterministic": True})
        spec["servers"]["replication"] = 1
        self.manifest = self.write_manifest(spec)
        self.members: dict[str, job.Program] = {}

    def set_clock(self, role: str, offset: str) -> None:
        path = self.folder / f"{role}.new"
        path.write_text(offset + "\n")
        path.rename(self.folder / f"{role}.clock")

    def start_member(self, role: str, *command: object, clock: str, **environment: str) -> job.Program:
        self.set_clock(role, clock)
        self.members[role] = self.start(*command, environment={
            "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(self.folder / f"{role}.clock"),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1", "PUSHPULL_TLS_DIR": str(self.certificates),
            **environment})
        return self.members[role]

    def start_server(self, index: int, clock: str = RIGHT) -> None:
        self.start_member(f"server-{index}", job.PUSHPULL, "server", "--job", self.job_name, "--index", index, "--coordinator",
                          self.address, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", clock=clock)

    def start_members(self, **clocks: str) -> None:
        """By role, with an underscore for its dash; the others' clocks are right."""
        coordinator = self.start_member("coordinator", job.PUSHPULL, "coordinator", "--manifest", self.manifest, "--listen",
                                        "127.0.0.1:0", "--metrics", "127.0.0.1:0", clock=clocks.get("coordinator", RIGHT))
        self.address = coordinator.wait_for_line(r"listening control=(\S+)").group(1)
        for index in range(2):
            self.start_server(index, clocks.get(f"server_{index}", RIGHT))
            self.start_member(f"worker-{index}", job.PROBE, "--steps", STEPS, "--values", 20_000, "--step-milliseconds", 100,
                              "--optimizer", "adam", "--weights", self.weights, "--until", self.let_go,
                              clock=clocks.get(f"worker_{index}", RIGHT),
                              PUSHPULL_JOB=self.job_name, PUSHPULL_ROLE="worker", PUSHPULL_INDEX=str(index),
                              PUSHPULL_COORDINATOR=self.address, PUSHPULL_METRICS_PORT="0")

    def status(self) -> dict[str, Any]:
        """Empty when the job does not answer yet."""
        shown = job.run_command("status", "--coordinator", self.address, "--json",
                                environment=self.environment(PUSHPULL_TLS_DIR=str(self.certificates)))
        return json.loads(shown.stdout) if shown.returncode == 0 else {}

    def go_on(self, steps: int) -> None:
        """Until the job is so many steps further."""
        reached = job.wait_until(self.status, job.START_SECONDS, "a status").get("step", 0)
        job.wait_until(lambda: self.status().get("step", 0) >= reached + steps, job.START_SECONDS, f"step {reached + steps}")

    def finish(self) -> str:
        """Digest of the weights, once both workers have ended well; then the other members are stopped."""
        self.let_go.touch()
        for role in ("worker-0", "worker-1"):
            self.assertEqual(self.members[role].wait(100), 0, f"{role}:\n{self.members[role].output}")
        self.let_go.unlink()
        for role in ("server-0", "server-1", "coordinator"):
            self.members[role].process.terminate()
            self.members[role].wait(15)
        return hashlib.sha256(self.weights.read_bytes()).hexdigest()

    def logged_time(self, role: str) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.members[role].wait_for_line(r"^(\S+) info").group(1))

    def undisturbed(self) -> str:
        self.start_members()
        return self.finish()

    def test_jumps_of_a_role_cost_nothing(self) -> None:
        expected = self.undisturbed()
        self.start_members()
        self.go_on(1)

        for role in ROLES:
            for offset in (AHEAD, BEHIND, RIGHT):
                with self.subTest(role=role, offset=offset):
                    self.set_clock(role, offset)
                    self.go_on(3)

        self.assertEqual(self.finish(), expected)

    def test_members_may_join_with_a_wrong_clock(self) -> None:
        expected = self.undisturbed()
        self.start_members(server_1=AHEAD, worker_0=BEHIND)
        self.go_on(5)
        self.assertGreater(self.logged_time("server-1") - self.logged_time("server-0"), datetime.timedelta(minutes=9))

        self.members["server-0"].process.kill()
        self.members["server-0"].wait(10)
        self.start_server(0, clock=BEHIND)
        self.go_on(5)

        self.assertEqual(self.finish(), expected)


if __name__ == "__main__":
    unittest.main()
