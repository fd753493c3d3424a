# SPDX-License-Identifier: Apache-2.0
"""A claim that cannot be written, or has no room: the job says so and trains on; a suspension waits for it, and members that a
drain takes away take no step along. What is saved in the end is what the job goes on from, bit for bit."""
import json
import unittest
from typing import Any, Callable

from api_server import job, wait_until
from nodes import FINISH_SECONDS, PROBE_IMAGE, START_SECONDS, NodeCase, cluster, conditions, get, is_true, kubectl, must

# The one on which a small volume is mounted.
NODE = 2
STEPS = 2000
# Three tensors, 2.4 MB, and as much again twice for the optimizer's state.
VALUES = 200_000
# A save is due after 5 s, and the operator asks a running coordinator every 30 s.
TOLD_SECONDS = 60


class ClaimTest(NodeCase):

    undisturbed = b""  # the weights of a job to which nothing happens; made by the first test that needs them

    def apply_counted(self, name: str, **spec: Any) -> None:
        """Its worker 0 writes the last weights to the test's folder."""
        command = ["probe_worker", "--steps", STEPS, "--values", VALUES, "--optimizer", "adam", "--step-milliseconds", 100,
                   "--until", "/test/finish", "--weights", f"/test/{name}"]
        template = {"spec": {"containers": [{"name": "worker", "volumeMounts": [{"name": "test", "mountPath": "/test"}]}],
                             "volumes": [{"name": "test", "hostPath": {"path": str(self.folder)}}]}}
        self.apply(job(name, image=PROBE_IMAGE, command=[str(word) for word in command],
                       workers={"replicas": 2, "template": template}, servers={"replicas": 2, "replication": 1},
                       sync={"deterministic": True}, restart={"initialDelaySeconds": 0}, **spec))

    def set(self, name: str, **spec: object) -> None:
        must(kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": spec})))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return conditions(get("tj", name)).get(kind, {"status": "", "reason": "", "message": ""})

    def weights(self, name: str) -> bytes:
        self.finish()
        must(kubectl("wait", "--for=condition=Complete", f"--timeout={FINISH_SECONDS}s", f"tj/{name}"))
        return (self.folder / name).read_bytes()

    def assert_no_step_is_lost(self, name: str, why: str, drain: Callable[[], None], mend: Callable[[], None], **spec: Any) -> None:
        """Of a job whose claim of the same name cannot take a checkpoint until `mend`."""
        self.apply_counted(name, checkpoint={"claim": name, "everySeconds": 5}, **spec)
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", f"tj/{name}"))
        took = self.await_job(name, lambda status: is_true({"status": status}, "CheckpointFailed"), TOLD_SECONDS, "the claim is told")
        told = self.condition(name, "CheckpointFailed")["message"]
        self.say(f"told after {took:.1f} s: {told}")
        self.assertIn(why, told)
        self.assertIn("/checkpoints/", told)
        self.assertNotEqual(self.events("SaveFailed", name), [])

        self.trains(name)
        drain()
        self.await_members(name)
        self.set(name, suspend=True)
        wait_until(lambda: self.condition(name, "Suspended")["reason"] == "SaveFailed", 60, "the suspension waits")
        self.assertIn(why, self.condition(name, "Suspended")["message"])
        self.trains(name)

        mend()
        wait_until(lambda: is_true(get("tj", name), "Suspended"), START_SECONDS, "suspended")
        status = self.status(name)
        saved = status["checkpoint"]["step"]
        self.assertLess(saved, STEPS)
        self.assertEqual(self.events("StepsLost", name), [])
        self.set(name, suspend=False)
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", f"tj/{name}"))
        wait_until(lambda: self.step(name) > saved, 30, f"steps after {saved}")
        found = self.weights(name)

        if not ClaimTest.undisturbed:
            self.apply_counted("undisturbed")
            ClaimTest.undisturbed = self.weights("undisturbed")
        self.assertEqual(found, ClaimTest.undisturbed)
        self.say(f"suspended at step {saved} of {STEPS}; {len(found)} bytes of weights are those of a job that nothing happened to")

    def test_full_claim_costs_no_step(self) -> None:
        folder = self.create_claim("cramped")
        cluster("in", NODE, "mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", folder)
        self.addCleanup(cluster, "in", NODE, "umount", "-l", folder)

        def drain() -> None:
            # What a drain does with a member; the volume is on this node alone.
            must(kubectl("delete", "pod", "cramped-server-1", "--timeout=100s"))

        def mend() -> None:
            cluster("in", NODE, "mount", "-o", "remount,size=64m", folder)

        self.assert_no_step_is_lost("cramped", "No space left", drain=drain, mend=mend,
                                    podDefaults={"nodeSelector": {"kubernetes.io/hostname": f"node{NODE}"}})

    def test_unwritable_claim_costs_no_step(self) -> None:
        folder = self.create_claim("locked")
        folder.chmod(0o555)

        def drain() -> None:
            # Steps without a worker that is drained as well have other sums.
            node = self.pods("locked")["locked-server-1"]["spec"]["nodeName"]
            self.addCleanup(kubectl, "uncordon", node)
            must(kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s",
                         "--pod-selector=pushpull.dev/job=locked,app.kubernetes.io/component=server"))
            must(kubectl("uncordon", node))

        self.assert_no_step_is_lost("locked", "Permission denied", drain=drain, mend=lambda: folder.chmod(0o777))


if __name__ == "__main__":
    unittest.main()
