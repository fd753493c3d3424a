# SPDX-License-Identifier: Apache-2.0
"""A claim without room: the job says so and trains on; a suspension waits for it, and no server that is drained takes a step
along. What was saved is what the job goes on from, bit for bit."""
import json
import pathlib
import unittest
from typing import Any

from api_server import job, wait_until
from nodes import PROBE_IMAGE, START_SECONDS, NodeCase, cluster, conditions, get, is_true, kubectl, must

NODE = 2
STEPS = 2500
# Three tensors, 2.4 MB.
VALUES = 200_000
TOLD_SECONDS = 30
END_SECONDS = 120


class ClaimTest(NodeCase):

    def apply_counted(self, name: str, **spec: Any) -> None:
        """Its worker 0 writes the last weights to the test's folder."""
        command = ["probe_worker", "--steps", STEPS, "--values", VALUES, "--optimizer", "adam", "--step-milliseconds", 20,
                   "--until", "/test/finish", "--weights", f"/test/{name}"]
        template = {"spec": {"containers": [{"name": "worker", "volumeMounts": [{"name": "test", "mountPath": "/test"}]}],
                             "volumes": [{"name": "test", "hostPath": {"path": str(self.folder)}}]}}
        self.apply(job(name, image=PROBE_IMAGE, command=[str(word) for word in command],
                       workers={"replicas": 2, "template": template}, servers={"replicas": 2, "replication": 1},
                       sync={"deterministic": True}, restart={"initialDelaySeconds": 0}, **spec))
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", f"tj/{name}"))

    def set(self, name: str, **spec: object) -> None:
        must(kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": spec})))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return conditions(get("tj", name)).get(kind, {"status": "", "reason": "", "message": ""})

    def weights(self, name: str) -> bytes:
        self.finish()
        must(kubectl("wait", "--for=condition=Complete", f"--timeout={END_SECONDS}s", f"tj/{name}"))
        return (self.folder / name).read_bytes()

    def mount(self, folder: pathlib.Path, options: str) -> None:
        cluster("in", NODE, "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)

    def test_full_claim_costs_no_step(self) -> None:
        folder = self.create_claim("cramped")
        self.mount(folder, "size=1m,mode=777")
        self.addCleanup(cluster, "in", NODE, "umount", folder)
        self.apply_counted("cramped", checkpoint={"claim": "cramped", "everySeconds": 5},
                           podDefaults={"nodeSelector": {"kubernetes.io/hostname": f"node{NODE}"}})

        took = self.await_job("cramped", lambda status: is_true({"status": status}, "CheckpointFailed"), TOLD_SECONDS, "the claim is told")
        told = self.condition("cramped", "CheckpointFailed")["message"]
        self.say(f"told after {took:.1f} s: {told}")
        self.assertIn("No space left", told)
        self.assertIn("/checkpoints/", told)

        self.trains("cramped")
        must(kubectl("delete", "pod", "cramped-server-1", "--timeout=60s"))  # a drain, for its server
        self.await_members("cramped")
        self.set("cramped", suspend=True)
        wait_until(lambda: self.condition("cramped", "Suspended")["reason"] == "SaveFailed", 60, "the suspension waits")
        self.say(f"Suspended: {self.condition('cramped', 'Suspended')['message']}")
        self.trains("cramped")

        self.mount(folder, "remount,size=64m")
        wait_until(lambda: is_true(get("tj", "cramped"), "Suspended"), START_SECONDS, "suspended")
        saved = self.status("cramped")["checkpoint"]["step"]
        self.assertLess(saved, STEPS)
        self.set("cramped", suspend=False)
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/cramped"))
        wait_until(lambda: self.step("cramped") > saved, 30, f"steps after {saved}")
        found = self.weights("cramped")

        self.apply_counted("roomy")
        self.assertEqual(found, self.weights("roomy"), "the weights are those of a job that nothing happened to")
        self.say(f"suspended at step {saved} of {STEPS}, {len(found)} bytes of weights are equal")


if __name__ == "__main__":
    unittest.main()
