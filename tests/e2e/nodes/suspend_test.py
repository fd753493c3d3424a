# SPDX-License-Identifier: Apache-2.0
"""A job is saved on a volume, goes, and comes back with another number of servers."""
import json
import re
import unittest
from typing import Any

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

    def test_a_suspension_waits_until_it_can_save(self) -> None:
        folder = self.create_claim("full")
        folder.chmod(0o555)
        self.start_job("held", checkpoint={"claim": "full"})
        self.await_job("held", lambda status: is_true({"status": status}, "CheckpointFailed"), 30, "the claim is told")
        self.assertIn("/checkpoints/", self.condition("held", "CheckpointFailed")["message"])
        self.trains("held")

        self.set("held", suspend=True)
        wait_until(lambda: self.condition("held", "Suspended")["reason"] == "SaveFailed", 60, "held")
        self.trains("held")
        folder.chmod(0o777)
        wait_until(lambda: is_true(get("tj", "held"), "Suspended"), START_SECONDS, "suspended")
        saved = self.status("held")["checkpoint"]["step"]

        self.set("held", suspend=False)
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/held"))
        wait_until(lambda: self.step("held") > saved, 30, f"steps after {saved}")
        self.finish_job("held")

    def test_ring_goes_on_from_what_its_workers_have_saved(self) -> None:
        self.create_claim("ringed")
        self.start_job("ringed", servers={"replicas": 0}, sync={"mode": "AllReduce"}, checkpoint={"claim": "ringed", "everySeconds": 2},
                       restart={"initialDelaySeconds": 0, "peerTimeoutSeconds": 5})
        wait_until(lambda: re.search(r"^pushpull_checkpoint_step [1-9]", self.metrics("ringed-coordinator"), re.MULTILINE),
                   START_SECONDS, "a checkpoint")

        uids = self.uids("ringed", "worker")
        for pod in uids:
            self.kill(pod)
        wait_until(lambda: all(self.uids("ringed").get(pod, uid) != uid for pod, uid in uids.items()), 60, "other workers")
        self.await_members("ringed", servers=0)
        self.trains("ringed")

        self.set("ringed", suspend=True)
        wait_until(lambda: is_true(get("tj", "ringed"), "Suspended"), START_SECONDS, "suspended")
        wait_until(lambda: self.pods("ringed") == {}, START_SECONDS, "no pods")
        saved = self.status("ringed")["checkpoint"]["step"]
        self.set("ringed", suspend=False, workers={"replicas": 3})
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/ringed"))
        wait_until(lambda: self.step("ringed") > saved, 30, f"steps after {saved}")
        status = self.finish_job("ringed")
        self.assertEqual(status["restarts"]["counted"], 2)

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        found = [it for it in self.status(name).get("conditions", []) if it["type"] == kind]
        return found[0] if found else {"reason": "", "message": ""}


if __name__ == "__main__":
    unittest.main()
