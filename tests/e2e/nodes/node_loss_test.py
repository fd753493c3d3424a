# SPDX-License-Identifier: Apache-2.0
"""A node crashes, is cut off, and comes back: its members are replaced elsewhere, and what comes back with it changes
nothing."""
import time
import unittest

from api_server import wait_until
from nodes import NodeCase, cluster, conditions, get, kubectl, must

NODE_LOST_AFTER = 10
# Of the contract: from the node's Ready leaving True until its members run elsewhere.
REPLACED_SECONDS = NODE_LOST_AFTER + 30
# Until Kubernetes notices: 19 s of grace here, and then some on a busy machine.
NOTICED_SECONDS = 60
VICTIM = 3
# One server each on node2 and node3; workers and coordinator are anywhere.
SPREAD = {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node1"]}]}]}}}}}


def is_ready(node: str) -> bool:
    return conditions(get("node", node)).get("Ready", {}).get("status") == "True"


class NodeLossTest(NodeCase):

    def setUp(self) -> None:
        super().setUp()
        self.expected_trouble = ["coordinator", "lost", "timeout", "deadline", "onnection"]  # of a node that is not there
        self.addCleanup(self.await_nodes)

    def await_nodes(self) -> None:
        wait_until(lambda: all(is_ready(f"node{i}") for i in (1, 2, 3)), 120, "all nodes are ready")

    def start(self, name: str, lost_after: int = NODE_LOST_AFTER) -> dict[str, str]:
        """The members on the victim, with their pods' uids."""
        self.start_job(name, servers={"replicas": 2, "replication": 1, "template": SPREAD}, step_milliseconds=50, sync={"gated": True},
                       restart={"nodeLostAfterSeconds": lost_after, "peerTimeoutSeconds": 5, "initialDelaySeconds": 0})
        members = {pod: what for pod, what in self.pods(name).items() if what["spec"]["nodeName"] == f"node{VICTIM}"}
        self.assertNotEqual(members, {})
        self.trains(name)
        return {pod: what["metadata"]["uid"] for pod, what in members.items()}

    def await_replacements(self, name: str, lost: dict[str, str]) -> None:
        wait_until(lambda: not is_ready(f"node{VICTIM}"), NOTICED_SECONDS, "Kubernetes notices")
        begin = time.monotonic()

        def are_replaced() -> bool:
            pods = self.pods(name)
            return all(pod in pods and pods[pod]["metadata"]["uid"] != uid for pod, uid in lost.items())
        wait_until(are_replaced, REPLACED_SECONDS, f"other pods than {lost}")
        self.await_members(name, REPLACED_SECONDS)
        took = time.monotonic() - begin
        self.say(f"{sorted(lost)} run elsewhere {took:.1f} s after the node was seen lost")
        self.assertLess(took, REPLACED_SECONDS)
        self.trains(name)

    def check_end(self, name: str, before: dict[str, str]) -> None:
        self.trains(name, steps=20)
        pods = self.pods(name)
        self.assertEqual(len(pods), 5, list(pods))
        self.assertEqual(self.uids(name), before)
        # A worker and a server that die in the same step are what a gated step does not cover.
        status = self.finish_job(name, repeated=self.samples // 20)
        self.assertEqual(status["restarts"].get("counted", 0), 0, f"a lost node is nobody's failure: {status['restarts']}")
        self.assertGreaterEqual(status["restarts"]["disruptions"], 1)

    def test_members_of_a_crashed_node_are_replaced_once(self) -> None:
        lost = self.start("crashed")
        cluster("crash", VICTIM)
        self.addCleanup(self.bring_back)
        self.await_replacements("crashed", lost)
        uids = self.uids("crashed")
        self.bring_back()
        self.await_nodes()
        self.check_end("crashed", uids)

    def bring_back(self) -> None:
        if not is_ready(f"node{VICTIM}"):
            cluster("start", VICTIM)

    def test_node_that_starts_anew_costs_no_restart(self) -> None:
        # In time: Kubernetes does not even take its pods away.
        lost = self.start("rebooted", lost_after=300)
        cluster("crash", VICTIM)
        self.addCleanup(self.bring_back)
        cluster("start", VICTIM)
        wait_until(lambda: all(self.uids("rebooted").get(pod, uid) != uid for pod, uid in lost.items()), NOTICED_SECONDS,
                   f"other pods than {lost}")
        self.await_members("rebooted")
        self.check_end("rebooted", self.uids("rebooted"))

    def test_zombies_of_a_node_that_was_cut_off_change_nothing(self) -> None:
        lost = self.start("cut")
        cluster("cut", VICTIM)
        self.addCleanup(cluster, "heal", VICTIM)
        self.await_replacements("cut", lost)
        uids = self.uids("cut")
        cluster("heal", VICTIM)
        self.await_nodes()
        self.check_end("cut", uids)


if __name__ == "__main__":
    unittest.main()
