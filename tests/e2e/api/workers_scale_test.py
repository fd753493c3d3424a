# SPDX-License-Identifier: Apache-2.0
"""Workers scale as servers do: by the /scale of a TrainingJobWorkers, as kubectl and an HPA write it, on a real API server."""
import json
import unittest
from typing import Any

import api_server
from api_server import CHART, kubectl, wait_until
from chart_test import OPERATOR, ChartTestCase, template
from operator_case import JOB_SECONDS, OperatorTestCase

HPA = CHART / "examples/workers-hpa.yaml"


def scale_path(name: str, namespace: str = "default") -> str:
    return f"/apis/pushpull.dev/v1alpha1/namespaces/{namespace}/trainingjobworkers/{name}/scale"


class WorkersScaleTest(OperatorTestCase):

    def scale(self, name: str, replicas: int) -> api_server.Result:
        return kubectl("scale", f"tjw/{name}", f"--replicas={replicas}")

    def job_replicas(self, name: str) -> int:
        return int(self.must(kubectl("get", "tj", name, "-o", "jsonpath={.spec.workers.replicas}")))

    def await_scale(self, name: str) -> dict[str, Any]:
        wait_until(lambda: kubectl("get", "--raw", scale_path(name)).returncode == 0, JOB_SECONDS, f"{name} can be scaled")
        return self.read(scale_path(name))

    def await_agreed(self, name: str, replicas: int) -> None:
        def agreed() -> str:
            return self.must(kubectl("get", "tjw", name, "-o", "jsonpath={.status.agreedReplicas} {.spec.replicas}"))
        wait_until(lambda: agreed() == f"{replicas} {replicas}", JOB_SECONDS, f"{name} has {replicas} workers in both")
        self.assertEqual(self.job_replicas(name), replicas)

    def test_workers_follow_the_scale_subresource(self) -> None:
        operator = self.start_operator()
        self.start_job("pool", workers=1)
        self.await_status("pool", "it runs", phase="Running", workers={"ready": 1})
        self.await_agreed("pool", 1)

        self.must(self.scale("pool", 3))
        self.await_status("pool", "three workers", phase="Running", workers={"ready": 3, "replicas": 3})
        self.await_agreed("pool", 3)
        # As an HPA reads and writes it.
        seen = self.read(scale_path("pool"))
        wait_until(lambda: self.read(scale_path("pool"))["status"]["replicas"] == 3, JOB_SECONDS, "/scale counts the pods")
        pods = self.must(kubectl("get", "pods", "-o", "name", "-l", seen["status"]["selector"])).split()
        self.assertEqual(pods, [f"pod/pool-worker-{index}" for index in range(3)])
        self.put_scale(seen, 2)

        self.await_status("pool", "two workers", phase="Running", workers={"ready": 2, "replicas": 2})
        self.await_agreed("pool", 2)
        status = self.await_complete("pool")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once("pool-worker-0", "pool-worker-1", "pool-worker-2")
        wait_until(lambda: "cannot change, the job has finished" in self.scale("pool", 1).stderr, JOB_SECONDS,
                   "a finished job is not scaled")
        self.assertEqual(operator.metrics()['pushpull_operator_reconcile_errors_total{controller="job"}'], 0, operator.log())

    def put_scale(self, seen: dict[str, Any], replicas: int) -> None:
        seen["spec"]["replicas"] = replicas
        # The version is another one as soon as the status is written; an HPA reads it anew then.
        seen["metadata"].pop("resourceVersion")
        connection = api_server.connect(timeout=60)
        self.addCleanup(connection.close)
        connection.request("PUT", scale_path(seen["metadata"]["name"]), json.dumps(seen), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200, answer.read())

    def test_number_in_the_job_and_limits_reach_it(self) -> None:
        self.start_operator()
        self.create_job("kept", workers={"replicas": 2, "minReplicas": 2, "maxReplicas": 4}, suspend=True)
        self.await_scale("kept")
        self.await_agreed("kept", 2)

        for replicas in (1, 5, 4097):
            with self.subTest(replicas):
                self.refused(self.scale("kept", replicas), "spec.replicas")
        self.must(kubectl("patch", "tj", "kept", "--type=merge", "-p", '{"spec":{"workers":{"replicas":6,"maxReplicas":8}}}'))

        self.await_agreed("kept", 6)
        self.must(self.scale("kept", 8))
        self.await_agreed("kept", 8)
        self.refused(self.scale("kept", 9), "spec.replicas", "spec.workers.maxReplicas")

    def test_backup_workers_are_no_workers_of_their_own(self) -> None:
        self.start_operator()
        self.create_job("backed", workers={"replicas": 4}, sync={"backupWorkers": 2}, suspend=True)
        self.await_scale("backed")
        self.await_agreed("backed", 4)

        self.refused(self.scale("backed", 2), "spec.replicas", "spec.sync.backupWorkers")

        self.must(self.scale("backed", 3))
        self.await_agreed("backed", 3)

    def test_scaled_number_survives_an_apply_without_replicas(self) -> None:
        self.start_operator()
        manifest = json.dumps(api_server.job("free", image="a", suspend=True))
        apply = ("apply", "--server-side", "-f", "-")
        self.must(kubectl(*apply, text=manifest))
        self.await_scale("free")
        self.await_agreed("free", 1)
        self.must(self.scale("free", 5))
        self.await_agreed("free", 5)

        self.must(kubectl(*apply, text=manifest))

        self.assertEqual(self.job_replicas("free"), 5)

    def test_one_that_is_deleted_is_there_again(self) -> None:
        self.start_operator()
        self.create_job("again", workers={"replicas": 3}, suspend=True)
        self.await_scale("again")
        self.await_agreed("again", 3)

        self.must(kubectl("delete", "tjw", "again"))

        self.await_scale("again")
        self.await_agreed("again", 3)
        owner = json.loads(self.must(kubectl("get", "tjw", "again", "-o", "json")))["metadata"]["ownerReferences"][0]
        self.assertEqual((owner["kind"], owner["name"]), ("TrainingJob", "again"))

    def test_get_prints_the_number_and_its_limits(self) -> None:
        self.start_operator()
        self.create_job("shown", workers={"replicas": 2, "maxReplicas": 4}, suspend=True)
        self.await_scale("shown")
        self.await_agreed("shown", 2)

        lines = self.must(kubectl("get", "tjw", "shown")).splitlines()

        self.assertEqual(lines[0].split(), ["NAME", "DESIRED", "CURRENT", "MIN", "MAX", "AGE"])
        self.assertEqual(lines[1].split()[:5], ["shown", "2", "0", "1", "4"])


