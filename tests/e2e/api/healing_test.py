# SPDX-License-Identifier: Apache-2.0
"""What others delete or change of a running job's objects is back within seconds, on a real API server."""
import base64
import itertools
import json
import time
import unittest
from typing import Any, Optional

import audit
from api_server import kubectl, wait_until
from operator_case import OperatorTestCase

_NUMBERS = itertools.count(1)
# What is promised; printed is what it took.
HEALED_SECONDS = 5.0
# The API server's own count of an object, and when and by whom it was written.
_COUNTS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def content(found: Optional[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """What somebody has written there."""
    if found is None:
        return None
    metadata = {key: value for key, value in found["metadata"].items() if key not in _COUNTS}
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": metadata}


class HealingTest(OperatorTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.operator = self.start_operator()
        # No name twice: nobody here takes the objects of a deleted job away.
        self.job = f"healed-{next(_NUMBERS)}"
        self.start_job(self.job)
        self.await_status(self.job, "it runs", phase="Running", servers={"ready": 1}, workers={"ready": 2})

    def find(self, kind: str, name: str) -> Optional[dict[str, Any]]:
        found = kubectl("get", kind, name, "-o", "json")
        return json.loads(found.stdout) if found.returncode == 0 else None

    def patch(self, kind: str, name: str, patch: Any, *flags: str) -> None:
        how = "json" if isinstance(patch, list) else "merge"
        self.must(kubectl("patch", kind, name, f"--type={how}", "-p", json.dumps(patch), *flags))

    def healed(self, what: str, condition: Any) -> None:
        begin = time.monotonic()
        wait_until(condition, HEALED_SECONDS, lambda: f"{what}{self.logs()}")
        print(f"\n      {what}: {time.monotonic() - begin:.1f} s", flush=True)

    def is_undisturbed(self) -> None:
        """Nothing of it has cost a member."""
        status = self.await_complete(self.job)
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once(*(f"{self.job}-{member}" for member in ("coordinator", "server-0", "worker-0", "worker-1")))
        reasons = self.must(kubectl("get", "events", "-o", "jsonpath={.items[*].reason}",
                                    "--field-selector", f"involvedObject.name={self.job}")).split()
        self.assertIn("Healed", reasons)

    def test_objects_that_are_deleted_are_there_again(self) -> None:
        objects = (("service", f"{self.job}-coordinator"), ("networkpolicy", self.job), ("poddisruptionbudget", f"{self.job}-servers"))
        for kind, name in objects:
            before = self.find(kind, name)

            self.must(kubectl("delete", kind, name))

            self.healed(f"{kind} deleted", lambda: content(self.find(kind, name)) == content(before))
            self.assertNotEqual(self.find(kind, name)["metadata"]["uid"], before["metadata"]["uid"])
        self.is_undisturbed()

    def test_objects_that_are_changed_are_as_they_were(self) -> None:
        changes = (("service", "-coordinator", {"spec": {"selector": {"app": "mine"}}}),
                   ("service", "-coordinator", {"spec": {"ports": [{"name": "control", "port": 7170}, {"name": "more", "port": 80}]}}),
                   ("service", "-coordinator", {"spec": {"sessionAffinity": "ClientIP", "publishNotReadyAddresses": False}}),
                   ("networkpolicy", "", {"spec": {"ingress": [{}]}}),
                   ("networkpolicy", "", {"spec": {"podSelector": {"matchLabels": {"pushpull.dev/job": "other"}}}}),
                   ("networkpolicy", "", {"metadata": {"labels": {"pushpull.dev/job": "other"}}}),
                   ("poddisruptionbudget", "-servers", {"spec": {"maxUnavailable": None, "minAvailable": 0}}),
                   ("poddisruptionbudget", "-servers", {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}),
                   ("poddisruptionbudget", "-servers", {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}))
        for kind, suffix, change in changes:
            name = self.job + suffix
            before = self.find(kind, name)

            self.patch(kind, name, change)

            self.healed(f"{kind} {json.dumps(change)}", lambda: content(self.find(kind, name)) == content(before))
            self.assertEqual(self.find(kind, name)["metadata"]["uid"], before["metadata"]["uid"])
        self.is_undisturbed()

    def test_secret_is_there_again_with_all_its_keys(self) -> None:
        before = self.find("secret", f"{self.job}-tls")

        self.patch("secret", f"{self.job}-tls", {"metadata": {"labels": {"pushpull.dev/job": None}},
                                            "data": {"server-0.key": base64.b64encode(b"odd").decode(), "worker-1.crt": None}})
        def is_whole() -> bool:
            now = self.find("secret", f"{self.job}-tls")
            return (now is not None and now["data"].keys() == before["data"].keys() and now["metadata"]["labels"] == before["metadata"]["labels"]
                    and base64.b64decode(now["data"]["server-0.key"]) != b"odd")
        self.healed("secret changed", is_whole)
        changed = self.find("secret", f"{self.job}-tls")
        for key in ("ca.crt", "ca.key", "worker-0.crt", "worker-0.key"):
            self.assertEqual(changed["data"][key], before["data"][key], key)

        self.must(kubectl("delete", "secret", f"{self.job}-tls"))
        self.healed("secret deleted", is_whole)

        # Deleted on purpose or not: the authority is a new one.
        self.assertNotEqual(self.find("secret", f"{self.job}-tls")["data"]["ca.crt"], before["data"]["ca.crt"])
        self.assertEqual(content(self.find("secret", f"{self.job}-tls"))["metadata"], content(before)["metadata"])
        self.is_undisturbed()
        self.assertEqual([one for one in audit.requests() if one.resource == "secrets" and one.verb in ("list", "watch")], [])
        self.assertNotIn("server-0.key", self.operator.log())

    def test_labels_of_pods_are_as_they_were(self) -> None:
        for member, change in (("server-0", {"pushpull.dev/index": "7"}), ("worker-0", {"app.kubernetes.io/component": "server"}),
                               ("worker-1", {"pushpull.dev/job": "other"}), ("server-0", {"app.kubernetes.io/managed-by": None}),
                               ("coordinator", {"pushpull.dev/job": None})):
            name = f"{self.job}-{member}"
            before = self.find("pod", name)

            self.patch("pod", name, {"metadata": {"labels": change}})

            self.healed(f"{name} {change}",
                        lambda: self.find("pod", name)["metadata"]["labels"] == before["metadata"]["labels"])
        self.await_status(self.job, "it runs", phase="Running", servers={"ready": 1}, workers={"ready": 2})
        self.is_undisturbed()

    def test_status_is_what_is_true(self) -> None:
        before = self.status(self.job)
        for change in ({"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"},
                       {"phase": "Failed", "restarts": {"counted": 99}},
                       {"coordinator": {"term": 90, "ready": False}, "servers": {"replicas": 0, "ready": 0}, "conditions": []}):
            self.patch_status(self.job, **change)

            def is_true() -> bool:
                now = self.status(self.job)
                counted = [status.get("restarts", {}).get("counted", 0) for status in (before, now)]
                same = ("phase", "completionTime", "coordinator", "servers")
                return counted == [0, 0] and all(now.get(key) == before.get(key) for key in same) and (
                    {one["type"]: one["status"] for one in now["conditions"]} == {one["type"]: one["status"] for one in before["conditions"]})
            self.healed(f"status {sorted(change)}", is_true)
        self.is_undisturbed()


if __name__ == "__main__":
    unittest.main()
