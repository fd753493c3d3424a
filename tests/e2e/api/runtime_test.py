# SPDX-License-Identifier: Apache-2.0
"""Jobs that name a TrainingRuntime: what they run with, whatever becomes of it, on a real API server."""
import json
import unittest
from typing import Any

import api_server
from api_server import kubectl
from operator_case import LONG_JOB_STEPS, PROBE, OperatorTestCase
from tenants_test import FOREIGN, OURS, TenantCase, restrict_images


class RuntimeTestCase(OperatorTestCase):

    def runtime(self, **spec: Any) -> dict[str, Any]:
        """Named as the test, of a job that lasts until `finish` is there."""
        command = [PROBE, "--steps", str(LONG_JOB_STEPS), "--optimizer", "sgd", "--step-milliseconds", "20", "--until", str(self.finish)]
        name = self.id().rsplit(".", 1)[1].replace("_", "-")
        return {"apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": name},
                "spec": {"image": "shared:1", "command": command, **spec}}

    def apply(self, runtime: dict[str, Any]) -> str:
        """Its name."""
        self.must(kubectl("apply", "-f", "-", text=json.dumps(runtime)))
        name = runtime["metadata"]["name"]
        self.addCleanup(kubectl, "delete", "tjr", name, "--ignore-not-found")
        return name

    def pod(self, name: str) -> dict[str, Any]:
        return json.loads(self.must(kubectl("get", "pod", name, "-o", "json")))

    def image(self, pod: str) -> str:
        return self.pod(pod)["spec"]["containers"][0]["image"]

    def spec(self, job: str) -> dict[str, Any]:
        return json.loads(self.must(kubectl("get", "tj", job, "-o", "json")))["spec"]


