# SPDX-License-Identifier: Apache-2.0
"""Jobs whose members meet in shared memory, or are kept from it."""
import os
import pathlib
import signal
import tempfile
import unittest
from typing import Any, Optional

import job


def bytes_by_channel(metrics: dict[str, float], name: str) -> dict[str, float]:
    return {channel: metrics[f'{name}{{channel="{channel}"}}'] for channel in ("tcp", "shm")}


class ShmTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        shared = tempfile.TemporaryDirectory(prefix="pushpull-test-", dir="/dev/shm")
        self.addCleanup(shared.cleanup)
        self.shared = pathlib.Path(shared.name)

    def run_with(self, channel: str, shared: Optional[pathlib.Path] = None,
                 spec: Optional[dict[str, Any]] = None) -> job.LocalJob:
        variables = {"PUSHPULL_CHANNEL": channel, "PUSHPULL_SHM_DIR": str(shared or self.shared)}
        inherited = job.Jobs.environment(self)
        self.environment = lambda **more: {**inherited, **variables, **more}  # type: ignore
        return self.run_job(spec or self.long_spec())

    def left_there(self) -> list[str]:
        return [path.name for path in self.shared.iterdir()]

    def test_neighbours_exchange_tensors_through_memory_and_leave_nothing(self) -> None:
        started = self.run_with("auto")
        started.wait_for_step(20)

        for role, name in (("worker", "pushpull_push_bytes_total"),
                           ("worker", "pushpull_pull_bytes_total"),
                           ("server", "pushpull_push_bytes_total")):
            moved = bytes_by_channel(started.metrics(role), name)
            self.assertGreater(moved["shm"], 0, (role, name))
            self.assertEqual(moved["tcp"], 0, (role, name))

        self.assertEqual(self.left_there(), [])

    def test_the_switch_turns_it_off(self) -> None:
        started = self.run_with("tcp")
        started.wait_for_step(20)

        moved = bytes_by_channel(started.metrics("worker"), "pushpull_push_bytes_total")

        self.assertGreater(moved["tcp"], 0)
        self.assertEqual(moved["shm"], 0)

    def test_without_room_the_job_runs_over_sockets_and_says_why(self) -> None:
        started = self.run_with("auto", self.shared / "missing")
        started.wait_for_step(20)

        moved = bytes_by_channel(started.metrics("worker"), "pushpull_push_bytes_total")

        self.assertGreater(moved["tcp"], 0)
        self.assertEqual(moved["shm"], 0)
        self.assertIn(str(self.shared / "missing"), started.launcher.output)

    def test_a_job_that_is_killed_whole_leaves_nothing_in_the_folder(self) -> None:
        started = self.run_with("auto")
        started.wait_for_step(20)

        for pid in job.tagged_processes(self.tag):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.wait_until_gone(job.START_SECONDS)

        self.assertEqual(self.left_there(), [])

    def test_deterministic_weights_are_bitwise_those_of_sockets(self) -> None:
        weights = []
        for channel in ("auto", "tcp"):
            file = self.folder / f"{channel}.weights"
            spec = self.spec("--steps", 30, "--values", 300_000, "--optimizer", "adam", "--weights",
                             file, sync={"deterministic": True})
            started = self.run_with(channel, spec=spec)
            code = started.finish()

            self.assertEqual(code, 0, started.launcher.output)
            weights.append(file.read_bytes())

        self.assertGreater(len(weights[0]), 1_000_000)
        self.assertTrue(weights[0] == weights[1])

    def test_an_unknown_channel_is_named(self) -> None:
        started = self.run_with("rdma")

        self.assertNotEqual(started.launcher.wait(60), 0)
        self.assertIn("PUSHPULL_CHANNEL: must be auto, tcp or grpc", started.launcher.output)


if __name__ == "__main__":
    unittest.main()
