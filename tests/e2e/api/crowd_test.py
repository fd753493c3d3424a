# SPDX-License-Identifier: Apache-2.0
"""A thousand jobs at once. Kubernetes' own scheduler and controllers run, kwok plays the kubelets, and one process
all coordinators. What the operator took is printed.
"""
import concurrent.futures
import os
import re
import subprocess
import threading
import time
import unittest
from typing import Any, Callable

import api_server
import audit
from api_server import ROOT, kubectl, run, wait_until
from operator_case import Operator, OperatorTestCase
from player import MORTAL, Api

COORDINATOR = os.environ.get("CROWD_COORDINATOR", str(ROOT / "build/release/tests/crowd_coordinator"))
JOBS = int(os.environ.get("CROWD_JOBS", "1000"))
# Besides its coordinator.
SERVERS, WORKERS = 1, 2
PODS = JOBS * (1 + SERVERS + WORKERS)
STRANGERS = 10 * JOBS
NODES = PODS // 100 + 1
# On loopback, so that every pod's address is this machine.
POD_ADDRESSES = "127.128.0.0/9"
CROWD_SECONDS = 1800
WRITERS = 4


def node(number: int) -> dict[str, Any]:
    capacity = {"cpu": "1k", "memory": "1Ti", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "status": {"capacity": capacity, "allocatable": capacity},
            "metadata": {"name": f"fake-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"},
                         "labels": {"type": "kwok", "kubernetes.io/hostname": f"fake-{number}"}}}


def namespace(number: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"crowd-{number}"}}


def job() -> dict[str, Any]:
    return api_server.job("crowd", image="i", command=["c"], servers={"replicas": SERVERS}, workers={"replicas": WORKERS},
                          security={"tls": "Off"})


def strange_pod(number: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"strange-{number}", "labels": {"app": "other"}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}}


def strange_secret(number: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"strange-{number}"}, "stringData": {"k": "v" * 1000}}


class CrowdTest(OperatorTestCase):

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for program, *flags in (["kube-controller-manager"], ["kube-scheduler"], ["kwok", f"--cidr={POD_ADDRESSES}"]):
            started = run(api_server.CLUSTER, "api", "add", program, *flags)
            if started.returncode != 0:
                raise AssertionError(started.stderr)
            cls.addClassCleanup(run, api_server.CLUSTER, "api", "remove", program)

    def setUp(self) -> None:
        super().setUp()
        coordinators = subprocess.Popen([*MORTAL, COORDINATOR, "crowd", str(SERVERS), str(WORKERS)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.addCleanup(coordinators.communicate)
        self.assertEqual(coordinators.stdout.readline(), "ready\n")

    def make(self, count: int, path: str, body: Callable[[int], dict[str, Any]]) -> None:
        """`path` and `body` of each of so many objects."""
        local = threading.local()

        def make_one(number: int) -> None:
            if not hasattr(local, "api"):
                local.api = Api()
            code, answer = local.api.request("POST", path.format(number), body(number))
            if code != 201:
                raise AssertionError(f"{path.format(number)}: {code} {answer}")
        with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(make_one, range(count)))

    def start_crowd_operator(self, name: str) -> Operator:
        config = self.config(client={"qps": 300, "burst": 600})
        return self.start_operator_with(name, config, api_server.kubeconfig())

    def ready_jobs(self) -> int:
        listed = self.must(kubectl("get", "tj", "-A", "-o", 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'))
        return listed.split().count("True")

    def await_crowd(self, operator: Operator) -> None:
        def is_running() -> bool:
            return operator.leads() and operator.metrics()['pushpull_operator_jobs{phase="Running"}'] == JOBS
        wait_until(is_running, CROWD_SECONDS, lambda: f"all jobs run: {operator.log()[-3000:]}")
        wait_until(lambda: operator.metrics()["pushpull_operator_queue_depth"] == 0, 60, "nothing is to be done")

    def cpu_percentile(self, operator: Operator, share: float) -> float:
        """An upper bound in seconds, that of the histogram's bucket."""
        buckets = [(float(found[1]), count) for series, count in operator.metrics().items()
                   if (found := re.fullmatch(r'pushpull_operator_reconcile_cpu_seconds_bucket\{.*le="([^"]+)"\}', series))]
        total = max(count for _, count in buckets)
        return min(bound for bound, count in buckets if count >= share * total)

    def test_a_thousand_jobs_run_beside_ten_thousand_strangers(self) -> None:
        self.make(NODES, "/api/v1/nodes", node)
        self.make(JOBS, "/api/v1/namespaces", namespace)
        operator = self.start_crowd_operator("operator")
        wait_until(operator.leads, 60, lambda: f"it leads: {operator.log()}")
        empty = operator.resident_mebibytes()

        begin = time.monotonic()
        self.make(JOBS, "/apis/pushpull.dev/v1alpha1/namespaces/crowd-{}/trainingjobs", lambda _: job())
        made = time.monotonic() - begin
        self.await_crowd(operator)
        seconds = time.monotonic() - begin

        self.assertEqual(self.ready_jobs(), JOBS)
        self.assertNotIn(" error ", operator.log())
        self.assertNotIn(" warning ", operator.log())
        metrics, full = operator.metrics(), operator.resident_mebibytes()
        self.assertEqual(metrics['pushpull_operator_reconcile_errors_total{controller="job"}'], 0)
        looks = metrics['pushpull_operator_reconcile_seconds_count{controller="job"}']
        computed = metrics['pushpull_operator_reconcile_cpu_seconds_sum{controller="job"}']
        print(f"\n      {JOBS} jobs, {PODS} pods: created in {made:.0f} s, all Ready after {seconds:.0f} s; operator "
              f"{empty:.1f} -> {full:.1f} MiB; {looks:.0f} looks, {1000 * computed / looks:.2f} ms of CPU each, p99 <= "
              f"{1000 * self.cpu_percentile(operator, 0.99):.1f} ms", flush=True)
        self.assertLessEqual(self.cpu_percentile(operator, 0.99), 0.005)

        self.make(STRANGERS, "/api/v1/namespaces/crowd-0/pods", strange_pod)
        self.make(STRANGERS, "/api/v1/namespaces/crowd-0/secrets", strange_secret)
        print(f"      {STRANGERS} strange pods and as many secrets: {full:.1f} -> {operator.resident_mebibytes():.1f} MiB", flush=True)
        self.assertLessEqual(operator.resident_mebibytes(), full + 1)

        # The next one lists all of them in pages.
        self.assertEqual(operator.end(15), 143)
        before, begin = len(audit.requests()), time.monotonic()
        successor = self.start_crowd_operator("successor")
        self.await_crowd(successor)
        requests = audit.requests()[before:]
        pages = sum(one.verb == "list" and one.resource == "pods" for one in requests)
        print(f"      the next operator knows them after {time.monotonic() - begin:.1f} s, {pages} pages of pods, "
              f"{successor.resident_mebibytes():.1f} MiB", flush=True)
        self.assertGreaterEqual(pages, PODS // 500)
        self.assertEqual([one for one in requests if one.verb in ("create", "delete") and one.resource == "pods"], [])
        self.assertEqual(self.ready_jobs(), JOBS)


if __name__ == "__main__":
    unittest.main()
