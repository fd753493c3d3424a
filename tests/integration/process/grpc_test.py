# SPDX-License-Identifier: Apache-2.0
"""Jobs whose tensors travel in streams of gRPC, and members that do not agree on it."""
import os
import pathlib
import signal
import unittest
import unittest.mock

import job
import tls_test


class GrpcTest(job.JobTestCase):

    def assert_trains(self, **variables: str) -> None:
        """Weights are bitwise those of sockets, and all bytes went through gRPC."""
        weights = []
        for channel in ("grpc", "tcp"):
            file = self.folder / f"{channel}.weights"
            spec = self.spec("--steps", 30, "--tensors", 1, "--values", 300_000, "--optimizer", "adam",
                             "--weights", file, sync={"deterministic": True})
            started = self.run_with(spec, PUSHPULL_CHANNEL=channel, **variables)
            self.assertEqual(started.finish(), 0, started.launcher.output)
            weights.append(file.read_bytes())

        self.assertGreater(len(weights[0]), 1_000_000)
        self.assertTrue(weights[0] == weights[1])

    def test_a_job_trains_exactly_as_over_sockets(self) -> None:
        self.assert_trains()

    def test_a_job_trains_over_tls_exactly_as_over_sockets(self) -> None:
        certificates = self.folder / "member"
        tls_test.Authority(self.folder / "authority").issue(certificates, days=1)
        with unittest.mock.patch.dict(os.environ, PUSHPULL_TLS_DIR=str(certificates)):
            self.assert_trains(PUSHPULL_TLS_DIR=str(certificates))

    def test_a_server_that_is_killed_is_replaced(self) -> None:
        spec = self.spec("--steps", 400, "--step-milliseconds", 50)
        spec["servers"]["replication"] = 1
        started = self.run_with(spec, PUSHPULL_CHANNEL="grpc")
        started.wait_for_step(20)
        moved = started.metrics("worker")
        started.signal_member("server", 0, signal.SIGKILL)

        self.assertEqual(started.finish(), 0, started.launcher.output)

        self.assertGreater(moved['pushpull_push_bytes_total{channel="grpc"}'], 0)
        self.assertEqual(moved['pushpull_push_bytes_total{channel="tcp"}'], 0)

    def test_a_worker_with_another_channel_is_told_what_to_set(self) -> None:
        program = self.folder / "worker"
        spec = self.spec("--steps", 30, restart={"backoffLimit": 0})
        program.write_text('#!/bin/sh\nPUSHPULL_CHANNEL=tcp exec "$0.real" "$@"\n', "utf-8")
        program.chmod(0o755)
        pathlib.Path(f"{program}.real").symlink_to(spec["command"][0])
        spec["command"][0] = str(program)
        started = self.run_with(spec, PUSHPULL_CHANNEL="grpc")

        self.assertNotEqual(started.launcher.wait(60), 0)
        self.assertIn("uses gRPC for tensors, and this side does not", started.launcher.output)
        self.assertIn("PUSHPULL_CHANNEL", started.launcher.output)


if __name__ == "__main__":
    unittest.main()
