# SPDX-License-Identifier: Apache-2.0
"""Members of a job die, alone and together with the operator. Nothing is lost, and every death is counted once."""
import unittest

from api_server import wait_until
from nodes import SYSTEM, NodeCase, get, kubectl, must

# Restarts come at once, for what they count is the same.
QUICK = {"initialDelaySeconds": 0, "peerTimeoutSeconds": 5}


class MemberTest(NodeCase):

    def start(self, name: str) -> None:
        # Gated: a step that a worker dies in counts in all parameters, or in none.
        self.start_job(name, servers={"replicas": 2, "replication": 1}, restart=QUICK, sync={"gated": True})
        self.trains(name)

    def await_another(self, name: str, pod: str, uid: str) -> None:
        wait_until(lambda: self.uids(name).get(pod, uid) != uid, 60, f"another pod {pod} than {uid}")
        self.say(f"{pod}: all there again {self.await_members(name):.1f} s after the new pod")
        self.trains(name)

    def test_pods_that_are_deleted_are_replaced(self) -> None:
        self.start("deleted")
        for pod in ("deleted-server-1", "deleted-worker-1", "deleted-coordinator"):
            uid = self.uids("deleted")[pod]
            must(kubectl("delete", "pod", pod, "--wait=false"))
            self.await_another("deleted", pod, uid)
        status = self.finish_job("deleted")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)

    def test_members_that_are_killed_are_counted_and_replaced(self) -> None:
        self.start("killed")
        for count, pod in enumerate(("killed-server-1", "killed-worker-1", "killed-coordinator"), start=1):
            uid = self.uids("killed")[pod]
            self.kill(pod)
            self.await_another("killed", pod, uid)
            restarts = self.status("killed")["restarts"]
            self.assertEqual(restarts["counted"], count)
            self.assertEqual(restarts["last"]["pod"], pod)
            self.assertEqual(restarts["last"]["exitCode"], 137)
        self.finish_job("killed")

    def test_ring_goes_on_without_workers_that_die(self) -> None:
        self.start_job("ring", servers={"replicas": 0}, workers={"replicas": 3}, restart=QUICK, sync={"mode": "AllReduce"})
        self.trains("ring")
        self.assertEqual(self.pods("ring", "server"), {})
        self.assertEqual(kubectl("get", "pdb", "ring-servers").returncode, 1)
        for pod in ("ring-worker-1", "ring-coordinator", "ring-worker-0"):
            uid = self.uids("ring")[pod]
            self.kill(pod)
            wait_until(lambda: self.uids("ring").get(pod, uid) != uid, 60, f"another pod {pod} than {uid}")
            self.await_members("ring", servers=0, workers=3)
            self.trains("ring")
        status = self.finish_job("ring")
        self.assertEqual(status["restarts"]["counted"], 3)

    def test_deaths_around_an_operators_death_count_once(self) -> None:
        self.expected_trouble = ["connection", "lease"]  # the leader's end is seen
        self.start("unwatched")
        uid = self.uids("unwatched")["unwatched-worker-1"]
        self.kill("unwatched-worker-1")
        self.kill_operator()
        self.await_another("unwatched", "unwatched-worker-1", uid)
        uid = self.uids("unwatched")["unwatched-server-0"]
        self.kill_operator()
        self.kill("unwatched-server-0")
        self.await_another("unwatched", "unwatched-server-0", uid)
        self.assertEqual(self.status("unwatched")["restarts"]["counted"], 2)
        self.finish_job("unwatched")

    def tearDown(self) -> None:
        # An operator that was killed is back before the next test.
        wait_until(lambda: get("deployment", "-n", SYSTEM, "pushpull")["status"].get("readyReplicas") == 2, 120,
                   "both operators ready")


if __name__ == "__main__":
    unittest.main()
