# SPDX-License-Identifier: Apache-2.0
"""A job is saved on a volume, goes, and comes back with another number of servers."""
import json
import unittest

from api_server import wait_until
from nodes import START_SECONDS, NodeCase, get, is_true, kubectl, must


class SuspendTest(NodeCase):

    def set(self, name: str, **spec: object) -> None:
        must(kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": spec})))

    def test_suspended_job_goes_on_with_other_servers(self) -> None:
        self.create_claim("resting")
        self.start_job("resting", servers={"replicas": 2}, checkpoint={"claim": "resting", "everySeconds": 3600})
        self.trains("resting", steps=20)

        self.set("resting", suspend=True)
        wait_until(lambda: is_true(get("tj", "resting"), "Suspended"), START_SECONDS, "suspended")
        wait_until(lambda: self.pods("resting") == {}, START_SECONDS, "no pods")
        saved = self.status("resting")["checkpoint"]["step"]
        self.assertGreaterEqual(saved, 20)

        self.set("resting", suspend=False, servers={"replicas": 3})
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/resting"))
        self.await_members("resting", servers=3)
        wait_until(lambda: self.step("resting") > saved, 30, f"steps after {saved}")
        # Each sample counts as often as there are epochs: the values and the place in the data set are those saved.
        status = self.finish_job("resting")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)


if __name__ == "__main__":
    unittest.main()
