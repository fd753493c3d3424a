# SPDX-License-Identifier: Apache-2.0
"""A namespace as platform teams make them: a quota on cpu and memory, Pod Security `restricted`, a private registry, and
nodes that only some may use. The example runs there with the values of docs/running-jobs.md."""
import json
import pathlib
import re
import subprocess
import unittest
from typing import Any, Optional

from api_server import CHART, CLUSTER, ROOT, wait_until
from isolation_test import ENFORCE, TenantCase
from nodes import COUNT, IMAGES, conditions, get, kubectl, must

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = ROOT / "runtime/examples/fashion-mnist.yaml"
REGISTRY = "localhost:5006"
IMAGE = "team/fashion:1"
USER = "ml:correct horse"
POOL = "node2"
TOLD_SECONDS = 30
NAMESPACE = "fenced"
# The quota controller looks for new kinds twice a minute.
QUOTA_SECONDS = 150
JOBS_COUNTED = "count/trainingjobs.pushpull.dev"
POD_DEFAULTS = {"imagePullSecrets": [{"name": "registry"}], "nodeSelector": {"pool": "training"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}


def requests(cpu: str, memory: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}


class PlaceTest(TenantCase):

    def serve_image(self) -> None:
        """The runtime's image, on the node of the pool, for who has the password."""
        registry = subprocess.Popen(
            [CLUSTER, "net", POOL.removeprefix("node"), "/usr/bin/python3", HERE / "registry.py", REGISTRY.partition(":")[2],
             IMAGE, IMAGES / "runtime.tar", "--user", USER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(registry.wait, 30)
        self.addCleanup(registry.terminate)

    def fence_nodes(self) -> None:
        """Every node is for jobs that tolerate its taint; one has the label of the pool."""
        for number in range(1, COUNT + 1):
            must(kubectl("taint", "node", f"node{number}", "nvidia.com/gpu=present:NoSchedule"))
            self.addCleanup(kubectl, "taint", "node", f"node{number}", "nvidia.com/gpu-")
        must(kubectl("label", "node", POOL, "pool=training"))
        self.addCleanup(kubectl, "label", "node", POOL, "pool-")

    def apply_quota(self) -> None:
        """And waits until it is counted by: before that the API server refuses every job."""
        must(kubectl("apply", "-n", NAMESPACE, "-f", CHART / "examples/quota.yaml"))

        def counts_jobs() -> bool:
            return JOBS_COUNTED in get("resourcequota", "pushpull", "-n", NAMESPACE).get("status", {}).get("used", {})
        wait_until(counts_jobs, QUOTA_SECONDS, f"the quota has {JOBS_COUNTED}")

    def apply_example(self, name: str, *patches: dict[str, Any]) -> None:
        """The example under another name, with fields of its spec replaced."""
        text = EXAMPLE.read_text(encoding="utf-8").replace("name: fashion-mnist", f"name: {name}", 1)
        text = re.sub(r"image: pushpull/pushpull-runtime:\S+", f"image: {REGISTRY}/{IMAGE}", text)
        changed = json.loads(must(kubectl("create", "-f", "-", "--dry-run=client", "-o", "json", text=text)))
        del changed["metadata"]["namespace"]
        for patch in patches:
            for field, value in patch.items():
                known = changed["spec"].get(field)
                changed["spec"][field] = {**known, **value} if isinstance(known, dict) else value
        self.apply_in(NAMESPACE, changed)

    def await_told(self, name: str, reason: str, *words: str) -> None:
        def told() -> Optional[str]:
            found = conditions(get("tj", name, "-n", NAMESPACE))
            return next((it["message"] for it in found.values()
                         if it["reason"] == reason and all(word in it["message"] for word in words)), None)
        message = wait_until(told, TOLD_SECONDS, lambda: f"{name}: {reason} {words} is told: "
                                                         f"{get('tj', name, '-n', NAMESPACE).get('status')}")
        self.say(f"{name}: {reason}: {message}")

    def test_example_runs_in_a_fenced_namespace(self) -> None:
        self.expected_trouble = ["orbidden", "quota", "PodSecurity"]
        self.create_namespace(NAMESPACE, **{ENFORCE: "restricted"})
        self.apply_quota()
        must(kubectl("delete", "limitrange", "pushpull", "-n", NAMESPACE))
        name, password = USER.split(":")
        must(kubectl("create", "secret", "docker-registry", "registry", "-n", NAMESPACE, f"--docker-server={REGISTRY}",
                     f"--docker-username={name}", f"--docker-password={password}"))
        self.serve_image()
        self.fence_nodes()
        asked = {"coordinator": requests("50m", "64Mi"), "servers": requests("100m", "128Mi"), "workers": requests("100m", "512Mi")}

        # What each of the values is for.
        self.apply_example("asks-nothing", {"podDefaults": POD_DEFAULTS})
        self.await_told("asks-nothing", "Forbidden", "must specify requests.cpu")
        must(kubectl("delete", "tj", "asks-nothing", "-n", NAMESPACE, "--timeout=60s"))
        self.apply_example("tolerates-nothing", asked)
        self.await_told("tolerates-nothing", "Unschedulable", "untolerated taint")
        must(kubectl("delete", "tj", "tolerates-nothing", "-n", NAMESPACE, "--timeout=60s"))
        self.apply_example("unknown-here", asked, {"podDefaults": {**POD_DEFAULTS, "imagePullSecrets": []}})
        self.await_told("unknown-here", "ImagePullBackOff", f"{REGISTRY}/{IMAGE}")
        must(kubectl("delete", "tj", "unknown-here", "-n", NAMESPACE, "--timeout=60s"))

        self.apply_example("fashion-mnist", asked, {"podDefaults": POD_DEFAULTS})
        status = self.await_end(NAMESPACE, "fashion-mnist")
        self.say(f"{status['progress']}")
        self.assertGreater(float(status["progress"]["results"]["accuracy"]), 0.85)
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        pods = get("pods", "-n", NAMESPACE, "-l", "pushpull.dev/job=fashion-mnist")["items"]
        self.assertEqual({pod["spec"]["nodeName"] for pod in pods}, {POOL})

    def test_a_limit_range_asks_in_its_place(self) -> None:
        self.create_namespace(NAMESPACE)
        self.apply_quota()
        must(kubectl("apply", "-n", NAMESPACE, "-f", EXAMPLE))
        status = self.await_end(NAMESPACE, "fashion-mnist")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)


if __name__ == "__main__":
    unittest.main()
