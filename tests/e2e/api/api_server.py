# SPDX-License-Identifier: Apache-2.0
"""The API server that __main__.py has started, as the tests here use it: kubectl and helm with the
administrator's rights, and manifests as files.
"""
import http.client
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, Optional, TypeVar, Union

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "charts/pushpull"
CRDS = CHART / "files/crd"
CRD = CRDS / "trainingjobs.yaml"
CLUSTER = ROOT / "tests/e2e/cluster/cluster.sh"

# A single request takes milliseconds; many at once on a busy machine do not.
COMMAND_SECONDS = 120

Result = subprocess.CompletedProcess
Found = TypeVar("Found")


def run(*command: Union[str, pathlib.Path], text: Optional[str] = None) -> Result:
    return subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True,
                          timeout=COMMAND_SECONDS)


def kubectl(*arguments: Union[str, pathlib.Path], text: Optional[str] = None) -> Result:
    return run(CLUSTER, "api", "kubectl", *arguments, text=text)


def helm(*arguments: Union[str, pathlib.Path]) -> Result:
    return run(CLUSTER, "api", "helm", *arguments)


def kubeconfig() -> str:
    """Of the administrator."""
    return f"{os.environ['API_STATE']}/pki/admin.kubeconfig"


def connect(timeout: Optional[float] = None) -> http.client.HTTPSConnection:
    """To the API server, with the administrator's certificate."""
    state = pathlib.Path(os.environ["API_STATE"])
    context = ssl.create_default_context(cafile=str(state / "pki/ca.crt"))
    context.load_cert_chain(state / "pki/admin.crt", state / "pki/admin.key")
    ports = dict(word.split("=") for word in (state / "ports").read_text(encoding="utf-8").split())
    return http.client.HTTPSConnection("127.0.0.1", int(ports["API_PORT"]), context=context, timeout=timeout)


def bin_folder() -> pathlib.Path:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("BIN") or cache / "pushpull-cluster/bin")


def wait_until(condition: Callable[[], Found], seconds: float, what: Union[str, Callable[[], str]]) -> Found:
    """What the condition returns once that counts as true. `what` is asked when time is over."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")
        pause.wait(0.1)
    return found


def install_crd() -> None:
    """And waits until kubectl can read, explain and scale a TrainingJob, and the API server takes one."""
    installed = kubectl("apply", "-f", CRDS)
    if installed.returncode != 0:
        raise AssertionError(f"kubectl apply -f {CRDS}: {installed.stderr}")
    wait_for_crd()


def wait_for_crd() -> None:
    # Unlike other commands this one asks the API server anew, and kubectl keeps the answer.
    for kind in ("trainingjobs", "trainingjobworkers", "trainingruntimes"):
        wait_until(lambda: kind in kubectl("api-resources", "--api-group=pushpull.dev").stdout, 60,
                   f"kubectl api-resources lists {kind}")
        # One that is not served yet cannot be deleted either.
        wait_until(lambda: kubectl("get", kind).returncode == 0, 60, f"{kind} are served")
    wait_until(lambda: kubectl("explain", "trainingjob.spec").returncode == 0, 60, "kubectl explain knows TrainingJob")
    probe = json.dumps(job("probe"))
    wait_until(lambda: kubectl("create", "--dry-run=server", "-f", "-", text=probe).returncode == 0, 60, "a job is taken")


def job(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


_TOKEN_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {cluster}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


class ApiTestCase(unittest.TestCase):
    """Each test has a folder for files; the CRD is installed before the first."""

    @classmethod
    def setUpClass(cls) -> None:
        install_crd()

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def must(self, result: Result) -> str:
        self.assertEqual(result.returncode, 0, f"{result.args}: {result.stdout}{result.stderr}")
        return result.stdout

    def refused(self, result: Result, *words: str) -> None:
        """The command failed, and what it printed names each of the words."""
        self.assertNotEqual(result.returncode, 0, f"{result.args}: {result.stdout}")
        for word in words:
            self.assertIn(word, result.stderr)

    def create_job(self, name: str, **spec: Any) -> None:
        """In namespace default, of a name that no other test uses."""
        self.must(kubectl("create", "-f", "-", text=json.dumps(job(name, **spec))))
        self.addCleanup(kubectl, "delete", "tj", name, "--ignore-not-found", "--wait=false")

    def create_namespace(self, name: str) -> None:
        """Which stays: nobody here would take it away."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.must(kubectl("apply", "-f", "-", text=json.dumps(manifest)))

    def patch_status(self, name: str, **status: Any) -> None:
        """As the operator does."""
        self.must(kubectl("patch", "tj", name, "--subresource=status", "--type=merge",
                          "-p", json.dumps({"status": status})))

    def kubeconfig_of(self, account: str, namespace: str) -> pathlib.Path:
        """With a new token of this service account."""
        token = self.must(kubectl("create", "token", account, "-n", namespace)).strip()
        cluster = self.must(kubectl("config", "view", "--raw", "--minify", "-o", "jsonpath={.clusters[0].cluster}"))
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".kubeconfig", delete=False) as file:
            file.write(_TOKEN_KUBECONFIG.format(cluster=cluster, token=token))
        return pathlib.Path(file.name)

    def read(self, path: str) -> dict[str, Any]:
        return json.loads(self.must(kubectl("get", "--raw", path)))
