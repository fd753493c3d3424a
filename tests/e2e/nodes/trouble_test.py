# SPDX-License-Identifier: Apache-2.0
"""What keeps members from running, and what ends them: the job's conditions and events say it within half a minute."""
import unittest
from typing import Any

from api_server import job, wait_until
from nodes import PROBE_IMAGE, START_SECONDS, NodeCase, conditions, get, kubectl, must

TOLD_SECONDS = 30
LONGEST_GAP_SECONDS = 1.0


class TroubleTest(NodeCase):

    def await_told(self, name: str, condition: str, reason: str, *words: str) -> None:
        """By a condition of the job, that is true or, for Reconciled, false; and by an event about it."""
        def is_told(status: dict[str, Any]) -> bool:
            found = conditions({"status": status}).get(condition, {})
            wanted = "False" if condition == "Reconciled" else "True"
            return found.get("status") == wanted and found["reason"] == reason and all(word in found["message"] for word in words)
        took = self.await_job(name, is_told, TOLD_SECONDS, f"{name}: {condition} {reason} {words}")
        wait_until(lambda: bool(self.events(reason, name)), 10, f"an event {reason}")
        self.say(f"{reason} told after {took:.1f} s")

    def test_image_that_does_not_exist(self) -> None:
        self.apply_job("imageless", image="localhost/nobody-has-this:1")
        self.await_told("imageless", "Degraded", "ImagePullBackOff", "nobody-has-this")

    def test_unschedulable(self) -> None:
        self.apply_job("homeless", workers={"resources": {"requests": {"cpu": "1000"}}})
        self.await_told("homeless", "Degraded", "Unschedulable", "homeless-worker-", "Insufficient cpu")

    def test_claim_that_is_missing_and_comes(self) -> None:
        self.apply_job("claimless", checkpoint={"claim": "claimless"})
        self.await_told("claimless", "Degraded", "Unschedulable", "claimless")
        self.create_claim("claimless")
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/claimless"))
        self.finish_job("claimless")

    def test_secret_that_is_missing(self) -> None:
        self.expected_trouble = ["there is no Secret default/secretless"]
        self.apply_job("secretless", security={"secretName": "secretless"})
        self.await_told("secretless", "Reconciled", "SecretMissing", "secretless")
        self.assertEqual(self.pods("secretless"), {})

    def test_oom_killed_container_is_reported_and_counted(self) -> None:
        # Of a program that takes 400 MB and is given 100.
        command = ["probe_worker", "--steps", "1000", "--values", "100000000", "--tensors", "1", "--optimizer", "sgd"]
        manifest = job("hungry", image=PROBE_IMAGE, command=command,
                       workers={"replicas": 1, "resources": {"limits": {"memory": "100Mi"}}},
                       restart={"backoffLimit": 1, "initialDelaySeconds": 0})
        self.apply(manifest)

        def is_counted(status: dict[str, Any]) -> bool:
            last = status.get("restarts", {}).get("last", {})
            return last.get("reason") == "OOMKilled" and last.get("exitCode") == 137
        took = self.await_job("hungry", is_counted, TOLD_SECONDS, "hungry: OOMKilled is counted")
        self.say(f"OOMKilled told after {took:.1f} s")
        self.assertNotEqual(self.events("OOMKilled", "hungry"), [])
        must(kubectl("wait", "--for=condition=Failed", "--timeout=60s", "tj/hungry"))
        self.assertIn("OOMKilled", conditions(get("tj", "hungry"))["Failed"]["message"])

    def test_drained_node_gives_its_members_back_in_order(self) -> None:
        self.start_job("drained", servers={"replicas": 2}, restart={"initialDelaySeconds": 0})
        self.trains("drained")
        node = self.pods("drained")["drained-server-1"]["spec"]["nodeName"]
        there = {name for name, pod in self.pods("drained").items() if pod["spec"]["nodeName"] == node}
        before = self.uids("drained")
        self.addCleanup(kubectl, "uncordon", node)

        must(kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s",
                     "--pod-selector=pushpull.dev/job=drained"))

        def are_elsewhere() -> bool:
            pods = self.pods("drained")
            return all(name in pods and pods[name]["metadata"]["uid"] != before[name] for name in there)
        wait_until(are_elsewhere, START_SECONDS, f"others than {there}")
        self.await_members("drained")
        self.trains("drained")
        status = self.finish_job("drained")
        self.assertEqual(status["restarts"].get("counted", 0), 0, status)
        self.assertEqual(status["restarts"]["disruptions"], len(there), status)
        for name in ("drained-worker-0", "drained-worker-1"):
            if name not in there:
                self.assertLess(self.longest_step(name), LONGEST_GAP_SECONDS)


if __name__ == "__main__":
    unittest.main()
