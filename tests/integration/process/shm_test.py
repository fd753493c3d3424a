# SPDX-License-Identifier: Apache-2.0
"""Jobs whose members meet in shared memory, or are kept from it."""
import os
import pathlib
import signal
import tempfile
import unittest
from typing import Any, Optional

import job

QUICK_RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}


def bytes_by_channel(metrics: dict[str, float], name: str) -> dict[str, float]:
    return {channel: metrics[f'{name}{{channel="{channel}"}}'] for channel in ("tcp", "shm")}


class ShmTest(job.JobTestCase):
    # Two chunks; and for jobs of many steps five tensors of one each, because sanitizers check every access.
    LARGE = ("--tensors", 1, "--values", 300_000)
    SMALL = ("--tensors", 5, "--values", 20_000)

    def setUp(self) -> None:
        super().setUp()
        shared = tempfile.TemporaryDirectory(prefix="pushpull-test-", dir="/dev/shm")
        self.addCleanup(shared.cleanup)
        self.shared = pathlib.Path(shared.name)

    def run_on(self, channel: str, shared: Optional[pathlib.Path] = None,
                 spec: Optional[dict[str, Any]] = None, **more: str) -> job.LocalJob:
        variables = {**more, "PUSHPULL_CHANNEL": channel, "PUSHPULL_SHM_DIR": str(shared or self.shared)}
        return self.run_with(spec or self.long_spec(), **variables)

    def left_there(self) -> list[str]:
        return [path.name for path in self.shared.iterdir()]

    def kill_everything(self) -> None:
        for pid in job.tagged_processes(self.tag):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.wait_until_gone(job.START_SECONDS)

    def test_shared_memory_is_used_and_removed(self) -> None:
        started = self.run_on("auto")
        started.wait_for_step(20)

        for role, name in (("worker", "pushpull_push_bytes_total"),
                           ("worker", "pushpull_pull_bytes_total"),
                           ("server", "pushpull_push_bytes_total")):
            moved = bytes_by_channel(started.metrics(role), name)
            self.assertGreater(moved["shm"], 0, (role, name))
            self.assertEqual(moved["tcp"], 0, (role, name))

        self.assertEqual(self.left_there(), [])

    def test_the_switch_turns_it_off(self) -> None:
        started = self.run_on("tcp")
        started.wait_for_step(20)

        moved = bytes_by_channel(started.metrics("worker"), "pushpull_push_bytes_total")

        self.assertGreater(moved["tcp"], 0)
        self.assertEqual(moved["shm"], 0)

    def test_without_room_the_job_falls_back_to_sockets(self) -> None:
        started = self.run_on("auto", self.shared / "missing")
        started.wait_for_step(20)

        moved = bytes_by_channel(started.metrics("worker"), "pushpull_push_bytes_total")

        self.assertGreater(moved["tcp"], 0)
        self.assertEqual(moved["shm"], 0)
        self.assertIn(str(self.shared / "missing"), started.launcher.output)

    def test_killed_job_leaves_nothing_in_the_folder(self) -> None:
        started = self.run_on("auto")
        started.wait_for_step(20)

        self.kill_everything()

        self.assertEqual(self.left_there(), [])

    def test_deterministic_weights_are_bitwise_those_of_sockets(self) -> None:
        weights = []
        for channel in ("auto", "tcp"):
            file = self.folder / f"{channel}.weights"
            spec = self.spec("--steps", 30, *self.LARGE, "--optimizer", "adam", "--weights", file,
                             sync={"deterministic": True})
            started = self.run_on(channel, spec=spec)
            code = started.finish()

            self.assertEqual(code, 0, started.launcher.output)
            weights.append(file.read_bytes())

        self.assertGreater(len(weights[0]), 1_000_000)
        self.assertTrue(weights[0] == weights[1])

    def run_registered(self, channel: str, *flags: Any, size: tuple[Any, ...] = LARGE,
                       **more: Any) -> job.LocalJob:
        spec = self.spec("--registered", 1, *size, *flags, **more)
        spec["servers"]["replication"] = 1
        return self.run_on(channel, spec=spec)

    def test_gradients_are_summed_in_the_workers_memory(self) -> None:
        started = self.run_registered("auto", "--steps", 1_000_000, "--step-milliseconds", 5, size=self.SMALL)
        started.wait_for_step(50)

        metrics = started.metrics("server")

        self.assertGreater(metrics["pushpull_push_in_place_bytes_total"], 0)
        # The first gradient of each step is copied, and those of the first steps.
        self.assertLess(metrics["pushpull_push_in_place_bytes_total"],
                        metrics['pushpull_push_bytes_total{channel="shm"}'])
        self.assertEqual(self.left_there(), [])

    def test_registered_gradients_are_copied_over_sockets(self) -> None:
        started = self.run_registered("tcp", "--steps", 30)

        self.assertEqual(started.finish(), 0, started.launcher.output)

    def test_registered_gradients_give_the_bits_of_sockets(self) -> None:
        weights = []
        for channel in ("auto", "tcp"):
            file = self.folder / f"{channel}.weights"
            started = self.run_registered(channel, "--steps", 30, "--optimizer", "adam", "--weights",
                                          file, workers=3, sync={"deterministic": True})

            self.assertEqual(started.finish(), 0, started.launcher.output)
            weights.append(file.read_bytes())

        self.assertGreater(len(weights[0]), 1_000_000)
        self.assertTrue(weights[0] == weights[1])

    def test_job_survives_members_with_registered_memory(self) -> None:
        started = self.run_registered("auto", "--steps", 400, "--step-milliseconds", 50,
                                      "--optimizer", "sgd", size=self.SMALL, restart=QUICK_RESTARTS)
        started.wait_for_step(20)

        started.kill_and_await_next("worker", 1)
        started.wait_for_step(60)
        started.kill_and_await_next("server", 1)
        started.wait_for_step(100)
        self.assertEqual(self.left_there(), [])

        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertEqual(self.left_there(), [])

    def test_sums_are_read_where_the_servers_have_them(self) -> None:
        started = self.run_registered("auto", "--in-place", 1, "--steps", 300, "--step-milliseconds", 50,
                                      size=self.SMALL)
        started.wait_for_step(50)
        pid = started.endpoint("worker")["pid"]

        mapped = pathlib.Path(f"/proc/{pid}/maps").read_text()

        # Its own gradients, and what servers have made; of those nothing can be written.
        modes = {line.split()[1] for line in mapped.splitlines() if "/memfd:pushpull-" in line}
        self.assertEqual(modes, {"rw-s", "r--s"})
        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertEqual(self.left_there(), [])

    def test_sums_in_place_are_right_while_servers_come_and_go(self) -> None:
        started = self.run_registered("auto", "--in-place", 1, "--steps", 1000, "--step-milliseconds", 50,
                                      size=self.SMALL)
        started.wait_for_step(20)

        for servers in (3, 2, 4):
            self.assertEqual(started.scale(servers, "--wait").returncode, 0)

        self.assertEqual(started.finish(), 0, started.launcher.output)

    def test_sums_in_place_are_bitwise_those_of_sockets(self) -> None:
        weights = []
        for channel in ("auto", "tcp"):
            file = self.folder / f"{channel}.weights"
            spec = self.spec("--registered", 1, "--in-place", 1, "--steps", 30, *self.LARGE, "--weights", file, workers=3,
                             sync={"deterministic": True})
            # Its values are mixed, not those whose sum the probe knows.
            started = self.run_on(channel, spec=spec, PROBE_IGNORES_SUMS="1")

            self.assertEqual(started.finish(), 0, started.launcher.output)
            weights.append(file.read_bytes())

        self.assertGreater(len(weights[0]), 1_000_000)
        self.assertTrue(weights[0] == weights[1])

    def test_killed_job_leaves_no_registered_memory(self) -> None:
        started = self.run_registered("auto", "--steps", 1_000_000, "--step-milliseconds", 5, size=self.SMALL)
        started.wait_for_step(20)

        self.kill_everything()

        self.assertEqual(self.left_there(), [])

    def test_an_unknown_channel_is_named(self) -> None:
        started = self.run_on("rdma")

        self.assertNotEqual(started.launcher.wait(60), 0)
        self.assertIn("PUSHPULL_CHANNEL: must be auto, tcp or grpc", started.launcher.output)


if __name__ == "__main__":
    unittest.main()
