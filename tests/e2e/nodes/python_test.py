# SPDX-License-Identifier: Apache-2.0
"""The PyTorch example, in the image of `./dev image python`, while servers come and go and a worker dies."""
import json
import re
import unittest

import nodes
from api_server import ROOT, wait_until
from nodes import IMAGES, START_SECONDS, NodeCase, is_true, kubectl, must

EXAMPLE = ROOT / "runtime/examples/torch-fashion-mnist.yaml"
EPOCHS = 15
COMPLETE_SECONDS = 400
ACCURACY = 0.88


@unittest.skipUnless((IMAGES / "python.tar").exists(), "no build/images/python.tar: ./dev image python makes it, with PyPI")
class PythonTest(NodeCase):

    @classmethod
    def setUpClass(cls) -> None:
        nodes.cluster("load", IMAGES / "python.tar")

    def test_torch_example_trains_while_members_come_and_go(self) -> None:
        job = json.loads(must(kubectl("create", "--dry-run=client", "-o", "json", "-f", EXAMPLE)))
        name = job["metadata"]["name"]
        # Enough of them for everything that happens meanwhile.
        job["spec"]["env"].append({"name": "EPOCHS", "value": str(EPOCHS)})
        job["spec"]["restart"] = {"initialDelaySeconds": 0}
        self.apply(job)
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", f"tj/{name}"))
        self.trains(name)

        must(kubectl("scale", f"tj/{name}", "--replicas=4"))
        self.say(f"four servers after {self.await_members(name, servers=4):.1f} s")
        self.trains(name)
        worker = f"{name}-worker-1"
        uid = self.uids(name)[worker]
        self.kill(worker)
        wait_until(lambda: self.uids(name).get(worker, uid) != uid, START_SECONDS, f"another pod {worker} than {uid}")
        self.say(f"another {worker} after {self.await_members(name, servers=4):.1f} s")
        self.trains(name)
        must(kubectl("scale", f"tj/{name}", "--replicas=2"))
        self.say(f"two servers again after {self.await_members(name):.1f} s")
        self.say(f"step {self.step(name)}")
        seconds = self.await_job(name, lambda status: is_true({"status": status}, "Complete"), COMPLETE_SECONDS, f"{name} is complete")
        self.say(f"complete {seconds:.0f} s later")

        self.assertEqual(self.status(name)["restarts"]["counted"], 1)
        for pod in self.uids(name, "worker"):
            accuracy = re.findall(r"test accuracy (\S+)", must(kubectl("logs", pod)))[-1]
            self.say(f"{pod}: test accuracy {accuracy}")
            self.assertGreaterEqual(float(accuracy), ACCURACY)


if __name__ == "__main__":
    unittest.main()
