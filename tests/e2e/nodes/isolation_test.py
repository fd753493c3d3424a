# SPDX-License-Identifier: Apache-2.0
"""Tenants on real nodes: namespaces that enforce Pod Security, a volume that two of them share, a tenant's hostile image in
place of the coordinator, and a drain while an image is pulled slowly."""
import json
import pathlib
import re
import shutil
import subprocess
import time
import unittest
from typing import Any

import nodes
from api_server import CLUSTER, ROOT, job, run, wait_until
from nodes import (COUNT, PROBE_IMAGE, START_SECONDS, SYSTEM, NodeCase, conditions, get, host_pids, is_true, kubectl,
                   must)

HERE = pathlib.Path(__file__).resolve().parent
PUSHPULL = ROOT / "build/release/pushpull"
ENFORCE = "pod-security.kubernetes.io/enforce"
GONE_SECONDS = 120
END_SECONDS = 180
# The memory limit of the chart.
LIMIT_KIB = 256 * 1024
PULL_SECONDS = 60
REGISTRY = "localhost:5005"
HOSTILE_IMAGE = "localhost/hostile:1"
PYTHON = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib")


def probe(steps: int) -> list[str]:
    return ["probe_worker", "--steps", str(steps), "--optimizer", "sgd", "--step-milliseconds", "20"]


