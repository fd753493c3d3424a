# SPDX-License-Identifier: Apache-2.0
"""Thirty workers become two while they train, and no sample is lost."""
import json
import unittest

from nodes import NodeCase, kubectl, must

WORKERS, LEFT = 30, 2
# Thirty programs start on two cores.
READY_SECONDS = 240


class ShrinkTest(NodeCase):

    def set_workers(self, name: str, count: int) -> None:
        must(kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"workers": {"replicas": count}}})))

    def test_thirty_workers_become_two(self) -> None:
        self.apply_job("wide", samples=600, epochs=100, step_milliseconds=100, workers={"replicas": WORKERS})
        self.say(f"{WORKERS} workers after {self.await_members('wide', READY_SECONDS, workers=WORKERS):.0f} s")
        self.trains("wide")
        self.set_workers("wide", LEFT)
        self.say(f"{LEFT} workers after {self.await_members('wide', READY_SECONDS, workers=LEFT):.0f} s")
        self.trains("wide")
        status = self.finish_job("wide")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0, status)
        self.say(f"{status['progress']['results']}")


if __name__ == "__main__":
    unittest.main()
