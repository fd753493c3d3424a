# SPDX-License-Identifier: Apache-2.0
"""The cluster that __main__.py has started, with the operator installed, as the tests here use it."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
from typing import Any, Callable, Iterator, Optional

import api_server
from api_server import CHART, CLUSTER, ROOT, Result, run, wait_until
from operator_log import SYSTEM, OperatorLog

COUNT = 3
IMAGES = ROOT / "build/images"
# Of workers: the program that the tests of processes use, too.
PROBE_IMAGE = "localhost/probe:1"
# Until a job of five pods runs, on a machine of two cores that does everything.
START_SECONDS = 60
# Of a job that is told to finish.
FINISH_SECONDS = 110
PROBE = ROOT / "build/release/tests/probe_worker"


def kubectl(*arguments: Any, text: Optional[str] = None) -> Result:
    return run(CLUSTER, "kubectl", *arguments, text=text)


def helm(*arguments: Any) -> Result:
    return run(CLUSTER, "helm", *arguments)


def must(result: Result) -> str:
    if result.returncode != 0:
        raise AssertionError(f"{result.args}: {result.stdout}{result.stderr}")
    return result.stdout


def cluster(*arguments: Any) -> str:
    """A fault, or its end: see cluster.sh --help."""
    return must(run(CLUSTER, *arguments))


def get(*what: str) -> dict[str, Any]:
    return json.loads(must(kubectl("get", *what, "-o", "json")))


def now() -> float:
    return datetime.datetime.now(datetime.timezone.utc).timestamp()


def load_images(folder: pathlib.Path, names: list[str]) -> None:
    """Those of `./dev image`, and the probe's, onto every node."""
    root = folder / "probe"
    root.mkdir(mode=0o755)
    must(run(ROOT / "docker/rootfs.sh", root, PROBE))
    must(run(ROOT / "docker/archive.sh", PROBE_IMAGE, folder / "probe.tar", root, "USER=65532:65532", "probe_worker"))
    cluster("load", *[IMAGES / f"{name}.tar" for name in names], folder / "probe.tar")


def install_operator(*values: str) -> None:
    settings = [word for value in values for word in ("--set", value)]
    must(helm("upgrade", "--install", "pushpull", CHART, "--namespace", SYSTEM, "--create-namespace", "--wait",
              "--timeout", "90s", *settings))


def conditions(thing: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in thing.get("status", {}).get("conditions", [])}


def is_true(thing: dict[str, Any], condition: str) -> bool:
    return conditions(thing).get(condition, {}).get("status") == "True"


def host_pids(container: str) -> Iterator[int]:
    """The processes of a container of any node, by its id."""
    for group in pathlib.Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if container in group.read_text(encoding="utf-8"):
                yield int(group.parent.name)
        except OSError:
            continue  # it has just ended


