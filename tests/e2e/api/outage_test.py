# SPDX-License-Identifier: Apache-2.0
"""The operator while the API server is away, or answers with errors. Audit log and pods show that nothing was done
twice, and that what was known is not asked for again.
"""
import collections
import json
import time
import unittest

import api_server
import audit
from api_server import kubectl, wait_until
from faulty_proxy import FaultyProxy
from operator_case import Operator, OperatorTestCase

KINDS = ("trainingjobs", "pods")
SHORT_SECONDS = 10
# What is allocated for a moment, and buffers that have grown.
MEBIBYTES_MORE = 3
FAULTS = 1000
# Enough of them for so many faults.
CROWD = 60
CROWD_SECONDS = 600


def lists_of(requests: list[audit.Request], kind: str) -> int:
    """First pages, which there were."""
    return sum((one.verb, one.resource, one.code) == ("list", kind, 200) and "continue=" not in one.path for one in requests)


class OutageTest(OperatorTestCase):

    def stop_api_server_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.must(api_server.run(api_server.CLUSTER, "api", "stop"))
        try:
            wait_until(lambda: time.monotonic() >= end, 2 * seconds, "the time is over")
        finally:
            self.must(api_server.run(api_server.CLUSTER, "api", "start"))

    def assert_job_outlives_an_outage_of(self, seconds: float) -> None:
        name = f"away-{seconds}"
        operator = self.start_operator()
        self.start_job(name)
        self.await_status(name, "it runs", phase="Running", workers={"ready": 2})
        # The first outage makes some things as large as they get: buffers, what is kept of connections.
        self.stop_api_server_for(SHORT_SECONDS)
        self.must(kubectl("scale", f"tj/{name}", "--replicas=3"))
        self.await_status(name, "three servers", phase="Running", servers={"ready": 3})
        requests, memory = len(audit.requests()), operator.resident_mebibytes()

        self.stop_api_server_for(seconds)

        wait_until(operator.leads, 60, lambda: f"it leads: {operator.log()}")
        self.must(kubectl("scale", f"tj/{name}", "--replicas=2"))
        self.await_status(name, "two servers", phase="Running", servers={"ready": 2, "replicas": 2})
        self.finish_unharmed(name, operator)
        for kind in KINDS:
            self.assertLessEqual(lists_of(audit.requests()[requests:], kind), 1, kind)
        print(f"\n      operator: {memory:.1f} MiB before, {operator.resident_mebibytes():.1f} after", flush=True)
        self.assertLess(operator.resident_mebibytes(), memory + MEBIBYTES_MORE)

    def finish_unharmed(self, name: str, operator: Operator) -> None:
        status = self.await_complete(name)
        self.assertIsNone(operator.process.poll())
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once(f"{name}-coordinator", f"{name}-server-0", f"{name}-worker-0", f"{name}-worker-1")

    def test_api_server_that_is_away_for_10_seconds(self) -> None:
        self.assert_job_outlives_an_outage_of(SHORT_SECONDS)

    def test_api_server_that_is_away_for_5_minutes(self) -> None:
        self.assert_job_outlives_an_outage_of(300)

    def make_crowd(self) -> None:
        """Jobs whose coordinators nobody starts, so that they stay at that; in a namespace of their own."""
        self.create_namespace("crowd")
        self.addCleanup(kubectl, "delete", "tj,pods", "--all", "-n", "crowd", "--wait=false", "--grace-period=0", "--force")
        jobs = [{**api_server.job(f"crowd-{i}", image="i", command=["c"], workers={"replicas": 2}),
                 "metadata": {"name": f"crowd-{i}", "namespace": "crowd"}} for i in range(CROWD)]
        self.must(kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs})))

    def crowd_pods(self) -> list[str]:
        return self.must(kubectl("get", "pods", "-n", "crowd", "-o", "name")).split()

    def test_a_thousand_refusals_and_lost_answers(self) -> None:
        with FaultyProxy(seed=1) as proxy:
            kubeconfig = self.folder / "proxy.kubeconfig"
            kubeconfig.write_text(proxy.kubeconfig(), encoding="utf-8")
            operator = self.start_operator_with("operator", self.config(), kubeconfig)
            self.start_job("harried")
            self.await_status("harried", "it runs", phase="Running", workers={"ready": 2})
            requests = len(audit.requests())

            begin = time.monotonic()
            proxy.share = 0.5
            self.make_crowd()
            memory = []

            def is_enough() -> bool:
                if proxy.num_refusals() >= FAULTS / 2 and not memory:
                    memory.append(operator.resident_mebibytes())
                return proxy.num_refusals() >= FAULTS
            wait_until(is_enough, CROWD_SECONDS, f"so many faults: {proxy.refusals}")
            self.must(kubectl("scale", "tj/harried", "--replicas=2"))
            proxy.share = 0.2
            self.await_status("harried", "two servers", phase="Running", servers={"ready": 2})
            proxy.share = 0
            wait_until(lambda: len(self.crowd_pods()) == CROWD, CROWD_SECONDS, "all coordinators are there")
            self.finish_unharmed("harried", operator)

            codes = {code: proxy.num_refusals(code) for code in (410, 429, 503)}
            print(f"\n      {codes}, {proxy.lost_answers} lost answers in {time.monotonic() - begin:.0f} s; operator: "
                  f"{memory[0]:.1f} MiB, in the end {operator.resident_mebibytes():.1f}", flush=True)
            since = audit.requests()[requests:]
            for kind in KINDS:
                self.assertLessEqual(lists_of(since, kind), proxy.num_refusals(410, kind), kind)
        made = collections.Counter(one.name for one in since if (one.verb, one.resource, one.namespace) == ("create", "pods", "crowd")
                                   and one.code == 201 and "dryRun" not in one.path)
        self.assertEqual(len(made), CROWD)
        self.assertEqual(set(made.values()), {1})
        self.assertEqual([one for one in since if (one.verb, one.resource, one.namespace) == ("delete", "pods", "crowd")], [])
        self.assertGreater(proxy.lost_answers, FAULTS / 20)
        self.assertLess(operator.resident_mebibytes(), memory[0] + MEBIBYTES_MORE)


if __name__ == "__main__":
    unittest.main()
