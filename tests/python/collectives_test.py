# SPDX-License-Identifier: Apache-2.0
"""Collectives as a user has them: real processes, `pushpull run`, NumPy and the torch of the system.

Run by the Python of an environment that has the wheel and torch; `./dev python` makes one (__main__.py beside this).
"""
import json
import os
import signal
import threading
import time
import unittest
from unittest import mock

from package_test import HERE, PUSHPULL, RUN_SECONDS, JobTest, run


class CollectivesTest(JobTest):
    SCENARIOS = HERE / "collectives_scenarios.py"

    def test_every_dtype_and_size_through_shared_memory(self) -> None:
        self.run_scenario("arrays")

    def test_every_dtype_and_size_through_sockets(self) -> None:
        with mock.patch.dict(os.environ, PUSHPULL_SHM_DIR=""):
            self.run_scenario("arrays")

    def test_float16_and_bfloat16_through_shared_memory(self) -> None:
        self.run_scenario("halves")

    def test_float16_and_bfloat16_through_sockets(self) -> None:
        with mock.patch.dict(os.environ, PUSHPULL_SHM_DIR=""):
            self.run_scenario("halves")

    def test_numbers_and_bytes(self) -> None:
        self.run_scenario("values")

    def test_errors_name_what_was_called_and_expected(self) -> None:
        self.run_scenario("errors")

    def test_workers_agree_on_a_stop_between_steps(self) -> None:
        report = self.run_scenario("in_steps")

        self.assertEqual(report["final"]["stopped_after"], 5)

    def test_the_others_go_on_when_a_worker_dies(self) -> None:
        report = self.run_scenario("a_worker_dies", workers=3)

        self.assertEqual(report["restarts"], 1)
        self.assertEqual(report["final"]["workers_in_the_end"], 3)

    def test_a_server_that_is_killed_changes_nothing(self) -> None:
        killed = threading.Thread(target=self.kill_a_server)
        killed.start()

        report = self.run_scenario("through_a_failure", servers=3, settings=("spec.servers.replication=1",))

        killed.join()
        self.assertEqual(report["final"]["calls"], 10_000)
        self.assertGreaterEqual(report["restarts"], 1)

    def test_a_resize_changes_nothing(self) -> None:
        scaled = threading.Thread(target=self.scale)
        scaled.start()

        report = self.run_scenario("through_a_failure", servers=2)

        scaled.join()
        self.assertEqual(report["final"]["calls"], 10_000)
        self.assertEqual(len(report["resizes"]), 1)

    def test_messages_of_every_kind_and_size(self) -> None:
        self.run_scenario("messages")

    def test_errors_of_messages_name_both_workers(self) -> None:
        self.run_scenario("message_errors")

    def test_a_ring_shift_goes_on_when_a_server_is_killed(self) -> None:
        killed = threading.Thread(target=self.kill_a_server, args=["ring-shift"])
        killed.start()

        report = self.run_scenario("ring_shift", workers=4, servers=3, settings=("spec.servers.replication=1",))

        killed.join()
        self.assertEqual(report["final"]["shifts"], 400)
        self.assertGreaterEqual(report["restarts"], 1)

    def test_a_partner_that_dies_is_named(self) -> None:
        report = self.run_scenario("a_partner_dies")

        self.assertEqual(report["restarts"], 1)
        self.assertEqual(report["final"]["swapped_with_the_new_one"], 1)

    def kill_a_server(self, job: str = "through-a-failure") -> None:
        server = next(each for each in self.endpoints(job) if each["role"] == "server" and each["index"] == 1)
        os.kill(server["pid"], signal.SIGKILL)

    def scale(self) -> None:
        self.endpoints()
        done = run(PUSHPULL, "scale", "--servers", "4", "--workdir", self.folder / ".pushpull/through-a-failure")
        self.assertEqual(done.returncode, 0, done.stdout)

    def endpoints(self, job: str = "through-a-failure") -> list[dict]:
        """Of the members, when the workers exchange."""
        deadline = time.monotonic() + RUN_SECONDS
        while not (self.folder / "exchanging").exists():
            self.assertLess(time.monotonic(), deadline)
            threading.Event().wait(0.01)
        found: list[dict] = json.loads((self.folder / ".pushpull" / job / "endpoints.json").read_text())
        return found


if __name__ == "__main__":
    unittest.main()