class TenantCase(NodeCase):

    def create_namespace(self, name: str, **labels: str) -> None:
        """It goes with all that is in it."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        must(kubectl("apply", "-f", "-", text=json.dumps(manifest)))
        self.addCleanup(kubectl, "delete", "namespace", name, "--ignore-not-found", f"--timeout={GONE_SECONDS}s")

    def apply_in(self, namespace: str, *manifests: dict[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        must(kubectl("apply", "-n", namespace, "-f", "-", text=json.dumps(listed)))

    def await_end(self, namespace: str, name: str) -> dict[str, Any]:
        """Its status when it is complete."""
        def has_ended() -> bool:
            found = get("tj", name, "-n", namespace)
            return is_true(found, "Complete") or is_true(found, "Failed")
        wait_until(has_ended, END_SECONDS, lambda: f"{namespace}/{name} has ended: {kubectl('get', 'tj,pods', '-n', namespace, '-o', 'wide').stdout}")
        found = get("tj", name, "-n", namespace)
        self.assertTrue(is_true(found, "Complete"), json.dumps(found["status"], indent=1))
        return found["status"]


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, **spec}}


class PodSecurityTest(TenantCase):

    def operators(self) -> dict[str, dict[str, Any]]:
        pods = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")["items"]
        return {pod["metadata"]["uid"]: pod for pod in pods}

    def enforce_on_the_operator(self) -> None:
        before = set(self.operators())
        must(kubectl("label", "namespace", SYSTEM, f"{ENFORCE}=restricted", "--overwrite"))
        self.addCleanup(kubectl, "label", "namespace", SYSTEM, f"{ENFORCE}-")
        must(kubectl("rollout", "restart", "deployment/pushpull", "-n", SYSTEM))
        must(kubectl("rollout", "status", "deployment/pushpull", "-n", SYSTEM, "--timeout=100s"))

        def are_others() -> bool:
            return not before & set(self.operators())
        wait_until(are_others, START_SECONDS, "all operators are new ones")

    def test_restricted_namespaces_hold_operator_and_job(self) -> None:
        self.expected_trouble = ["PodSecurity", "orbidden", "connection", "lease"]
        self.enforce_on_the_operator()
        self.create_namespace("walled", **{ENFORCE: "restricted"})
        self.apply_in("walled", claim("models"))
        must(kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s", "pvc/models", "-n", "walled"))
        volume = get("pv", get("pvc", "models", "-n", "walled")["spec"]["volumeName"])
        pathlib.Path(volume["spec"]["hostPath"]["path"]).chmod(0o777)

        self.apply_in(
            "walled",
            job("modest", image=PROBE_IMAGE, command=probe(100), workers={"replicas": 2, "colocatedServer": True},
                servers={"replicas": 2, "replication": 1}, checkpoint={"claim": "models"}),
            job("greedy", image=PROBE_IMAGE, command=probe(100), workers={"template": {"spec": {"hostNetwork": True}}}))

        status = self.await_end("walled", "modest")
        self.assertEqual(status["restarts"].get("counted", 0) if "restarts" in status else 0, 0)
        self.assertEqual(status["checkpoint"]["step"], 100)

        def refusal() -> dict[str, Any]:
            return conditions(get("tj", "greedy", "-n", "walled")).get("Reconciled", {})
        wait_until(lambda: refusal().get("reason") == "Forbidden", START_SECONDS, "the other one is refused")
        self.assertIn("host namespaces (hostNetwork=true)", refusal()["message"])
        self.assertEqual(get("pods", "-n", "walled", "-l", "pushpull.dev/job=greedy,app.kubernetes.io/component=worker")["items"], [])


class SharedVolumeTest(TenantCase):

    STEPS = {"red": 40, "blue": 80}
    MORE = 30

    def start(self, namespace: str, steps: int) -> None:
        self.apply_in(namespace, job("same", image=PROBE_IMAGE, command=probe(steps), workers={"replicas": 1},
                                     servers={"replicas": 1}, checkpoint={"claim": "shared"}))

    def saved(self) -> dict[str, list[int]]:
        """The steps of complete checkpoints by job, as the command lists them."""
        listed = must(run(PUSHPULL, "checkpoint", "list", self.volume))
        found: dict[str, list[int]] = {}
        for step, of_job in re.findall(r"^ *(\d+) +complete +\S+ +(\S+)", listed, re.MULTILINE):
            found.setdefault(of_job, []).append(int(step))
        return found

    def test_jobs_of_two_namespaces_share_a_volume(self) -> None:
        self.volume = self.folder / "volume"
        self.volume.mkdir()
        self.volume.chmod(0o777)
        for namespace in self.STEPS:  # first, so that they go last: after the claims
            self.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"shared-{namespace}"},
                        "spec": {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
                                 "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": str(self.volume)},
                                 "claimRef": {"namespace": namespace, "name": "shared"}}})
        for namespace, steps in self.STEPS.items():
            self.create_namespace(namespace)
            self.apply_in(namespace, claim("shared", storageClassName="", volumeName=f"shared-{namespace}"))
            self.start(namespace, steps)
        for namespace, steps in self.STEPS.items():
            self.assertEqual(self.await_end(namespace, "same")["checkpoint"]["step"], steps)
        self.assertEqual(self.saved(), {f"{namespace}/same": [steps] for namespace, steps in self.STEPS.items()})

        # Each goes on from its own newest checkpoint: from the other's, one would have nothing left to do.
        for namespace, steps in self.STEPS.items():
            must(kubectl("delete", "tj", "same", "-n", namespace, "--cascade=foreground", "--timeout=60s"))
            self.start(namespace, steps + self.MORE)
        for namespace, steps in self.STEPS.items():
            self.assertEqual(self.await_end(namespace, "same")["checkpoint"]["step"], steps + self.MORE)
        self.assertEqual({of_job: sorted(steps) for of_job, steps in self.saved().items()},
                         {f"{namespace}/same": [steps, steps + self.MORE] for namespace, steps in self.STEPS.items()})


class HostileImageTest(TenantCase):

    def load_image(self) -> None:
        root, archive = self.folder / "root", self.folder / "hostile.tar"
        root.mkdir(mode=0o755)
        must(run(ROOT / "docker/rootfs.sh", root, *(f"debian:{package}" for package in PYTHON)))
        shutil.copy(HERE / "hostile_pushpull.py", root / "usr/local/bin/pushpull")
        (root / "usr/local/bin/pushpull").chmod(0o755)
        must(run(ROOT / "docker/archive.sh", HOSTILE_IMAGE, archive, root, "USER=65532:65532", "pushpull"))
        nodes.cluster("load", archive)

    def operators(self) -> dict[str, int]:
        """Restarts by pod."""
        pods = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")["items"]
        return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}

    def most_kib(self) -> int:
        """The most memory that an operator has had resident."""
        pods = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")["items"]
        ids = [pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://") for pod in pods]
        texts = [pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8") for one in ids for pid in host_pids(one)]
        return max(int(found[1]) for text in texts if (found := re.search(r"VmHWM:\s+(\d+) kB", text)))

    def test_operator_survives_a_hostile_coordinator(self) -> None:
        self.expected_trouble = ["hostile", "oordinator", "connection"]
        self.load_image()
        before = self.operators()
        self.create_namespace("enemy")
        self.apply_in("enemy", job("hostile", image=PROBE_IMAGE, command=probe(100), servers={"image": HOSTILE_IMAGE}))

        tricks = re.findall(r"^def (\w+)\(peer", (HERE / "hostile_pushpull.py").read_text(encoding="utf-8"), re.MULTILINE)
        tricks.remove("hello")
        self.assertGreaterEqual(len(tricks), 6)

        def log() -> str:
            return kubectl("logs", "hostile-coordinator", "-n", "enemy").stdout

        def played() -> list[str]:
            return re.findall(r"^trick: (\w+)$", log(), re.MULTILINE)
        begin = time.monotonic()
        # Those that answer a request have got one.
        wait_until(lambda: set(tricks) <= set(played()) and log().count("asked\n") >= 4, END_SECONDS, "each trick has been played")
        self.say(f"{len(played())} connections in {time.monotonic() - begin:.0f} s")

        # Another tenant's job is started, trains and ends meanwhile.
        self.start_job("beside", servers={"replicas": 1}, workers={"replicas": 1})
        self.trains("beside")
        self.finish_job("beside")

        self.assertEqual(self.operators(), before)
        self.say(f"an operator had {self.most_kib() // 1024} MiB at most")
        self.assertLess(self.most_kib(), LIMIT_KIB)
        hostile = get("tj", "hostile", "-n", "enemy")
        self.assertFalse(is_true(hostile, "Complete"))
        for condition in conditions(hostile).values():
            self.assertTrue(condition["message"].isprintable(), condition)
            self.assertLess(len(condition["message"]), 2000)
        must(kubectl("delete", "tj", "hostile", "-n", "enemy", "--timeout=60s"))


class SlowPullTest(TenantCase):

    def serve_slowly(self, node: int) -> pathlib.Path:
        """The probe's image, on this node; its log."""
        root, archive, log = self.folder / "root", self.folder / "slow.tar", self.folder / "registry.log"
        root.mkdir(mode=0o755)
        must(run(ROOT / "docker/rootfs.sh", root, nodes.PROBE))
        (root / "slow").write_text("another layer than that of the image that is there already", encoding="utf-8")
        must(run(ROOT / "docker/archive.sh", "slow:1", archive, root, "USER=65532:65532", "probe_worker"))
        with log.open("wb") as file:
            registry = subprocess.Popen([CLUSTER, "net", str(node), "/usr/bin/python3", HERE / "registry.py", REGISTRY.partition(":")[2], "slow:1",
                                         archive, "--seconds", str(PULL_SECONDS)], stdout=file, stderr=subprocess.STDOUT)
        self.addCleanup(registry.wait, 30)
        self.addCleanup(registry.terminate)
        return log

    def test_server_node_is_drained_while_workers_pull(self) -> None:
        def on(*numbers: int) -> dict[str, Any]:
            names = [f"node{number}" for number in numbers]
            terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]
            return {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}}
        # Coordinator and servers, but for the workers' node; so the coordinator is lost together with a server.
        must(kubectl("taint", "node", "node1", "slow=pull:PreferNoSchedule"))
        self.addCleanup(kubectl, "taint", "node", "node1", "slow-")
        log = self.serve_slowly(1)
        begin = time.monotonic()
        self.apply(job("patient", image=f"{REGISTRY}/slow:1", command=probe(200), workers={"replicas": 2, "template": on(1)},
                       servers={"replicas": 2, "template": on(2, COUNT)}, restart={"initialDelaySeconds": 0}))
        wait_until(lambda: "pull begins" in log.read_text(encoding="utf-8"), START_SECONDS, "node1 pulls the workers' image")
        self.await_job("patient", lambda status: status.get("servers", {}).get("ready") == 2, START_SECONDS, "both servers are ready")
        victim = self.node_of("patient-coordinator")
        before, there = self.uids("patient"), {name for name, pod in self.pods("patient").items()
                                               if pod["spec"].get("nodeName") == f"node{victim}"}
        self.assertIn("patient-coordinator", there)
        self.assertNotEqual(there & {"patient-server-0", "patient-server-1"}, set())
        self.addCleanup(kubectl, "uncordon", f"node{victim}")

        drain = time.monotonic()
        must(kubectl("drain", f"node{victim}", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s",
                     "--pod-selector=pushpull.dev/job=patient"))
        self.say(f"drained in {time.monotonic() - drain:.1f} s, {drain - begin:.0f} s after the job was applied")
        self.assertEqual([self.pods("patient")[f"patient-worker-{index}"]["status"]["phase"] for index in (0, 1)], ["Pending"] * 2,
                         "the image is still pulled")
        back = self.await_job("patient", lambda status: status.get("servers", {}).get("ready") == 2, START_SECONDS, "both servers are back")
        self.say(f"both servers ready {back:.1f} s later")
        self.assertEqual({name for name, uid in self.uids("patient").items() if before[name] != uid}, there)

        status = self.await_end("default", "patient")
        self.say(f"complete {time.monotonic() - begin:.0f} s after it was applied")
        self.assertGreater(time.monotonic() - begin, PULL_SECONDS)
        self.assertEqual(status["progress"]["step"], 200)
        self.assertEqual(status["restarts"].get("counted", 0), 0, status)
        self.assertGreaterEqual(status["restarts"]["disruptions"], 1, status)
        self.assertEqual({name: uid for name, uid in self.uids("patient").items() if "worker" in name},
                         {name: uid for name, uid in before.items() if "worker" in name})


if __name__ == "__main__":
    unittest.main()
