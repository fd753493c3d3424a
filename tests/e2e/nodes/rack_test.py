# SPDX-License-Identifier: Apache-2.0
"""Nodes with labels of racks: the coordinator hears of them, also a new one, and replicas are in different racks."""
import json
import unittest
from typing import Any

from api_server import wait_until
from nodes import CLUSTER, START_SECONDS, NodeCase, get, kubectl, must, run

LABEL = "example.org/rack"
RACKS = {"node1": "left", "node2": "left", "node3": "right"}


class RackTest(NodeCase):

    def setUp(self) -> None:
        super().setUp()
        for node, rack in RACKS.items():
            must(kubectl("label", "node", node, f"{LABEL}={rack}"))
            self.addCleanup(kubectl, "label", "node", node, f"{LABEL}-")

    def page(self, name: str) -> dict[str, Any]:
        """What the coordinator's status page has; empty where it does not answer."""
        address = get("pod", f"{name}-coordinator").get("status", {}).get("podIP", "")
        shown = run(CLUSTER, "net", 1, "curl", "-sf", "-m", "5", f"http://{address}:9464/status.json").stdout
        return json.loads(shown) if shown else {}

    def await_racks(self, name: str) -> dict[str, Any]:
        nodes = {pod: what["spec"]["nodeName"] for pod, what in self.pods(name).items()}

        def told() -> dict[str, Any]:
            status = self.page(name)
            status = status.get("status", status)
            racks = {f"{name}-{role}-{member['index']}": member.get("rack")
                     for role in ("server", "worker") for member in status.get(f"{role}s", [])}
            are_known = bool(racks) and all(rack == RACKS[nodes[pod]] for pod, rack in racks.items())
            return status if are_known and status["shards_moving"] == 0 else {}
        return wait_until(told, START_SECONDS, lambda: f"racks of {nodes}: {self.page(name)}")

    def test_replicas_are_in_different_racks(self) -> None:
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                  "labelSelector": {"matchLabels": {"pushpull.dev/job": "racked", "app.kubernetes.io/component": "server"}}}
        # Eight chunks, so that every server has some.
        self.start_job("racked", samples=2_000_000, epochs=50, step_milliseconds=100, restart={"initialDelaySeconds": 0},
                       servers={"replicas": 3, "replication": 1, "template": {"spec": {"topologySpreadConstraints": [spread]}}},
                       workers={"replicas": 2, "topologyKey": LABEL})

        status = self.await_racks("racked")
        self.assertEqual({server["rack"] for server in status["servers"]}, {"left", "right"})
        self.assertEqual(status["shards_in_one_rack"], 0)

        uid = self.uids("racked")["racked-coordinator"]
        must(kubectl("delete", "pod", "racked-coordinator"))
        wait_until(lambda: self.uids("racked").get("racked-coordinator", uid) != uid, START_SECONDS, "another coordinator")
        self.await_members("racked", servers=3)
        self.assertEqual(self.await_racks("racked")["shards_in_one_rack"], 0)
        self.trains("racked")
        self.finish_job("racked")


if __name__ == "__main__":
    unittest.main()