class RuntimeTest(RuntimeTestCase):

    def test_ten_line_job_runs_with_its_runtime(self) -> None:
        runtime = self.runtime(servers={"replicas": 2, "maxReplicas": 4}, workers={"replicas": 2},
                               podDefaults={"labels": {"team": "vision"}}, sync={"mode": "Async"})
        name = self.apply(runtime)
        operator = self.start_operator()

        self.create_job("short", runtimeRef={"name": name})

        status = self.await_status("short", "it runs", phase="Running", servers={"ready": 2}, workers={"ready": 2})
        self.assertEqual((status["runtime"]["name"], status["runtime"]["generation"]), (name, 1))
        self.assertEqual(status["runtime"]["spec"]["servers"], runtime["spec"]["servers"])
        for role in ("coordinator", "server-1", "worker-1"):
            self.assertEqual(self.pod(f"short-{role}")["metadata"]["labels"]["team"], "vision", role)
        self.assertEqual(self.image("short-worker-0"), "shared:1")
        self.assertEqual(self.spec("short"), {"runtimeRef": {"name": name}, "servers": {"replicas": 2}, "workers": {"replicas": 2},
                                              "sync": {}, "scaling": {}, "restart": {}, "security": {}})
        self.scales_between_the_limits_of_the_runtime()
        self.await_complete("short")
        self.assertEqual(operator.metrics()['pushpull_operator_reconcile_errors_total{controller="job"}'], 0, operator.log())

    def scales_between_the_limits_of_the_runtime(self) -> None:
        scale = self.read("/apis/pushpull.dev/v1alpha1/namespaces/default/trainingjobs/short/scale")
        self.assertEqual((scale["spec"]["replicas"], scale["status"]["replicas"]), (2, 2))
        self.must(kubectl("scale", "tj/short", "--replicas=3"))
        self.await_status("short", "a third server", phase="Running", servers={"ready": 3})
        self.must(kubectl("scale", "tj/short", "--replicas=5"))
        told = self.await_condition("short", "Reconciled", "InvalidSpec")
        self.assertIn("spec.servers.replicas: must be between minReplicas (1) and maxReplicas (4), is 5", told["message"])
        self.must(kubectl("scale", "tj/short", "--replicas=2"))
        self.await_status("short", "two servers", phase="Running", servers={"ready": 2, "replicas": 2})

    def test_what_the_job_says_wins(self) -> None:
        name = self.apply(self.runtime(servers={"replicas": 2}, workers={"replicas": 3}, sync={"mode": "Bounded", "staleness": 2},
                                       env=[{"name": "A", "value": "shared"}, {"name": "B", "value": "shared"}]))
        self.start_operator()

        # The number of workers is the default's.
        self.create_job("own", runtimeRef={"name": name}, image="own:1", workers={"replicas": 1}, env=[{"name": "A", "value": "own"}],
                        sync={"staleness": 1})

        self.await_status("own", "it runs", phase="Running", servers={"ready": 2}, workers={"ready": 1, "replicas": 1})
        worker = self.pod("own-worker-0")["spec"]["containers"][0]
        users = {one["name"]: one["value"] for one in worker["env"] if one["name"] in ("A", "B")}
        self.assertEqual((worker["image"], users), ("own:1", {"A": "own"}))
        asked = self.ask("own", "own-coordinator")
        self.assertIn("Bounded", asked.stdout)

    def test_running_job_keeps_what_it_began_with(self) -> None:
        runtime = self.runtime(workers={"replicas": 2})
        name = self.apply(runtime)
        operator = self.start_operator("first")
        self.create_job("kept", runtimeRef={"name": name})
        self.await_status("kept", "it runs", phase="Running", workers={"ready": 2})
        runtime["spec"].update(image="shared:2", workers={"replicas": 1})

        self.apply(runtime)
        operator.end()
        self.start_operator("second")
        self.must(kubectl("delete", "pod", "kept-worker-1", "--wait=false"))
        api_server.wait_until(lambda: len(self.player.uids["kept-worker-1"]) == 2, 120, "the pod is there again")

        status = self.await_status("kept", "it runs again", phase="Running", workers={"ready": 2})
        self.assertEqual(status["runtime"]["generation"], 1)
        self.assertEqual(self.image("kept-worker-1"), "shared:1")
        self.create_job("later", runtimeRef={"name": name})
        status = self.await_status("later", "it runs with what is new", phase="Running", workers={"ready": 1, "replicas": 1})
        self.assertEqual((status["runtime"]["generation"], self.image("later-worker-0")), (2, "shared:2"))
        self.must(kubectl("delete", "tjr", name))
        self.await_complete("kept")

    def test_missing_runtime_is_told_and_awaited(self) -> None:
        self.start_operator()
        runtime = self.runtime()
        name = runtime["metadata"]["name"]
        self.create_job("early", runtimeRef={"name": name})

        told = self.await_condition("early", "Reconciled", "RuntimeNotFound")
        self.assertIn(f"spec.runtimeRef.name: there is no TrainingRuntime {name} in the namespace default", told["message"])
        self.assertEqual(self.status("early")["phase"], "Pending")
        self.apply(runtime)

        self.await_status("early", "it runs", phase="Running", workers={"ready": 1})

    def test_invalid_whole_is_told_with_its_runtime(self) -> None:
        self.start_operator()
        runtime = self.runtime(sync={"staleness": 2})
        name = self.apply(runtime)
        self.create_job("repaired", runtimeRef={"name": name}, servers={"replication": 1})

        told = self.await_condition("repaired", "Reconciled", "InvalidSpec")
        self.assertIn("spec.servers.replication: must be less than spec.servers.replicas (1), is 1;", told["message"])
        self.assertIn(f"spec.sync.staleness: needs spec.sync.mode Bounded, which is Sync (from the TrainingRuntime {name})",
                      told["message"])
        runtime["spec"].update(sync={"mode": "Bounded", "staleness": 2}, servers={"replicas": 2})
        self.apply(runtime)

        status = self.await_status("repaired", "it runs", phase="Running", servers={"ready": 2})
        self.assertEqual(status["runtime"]["generation"], 2)

    def test_suspended_job_may_name_another(self) -> None:
        first, second = self.runtime(), self.runtime(image="shared:2")
        second["metadata"]["name"] += "-2"
        self.apply(first)
        self.start_operator()
        self.create_job("moved", runtimeRef={"name": first["metadata"]["name"]})
        self.await_status("moved", "it runs", phase="Running", workers={"ready": 1})
        name = self.apply(second)

        def change(**spec: Any) -> api_server.Result:
            return kubectl("patch", "tj", "moved", "--type=merge", "-p", json.dumps({"spec": spec}))
        self.refused(change(runtimeRef={"name": name}), "spec.runtimeRef", "can change only while the job is suspended")
        self.must(change(suspend=True))
        self.await_status("moved", "it is suspended", phase="Suspended", workers={"replicas": 0})
        self.must(change(runtimeRef={"name": name}, suspend=False))

        status = self.await_status("moved", "it runs again", phase="Running", workers={"ready": 1})
        self.assertEqual((status["runtime"]["name"], self.image("moved-worker-0")), (name, "shared:2"))

    def test_record_that_somebody_changes_is_not_believed(self) -> None:
        name = self.apply(self.runtime())
        self.start_operator()
        self.create_job("firm", runtimeRef={"name": name})
        status = self.await_status("firm", "it runs", phase="Running", workers={"ready": 1})

        self.patch_status("firm", runtime={"spec": {"image": "strange:1"}})
        self.must(kubectl("delete", "pod", "firm-worker-0", "--wait=false"))
        api_server.wait_until(lambda: len(self.player.uids["firm-worker-0"]) == 2, 120, "the pod is there again")

        self.assertEqual(self.image("firm-worker-0"), "shared:1")
        self.assertEqual(self.status("firm")["runtime"], status["runtime"])


class RuntimeImagesTest(RuntimeTestCase, TenantCase):

    def test_runtime_older_than_the_list_is_not_run(self) -> None:
        runtime = self.runtime(image=FOREIGN)
        name = self.apply(runtime)
        restrict_images(self, "default", OURS)
        self.start_operator()

        self.create_job("listed", runtimeRef={"name": name})

        told = self.await_condition("listed", "Reconciled", "InvalidSpec")
        self.assertIn(f'TrainingRuntime {name}: spec.image: the image "{FOREIGN}" is not on the list', told["message"])
        self.refused(kubectl("patch", "tjr", name, "--type=merge", "-p", json.dumps({"spec": {"image": FOREIGN + "2"}})), "spec.image")
        self.must(kubectl("patch", "tjr", name, "--type=merge", "-p", json.dumps({"spec": {"image": OURS}})))
        self.await_status("listed", "it runs", phase="Running", workers={"ready": 1})


if __name__ == "__main__":
    unittest.main()
