# SPDX-License-Identifier: Apache-2.0
"""A member that hangs while there is no coordinator that could notice it: the next one does, by the same deadlines."""
import signal
import unittest
from typing import Any

import job

STEPS = 2000
RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0, "peerTimeoutSeconds": 3}


class HangTest(job.JobTestCase):

    def job_spec(self, **more: Any) -> dict[str, Any]:
        """Of steps whose sums do not depend on who takes part."""
        return self.spec("--steps", STEPS, "--step-milliseconds", 20, "--values", 1000, "--optimizer", "adam", workers=3,
                         restart=RESTARTS, **more)

    def start_job(self, spec: dict[str, Any]) -> job.LocalJob:
        started = self.run_job(spec)
        started.wait_for_step(5)
        return started

    def assert_replaced(self, started: job.LocalJob, role: str, index: int) -> None:
        """The member hangs, the coordinator dies before it could notice; the job goes on with another in its place."""
        hung = started.signal_member(role, index, signal.SIGSTOP)
        started.signal_member("coordinator", 0, signal.SIGKILL)

        def replaced() -> bool:
            entry = started.endpoint(role, index)
            return entry is not None and entry["pid"] != hung
        job.wait_until(replaced, 45, f"another {role}-{index}")
        started.await_joined(role, index)
        self.assertEqual(started.finish(), 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["steps"], STEPS)
        self.assertEqual(report["restarts"], 2, started.launcher.output)

    def test_worker(self) -> None:
        self.assert_replaced(self.start_job(self.job_spec()), "worker", 1)

    def test_worker_of_gated_steps(self) -> None:
        self.assert_replaced(self.start_job(self.job_spec(sync={"gated": True})), "worker", 1)

    def test_worker_of_a_ring(self) -> None:
        started = self.start_job(self.job_spec(servers=0, sync={"mode": "AllReduce"}))
        self.assert_replaced(started, "worker", 1)

    def test_server(self) -> None:
        self.assert_replaced(self.start_job(self.job_spec()), "server", 1)

    def test_server_of_gated_steps(self) -> None:
        spec = self.job_spec(sync={"gated": True})
        spec["servers"]["replication"] = 1
        self.assert_replaced(self.start_job(spec), "server", 1)


if __name__ == "__main__":
    unittest.main()