class WorkersHpaTest(ChartTestCase):

    def test_example_is_taken(self) -> None:
        self.must(kubectl("apply", "--dry-run=server", "-f", HPA))

    def test_example_is_that_of_the_page(self) -> None:
        page = (api_server.ROOT / "docs/elasticity-and-faults.md").read_text(encoding="utf-8")
        example = HPA.read_text(encoding="utf-8").partition("apiVersion:")

        self.assertIn(f"```yaml\n{example[1]}{example[2]}```\n", page)

    def test_operator_may_write_what_it_must(self) -> None:
        rendered = template(CHART / "ci/default-values.yaml", "--show-only", "templates/operator/rbac.yaml")
        self.must(kubectl("apply", "-f", "-", text=rendered))
        self.addCleanup(kubectl, "delete", "-f", "-", "--ignore-not-found", text=rendered)

        def may(verb: str, what: str) -> bool:
            return kubectl("auth", "can-i", verb, *what.split(), f"--as={OPERATOR}", "-n", "team-a").stdout.strip() == "yes"
        wait_until(lambda: may("create", "trainingjobworkers"), 60, "the API server knows the new rights")
        self.assertTrue(may("patch", "trainingjobworkers --subresource=status"))
        for verb in ("delete", "update"):
            self.assertFalse(may(verb, "trainingjobworkers"), verb)


if __name__ == "__main__":
    unittest.main()