class NodeCase(unittest.TestCase):
    """A test with jobs of its own, which go with it. What the operator has written to its log meanwhile is read at
    the end: a warning or an error that matches none of `expected_trouble` fails the test."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o777)  # containers see it, and run as nobody in particular
        self.expected_trouble: list[str] = []
        self._operator_log = OperatorLog(self.folder)
        self.addCleanup(self._operator_log.close)
        self.addCleanup(self._read_operator_log)

    def _read_operator_log(self) -> None:
        unexpected = [line for line in self._operator_log.trouble()
                      if not any(re.search(word, line) for word in self.expected_trouble)]
        self.assertEqual(unexpected, [], "the operator's log")

    def say(self, what: str) -> None:
        """A figure, into the test's output."""
        print(f"    {what}", flush=True)

    # --- Jobs ---------------------------------------------------------------------------------------

    def apply(self, manifest: dict[str, Any]) -> None:
        must(kubectl("apply", "-f", "-", text=json.dumps(manifest)))
        kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
        self.addCleanup(kubectl, "delete", kind, name, "--ignore-not-found", "--cascade=foreground", "--timeout=60s")

    def apply_job(self, name: str, *, epochs: int = 400, samples: int = 100, step_milliseconds: int = 20, **spec: Any) -> None:
        """Of two workers that count samples, each as often as there are epochs. They go slowly, until
        the job is told to finish."""
        command = ["probe_worker", "--samples", samples, "--batch", samples // 20, "--epochs", epochs,
                   "--step-milliseconds", step_milliseconds, "--until", "/test/finish"]
        template = {"spec": {"containers": [{"name": "worker", "volumeMounts": [{"name": "test", "mountPath": "/test"}]}],
                             "volumes": [{"name": "test", "hostPath": {"path": str(self.folder)}}]}}
        spec = {"image": PROBE_IMAGE, "command": [str(word) for word in command], **spec}
        spec["workers"] = {"replicas": 2, "template": template, **spec.get("workers", {})}
        spec.setdefault("servers", {"replicas": 2})
        self.epochs, self.samples = epochs, samples
        self.apply(api_server.job(name, **spec))

    def start_job(self, name: str, **spec: Any) -> None:
        self.apply_job(name, **spec)
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", f"tj/{name}"))

    def finish(self) -> None:
        (self.folder / "finish").touch()

    def finish_job(self, name: str, repeated: int = 0) -> dict[str, Any]:
        """And what its status says then. No sample may be lost, and but for `repeated` ones none count twice."""
        self.finish()
        must(kubectl("wait", "--for=condition=Complete", f"--timeout={FINISH_SECONDS}s", f"tj/{name}"))
        status = self.status(name)
        results = {key: float(value) for key, value in status["progress"]["results"].items()}
        self.assertEqual(results["least"], self.epochs, results)
        self.assertLessEqual(results["total"], self.samples * self.epochs + repeated, results)
        return status

    def status(self, name: str) -> dict[str, Any]:
        return get("tj", name).get("status", {})

    def await_job(self, name: str, condition: Callable[[dict[str, Any]], bool], seconds: float, what: str) -> float:
        """Waits until it is so of the status; how long that took, in seconds."""
        begin = time.monotonic()
        try:
            wait_until(lambda: condition(self.status(name)), seconds, what)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{json.dumps(self.status(name), indent=1)}\n"
                                 f"{kubectl('get', 'pods', '-o', 'wide').stdout}") from None
        return time.monotonic() - begin

    def await_members(self, name: str, seconds: float = START_SECONDS, servers: int = 2, workers: int = 2) -> float:
        def is_so(status: dict[str, Any]) -> bool:
            return (status.get("phase") == "Running"
                    and (status["servers"].get("ready", 0), status["servers"].get("replicas", 0)) == (servers, servers)
                    and status["workers"].get("ready", 0) == workers and status["coordinator"].get("ready", False))
        return self.await_job(name, is_so, seconds, f"{name}: {servers} servers and {workers} workers")

    def await_restarts(self, name: str, seconds: float = START_SECONDS, **counters: int) -> float:
        def are_told(status: dict[str, Any]) -> bool:
            return status.get("restarts", {}).items() >= counters.items()
        return self.await_job(name, are_told, seconds, f"{name}: restarts {counters}")

    def trains(self, name: str, steps: int = 5, seconds: float = 30) -> None:
        """Waits for so many steps more, as its coordinator counts them."""
        begin = self.step(name)
        wait_until(lambda: self.step(name) >= begin + steps, seconds, f"{name}: {steps} steps after {begin}")

    def metrics(self, pod: str) -> str:
        """Empty where it does not answer."""
        found = kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")
        if found.returncode != 0 or not found.stdout:
            return ""
        return run(CLUSTER, "net", 1, "curl", "-sf", "-m", "5", f"http://{found.stdout}:9464/metrics").stdout

    def step(self, name: str) -> int:
        """By the coordinator's metrics; -1 when it cannot be asked."""
        found = re.search(r"^pushpull_step (\S+)$", self.metrics(f"{name}-coordinator"), re.MULTILINE)
        return int(float(found[1])) if found else -1

    def create_claim(self, name: str) -> pathlib.Path:
        """The folder of a volume for many pods, which they may write: the cluster's provisioner has folders of root
        alone."""
        self.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}})
        must(kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s", f"pvc/{name}"))
        volume = get("pv", get("pvc", name)["spec"]["volumeName"])
        folder = pathlib.Path(volume["spec"]["hostPath"]["path"])
        folder.chmod(0o777)
        return folder

    # --- Pods ---------------------------------------------------------------------------------------

    def pods(self, name: str, role: Optional[str] = None) -> dict[str, dict[str, Any]]:
        """Of this role, or all, by name."""
        component = f",app.kubernetes.io/component={role}" if role else ""
        return {pod["metadata"]["name"]: pod for pod in get("pods", "-l", f"pushpull.dev/job={name}{component}")["items"]}

    def uids(self, name: str, role: Optional[str] = None) -> dict[str, str]:
        return {pod: what["metadata"]["uid"] for pod, what in self.pods(name, role).items()}

    def longest_step(self, pod: str) -> float:
        """Seconds, of a worker that has ended."""
        log = must(kubectl("logs", pod))
        found = re.search(r"longest step (\S+) s, step (\d+)", log)
        self.assertIsNotNone(found, log)
        self.say(f"{pod}: longest step {found[1]} s, step {found[2]}")
        return float(found[1])

    def node_of(self, pod: str) -> int:
        """Its number."""
        return int(get("pod", pod)["spec"]["nodeName"].removeprefix("node"))

    def signal(self, pod: dict[str, Any], number: signal.Signals) -> None:
        """To every process in it that there is."""
        for container in pod["status"]["containerStatuses"]:
            for pid in host_pids(container["containerID"].removeprefix("containerd://")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill(self, pod: str) -> None:
        self.signal(get("pod", pod), signal.SIGKILL)

    def kill_operator(self) -> None:
        """-9 of the one that leads; its pod's next container is another."""
        leader = get("lease", "-n", SYSTEM, "pushpull")["spec"]["holderIdentity"]
        pod = next(pod for pod in get("pods", "-n", SYSTEM)["items"] if pod["metadata"]["name"] in leader)
        self.signal(pod, signal.SIGKILL)

    def events(self, reason: str, about: str) -> list[dict[str, Any]]:
        return [event for event in get("events", "--field-selector", f"reason={reason}")["items"]
                if event["involvedObject"]["name"] == about]
