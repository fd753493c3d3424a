# SPDX-License-Identifier: Apache-2.0
"""What tests of the operator on a real API server share: its process, and jobs whose pods player.py plays."""
import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any, Optional, Union

import api_server
from api_server import ROOT, kubectl, wait_until
from player import MORTAL, PUSHPULL, Player

OPERATOR = os.environ.get("PUSHPULL_OPERATOR_BIN", str(ROOT / "build/release/pushpull-operator"))
PROBE = os.environ.get("PROBE_WORKER", str(ROOT / "build/release/tests/probe_worker"))
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
# A slow machine starts a dozen processes.
JOB_SECONDS = 180
# Of a lease that is lost: kept short where that is not what the test is about.
QUICK_LEASE = {"leaseDurationSeconds": 4, "renewDeadlineSeconds": 3, "retryPeriodSeconds": 1}
# Minutes at their pace, seconds without it.
LONG_JOB_STEPS = 20_000


class Operator:
    """One process of the operator; ended with the test."""

    def __init__(self, folder: pathlib.Path, name: str, config: str, kubeconfig: Union[str, pathlib.Path],
                 has_own_clock: bool = False, as_user: tuple[str, ...] = ()) -> None:
        self._clock = folder / f"{name}.clock"
        self.set_clock("+0")
        clock = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(self._clock), "FAKETIME_NO_CACHE": "1",
                 "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if has_own_clock else {}
        config_file = folder / f"{name}.yaml"
        config_file.write_text(config, encoding="utf-8")
        self._log = folder / f"{name}.log"
        with open(self._log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*as_user, *MORTAL, OPERATOR, "--config", config_file, "--kubeconfig", kubeconfig],
                stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **clock, "POD_NAME": name})
        wait_until(lambda: self._address() is not None, 30, lambda: f"{name} tells where its metrics are: {self.log()}")

    def _address(self) -> Optional[str]:
        ports = re.findall(r" started metrics=0\.0\.0\.0:(\d+)", self.log())  # one each time that it stands by anew
        return f"127.0.0.1:{ports[-1]}" if ports else None

    def set_clock(self, offset: str) -> None:
        """Of one that has its own: its wall clock is so many seconds ahead ("+600") or behind."""
        new = self._clock.with_suffix(".new")
        new.write_text(offset + "\n", encoding="utf-8")
        new.rename(self._clock)

    def resident_mebibytes(self) -> float:
        return self._mebibytes("VmRSS")

    def most_mebibytes(self) -> float:
        """The most that has been resident at once."""
        return self._mebibytes("VmHWM")

    def _mebibytes(self, field: str) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self._address()}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address()}/readyz", timeout=10) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False

    def leads(self) -> bool:
        return self.metrics()["pushpull_operator_leader"] == 1

    def end(self, number: int = signal.SIGKILL) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(30)


class OperatorTestCase(api_server.ApiTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.lease = self.id().rsplit(".", 1)[1].replace("_", "-")[:60].rstrip("-")
        self.finish = self.folder / "finish"
        self.player = self.enterContext(Player(self.folder))
        self.operators: list[Operator] = []

    def tearDown(self) -> None:
        # In this order: an operator would make pods anew.
        for operator in self.operators:
            operator.end()
        kubectl("delete", "tj", "--all", "--wait=false")
        kubectl("delete", "pods", "--all", "--grace-period=0", "--force")

    def start_operator(self, name: str = "operator", **lease: Any) -> Operator:
        """With a lease of the test's own, so that no test waits for another one's."""
        return self.start_operator_with(name, self.config(lease), api_server.kubeconfig())

    def config(self, lease: Optional[dict[str, Any]] = None, **more: Any) -> str:
        election = {"leaseName": self.lease, "leaseNamespace": "default", **(lease or {})}
        return json.dumps({"runtimeImage": "pushpull:1", "metricsPort": 0, "leaderElection": election, **more})

    def start_operator_with(self, name: str, config: str, kubeconfig: Union[str, pathlib.Path],
                            has_own_clock: bool = False, as_user: tuple[str, ...] = ()) -> Operator:
        self.operators.append(Operator(self.folder, name, config, kubeconfig, has_own_clock, as_user))
        return self.operators[-1]

    def start_job(self, name: str, steps: int = LONG_JOB_STEPS, workers: int = 2, **spec: Any) -> None:
        """One that lasts until `finish` is there, unless it has only a few steps."""
        command = [PROBE, "--steps", str(steps), "--optimizer", "sgd", "--step-milliseconds", "20",
                   "--until", str(self.finish)]
        self.create_job(name, image="i", command=command, workers={"replicas": workers}, **spec)

    def status(self, name: str) -> dict[str, Any]:
        return json.loads(self.must(kubectl("get", "tj", name, "-o", "json"))).get("status", {})

    def await_status(self, name: str, what: str, **wanted: Any) -> dict[str, Any]:
        """`wanted`: phase="Running", servers={"ready": 2}, ..."""
        def is_so() -> bool:
            status = self.status(name)
            return all(status.get(key) == value if not isinstance(value, dict) else
                       value.items() <= status.get(key, {}).items() for key, value in wanted.items())
        try:
            wait_until(is_so, JOB_SECONDS, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(self.status(name), indent=1)}{self.logs()}") from None
        return self.status(name)

    def await_condition(self, name: str, kind: str, reason: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            conditions = self.status(name).get("conditions", [])
            return [one for one in conditions if (one["type"], one["reason"]) == (kind, reason)]
        return wait_until(found, JOB_SECONDS, f"{kind} is told with {reason}")[0]

    def await_complete(self, name: str) -> dict[str, Any]:
        self.finish.touch()
        waited = kubectl("wait", "--for=condition=Complete", "--timeout=100s", f"tj/{name}")
        self.assertEqual(waited.returncode, 0, f"{waited.stderr}{json.dumps(self.status(name), indent=1)}{self.logs()}")
        return self.status(name)

    def ask(self, job: str, certificates_of: Optional[str]) -> api_server.Result:
        """`pushpull status` of the job's coordinator, by somebody with the certificates of that pod."""
        return self.run_with(certificates_of, "status", "--coordinator", self.coordinator_of(job), "--json")

    def run_with(self, certificates_of: Optional[str], *words: str) -> api_server.Result:
        """`pushpull` with these words, by somebody with the certificates of that pod."""
        variable = [] if certificates_of is None else [f"PUSHPULL_TLS_DIR={self.player.tls_folder(certificates_of)}"]
        return api_server.run("env", *variable, PUSHPULL, *words)

    def coordinator_of(self, job: str) -> str:
        return self.player.address(f"{job}-coordinator") + ":7170"

    def secret(self, job: str) -> dict[str, str]:
        return json.loads(self.must(kubectl("get", "secret", f"{job}-tls", "-o", "json")))["data"]

    def end_of_certificate(self, pod: str) -> float:
        """As the pod's process says."""
        with urllib.request.urlopen(f"http://{self.player.address(pod)}:9464/metrics", timeout=10) as answer:
            return float(re.search(r"^pushpull_certificate_expiry_timestamp_seconds\S* (\S+)$", answer.read().decode(),
                                   re.MULTILINE)[1])

    def logs(self) -> str:
        return "".join(f"\n--- {path.name}\n{path.read_text(encoding='utf-8')[-3000:]}"
                       for path in sorted(self.folder.glob("*.log")))

    def assert_each_pod_was_made_once(self, *names: str) -> None:
        for name in names:
            self.assertEqual(len(self.player.uids[name]), 1, name)
