# SPDX-License-Identifier: Apache-2.0
"""What a user does first: installs the chart, applies a job, scales it while it trains, waits for its end."""
import json
import unittest
from typing import Any

import api_server
from api_server import CHART, wait_until
from nodes import PROBE_IMAGE, get, helm, kubectl, must

NAMESPACE = "pushpull-system"
READY_SECONDS = 60
# A minute at its pace.
STEPS, STEP_MILLISECONDS = 2000, 30


class InstallTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls) -> None:
        must(helm("install", "pushpull", CHART, "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "90s"))
        cls.addClassCleanup(helm, "uninstall", "pushpull", "--namespace", NAMESPACE, "--wait")

    def apply_job(self, name: str, **spec: Any) -> None:
        command = ["probe_worker", "--steps", str(STEPS), "--optimizer", "sgd", "--step-milliseconds", str(STEP_MILLISECONDS)]
        manifest = api_server.job(name, image=PROBE_IMAGE, command=command, **spec)
        must(kubectl("apply", "-f", "-", text=json.dumps(manifest)))
        self.addCleanup(kubectl, "delete", "tj", name, "--wait=false")

    def await_servers(self, name: str, count: int) -> None:
        def is_so() -> bool:
            status = get("tj", name).get("status", {})
            return status.get("phase") == "Running" and status.get("servers", {}).items() >= {"ready": count, "replicas": count}.items()
        wait_until(is_so, READY_SECONDS, f"{count} servers")

    def pods(self, name: str, role: str) -> dict[str, str]:
        """Of this role: names and uids."""
        selector = f"pushpull.dev/job={name},app.kubernetes.io/component={role}"
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in get("pods", "-l", selector)["items"]}

    def operator_log(self) -> str:
        return must(kubectl("logs", "-n", NAMESPACE, "deployment/pushpull", "--all-pods=true", "--tail=-1"))

    def test_job_trains_to_its_end_and_is_scaled_both_ways_meanwhile(self) -> None:
        self.apply_job("first", servers={"replicas": 2}, workers={"replicas": 2})
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={READY_SECONDS}s", "tj/first"))
        workers = self.pods("first", "worker")
        self.assertEqual(len(workers), 2)

        must(kubectl("scale", "tj/first", "--replicas=4"))
        self.await_servers("first", 4)
        must(kubectl("scale", "tj/first", "--replicas=2"))
        self.await_servers("first", 2)

        must(kubectl("wait", "--for=condition=Complete", "--timeout=180s", "tj/first"))
        status = get("tj", "first")["status"]
        self.assertEqual(status["progress"]["step"], STEPS)
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assertEqual(self.pods("first", "worker"), workers)
        log = self.operator_log()
        self.assertIn(" leads ", log)
        self.assertNotIn(" warning ", log)
        self.assertNotIn(" error ", log)


if __name__ == "__main__":
    unittest.main()
