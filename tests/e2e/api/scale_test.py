# SPDX-License-Identifier: Apache-2.0
"""The CRD on a real API server: /scale, what may change when, status, printing. The operator's part is played
by patches of the status.
"""
import json
import subprocess
import unittest

import api_server

NOW = "2026-01-02T03:04:05Z"
LIMIT_BYTES = 64 * 1024


def condition(kind: str) -> dict:
    return {"type": kind, "status": "True", "reason": "AllWorkersSucceeded", "message": "", "lastTransitionTime": NOW}


class ScaleTest(api_server.ApiTestCase):

    def scale(self, name: str, replicas: int) -> subprocess.CompletedProcess:
        return api_server.kubectl("scale", f"tj/{name}", f"--replicas={replicas}")

    def read_scale(self, name: str) -> dict:
        return self.read(f"/apis/pushpull.dev/v1alpha1/namespaces/default/trainingjobs/{name}/scale")

    def test_servers_scale_between_their_limits(self) -> None:
        self.create_job("between", servers={"replicas": 2, "minReplicas": 2, "maxReplicas": 4})

        self.must(self.scale("between", 4))

        self.assertEqual(self.read_scale("between")["spec"]["replicas"], 4)

    def test_scale_beyond_limits_is_refused_with_the_field(self) -> None:
        self.create_job("limits", servers={"replicas": 2, "minReplicas": 2, "maxReplicas": 4})

        for replicas in (0, 1, 5, 1025):
            with self.subTest(replicas):
                self.refused(self.scale("limits", replicas), "spec.servers.replicas")
        self.assertEqual(self.read_scale("limits")["spec"]["replicas"], 2)

    def test_scale_to_nothing_is_refused(self) -> None:
        self.create_job("nothing")

        self.refused(self.scale("nothing", 0), "spec.servers.replicas")

    def test_scale_below_replication_is_refused(self) -> None:
        self.create_job("copies", servers={"replicas": 3, "replication": 2})

        self.refused(self.scale("copies", 2), "spec.servers.replication", "must be less than spec.servers.replicas")

    def test_scale_of_a_finished_job_is_refused(self) -> None:
        for phase in ("Succeeded", "Failed"):
            with self.subTest(phase):
                name = phase.lower()
                self.create_job(name)
                self.patch_status(name, phase=phase)

                self.refused(self.scale(name, 2), "spec.servers.replicas", "the job has finished")
                workers = api_server.kubectl("patch", "tj", name, "--type=merge", "-p", '{"spec":{"workers":{"replicas":2}}}')
                self.refused(workers, "spec.workers.replicas", "the job has finished")

    def test_scale_answers_before_there_are_pods(self) -> None:
        # As an HPA reads it, of a job that no operator has seen; into one that names no number the operator writes it.
        self.create_job("fresh", servers={"replicas": 1})

        fresh = self.read_scale("fresh")
        self.patch_status("fresh", servers={"replicas": 1, "ready": 1, "selector": "pushpull.dev/job=fresh"})
        seen = self.read_scale("fresh")

        self.assertEqual((fresh["spec"]["replicas"], fresh["status"]["replicas"]), (1, 0))
        self.assertEqual((seen["spec"]["replicas"], seen["status"]["replicas"], seen["status"]["selector"]),
                         (1, 1, "pushpull.dev/job=fresh"))

    def test_hpa_value_survives_an_apply_without_replicas(self) -> None:
        manifest = json.dumps(api_server.job("reapplied", image="a"))
        self.addCleanup(api_server.kubectl, "delete", "tj", "reapplied", "--wait=false")
        apply = ("apply", "--server-side", "-f", "-")
        self.must(api_server.kubectl(*apply, text=manifest))
        self.must(self.scale("reapplied", 3))

        self.must(api_server.kubectl(*apply, text=manifest))

        self.assertEqual(self.read_scale("reapplied")["spec"]["replicas"], 3)


class ChangeTest(api_server.ApiTestCase):

    MAY_CHANGE = ({"servers": {"minReplicas": 1, "replicas": 3, "maxReplicas": 9}},
                  {"workers": {"minReplicas": 1, "replicas": 3, "maxReplicas": 9}},
                  {"workers": {"globalBatch": 64}},
                  {"sync": {"mode": "Bounded", "staleness": 2}},
                  {"sync": {"backupWorkers": 1}},
                  {"scaling": {"drainTimeoutSeconds": 1}},
                  {"startDeadlineSeconds": 5, "activeDeadlineSeconds": 6, "ttlAfterFinishedSeconds": 7},
                  {"cleanup": "All"},
                  {"suspend": True})
    MAY_CHANGE_SUSPENDED = (({"image": "other"}, "spec.image"),
                            ({"command": ["other"]}, "spec.command"),
                            ({"command": None}, "spec.command"),
                            ({"args": ["more"]}, "spec.args"),
                            ({"env": [{"name": "A", "value": "2"}]}, "spec.env"),
                            ({"servers": {"replication": 1}}, "spec.servers"),
                            ({"servers": {"image": "other"}}, "spec.servers"),
                            ({"servers": {"template": {"spec": {"nodeName": "b"}}}}, "spec.servers"),
                            ({"workers": {"resources": {"limits": {"cpu": 2}}}}, "spec.workers"),
                            ({"workers": {"resources": None}}, "spec.workers"),
                            ({"workers": {"gpusPerWorker": 1}}, "spec.workers"),
                            ({"sync": {"deterministic": True}}, "spec.sync"),
                            ({"sync": {"noiseScale": True}}, "spec.sync"),
                            ({"sync": {"localReduce": "Host"}}, "spec.sync"),
                            ({"sync": {"stallSeconds": 10}}, "spec.sync"),
                            ({"servers": {"lossGraceSeconds": 0}}, "spec.servers"),
                            ({"checkpoint": {"claim": "c"}}, "spec.checkpoint"),
                            ({"restart": {"backoffLimit": 0}}, "spec.restart"),
                            ({"scheduling": {"priorityClass": "low"}}, "spec.scheduling"),
                            ({"security": {"tls": "Off"}}, "spec.security"))

    def setUp(self) -> None:
        super().setUp()
        self.name = self.id().rsplit(".", 1)[1].replace("_", "-")[:48].rstrip("-")
        self.create_job(self.name, image="first", command=["python3", "train.py"],
                        env=[{"name": "A", "value": "1"}],
                        servers={"replicas": 2, "template": {"spec": {"nodeName": "a"}}},
                        workers={"replicas": 2, "resources": {"limits": {"cpu": 1}}})

    def change(self, spec: dict) -> subprocess.CompletedProcess:
        return api_server.kubectl("patch", "tj", self.name, "--type=merge", "--dry-run=server",
                                  "-p", json.dumps({"spec": spec}))

    def test_running_job_changes_where_it_can_follow(self) -> None:
        self.patch_status(self.name, phase="Running")

        for spec in self.MAY_CHANGE:
            with self.subTest(spec):
                self.must(self.change(spec))

    def test_running_job_keeps_the_rest(self) -> None:
        for phase in ("Starting", "Running", "Scaling", "Succeeded"):
            self.patch_status(self.name, phase=phase)
            for spec, field in self.MAY_CHANGE_SUSPENDED if phase == "Running" else self.MAY_CHANGE_SUSPENDED[:1]:
                with self.subTest(phase=phase, spec=spec):
                    self.refused(self.change(spec), f"{field}: Invalid value")

    def test_suspended_job_changes_everywhere(self) -> None:
        self.patch_status(self.name, phase="Suspended")

        for spec, _ in self.MAY_CHANGE_SUSPENDED:
            with self.subTest(spec):
                self.must(self.change(spec))

    def test_rules_can_afford_a_large_job(self) -> None:
        # Near the largest object that etcd takes; rules have a budget.
        self.create_job("large", command=["c" * 100] * 1000, args=["a" * 100] * 1000,
                        env=[{"name": f"N{i}", "value": "v" * 600} for i in range(1000)],
                        servers={"replicas": 2, "template": {"spec": {"x": [{"a": "b" * 100}] * 500}}},
                        restart={"rules": [{"action": "Ignore", "exitCodes": {"in": list(range(1, 256))}}] * 16})
        self.patch_status("large", phase="Running")

        self.must(api_server.kubectl("scale", "tj/large", "--replicas=3"))

    def test_manager_never_changes(self) -> None:
        self.refused(self.change({"managedBy": "example.com/queue"}), "spec.managedBy")


class StatusTest(api_server.ApiTestCase):

    STATUS = {"observedGeneration": 1, "phase": "Succeeded", "reason": "AllWorkersDone", "duration": "1h2m", "conditions": [condition("Complete")],
              "servers": {"replicas": 2, "ready": 2, "draining": 1, "selector": "a=b"},
              "workers": {"replicas": 2, "ready": 2, "succeeded": 0, "selector": "a=c"},
              "coordinator": {"term": 3, "ready": True},
              "ring": {"epoch": 7, "state": "Resharding"},
              "restarts": {"counted": 1, "jobRestarts": 1, "disruptions": 2, "nextAt": NOW,
                           "last": {"pod": "p", "reason": "Error", "exitCode": 1, "time": NOW, "message": "m"},
                           "members": [{"pod": "p", "counted": 1, "inARow": 1, "nextAt": NOW}]},
              "checkpoint": {"step": 10, "time": NOW, "location": "/a"},
              "progress": {"step": 11, "samplesPerSecond": "5", "syncSecondsP50": "0.1", "syncSecondsP99": "0.2"},
              "startTime": NOW, "suspendTime": NOW, "suspendedSeconds": 4, "completionTime": NOW}

    def test_every_field_is_kept(self) -> None:
        self.create_job("status")

        self.patch_status("status", **self.STATUS)

        stored = json.loads(self.must(api_server.kubectl("get", "tj", "status", "-o", "json")))
        self.assertEqual(stored["status"], self.STATUS)

    def test_status_comes_by_its_own_path_only(self) -> None:
        self.create_job("own-path")

        self.must(api_server.kubectl("patch", "tj", "own-path", "--type=merge", "-p", '{"status":{"phase":"Failed"}}'))

        stored = json.loads(self.must(api_server.kubectl("get", "tj", "own-path", "-o", "json")))
        self.assertNotIn("phase", stored.get("status", {}))

    def test_wait_for_complete_returns_when_it_is(self) -> None:
        self.create_job("waited")
        self.refused(api_server.kubectl("wait", "--for=condition=Complete", "--timeout=1s", "tj/waited"), "timed out")
        waiting = subprocess.Popen([api_server.CLUSTER, "api", "kubectl", "wait", "--for=condition=Complete",
                                    "--timeout=60s", "tj/waited"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(waiting.stdout.close)

        self.patch_status("waited", phase="Succeeded", conditions=[condition("Complete")])

        self.assertEqual(waiting.wait(60), 0)
        self.assertIn("condition met", waiting.stdout.read())

    def test_get_prints_phase_and_members(self) -> None:
        self.create_job("printed", servers={"replicas": 3}, workers={"replicas": 4})
        self.patch_status("printed", **self.STATUS)

        lines = self.must(api_server.kubectl("get", "tj", "printed")).splitlines()

        self.assertEqual(lines[0].split(), ["NAME", "PHASE", "REASON", "STEP", "SERVERS", "DESIRED", "WORKERS",
                                            "DESIRED-WORKERS", "RESTARTS", "CHECKPOINT", "DURATION", "AGE"])
        self.assertEqual(lines[1].split()[:11], ["printed", "Succeeded", "AllWorkersDone", "11", "2", "3", "2", "4", "1", "10", "1h2m"])


class CrdTest(api_server.ApiTestCase):

    def test_crd_is_small_and_structural(self) -> None:
        crd = json.loads(self.must(api_server.kubectl("get", "crd", "trainingjobs.pushpull.dev", "-o", "json")))

        conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
        self.assertEqual((conditions["Established"], conditions["NamesAccepted"]), ("True", "True"))
        self.assertNotIn("NonStructuralSchema", conditions)
        self.assertLessEqual(api_server.CRD.stat().st_size, LIMIT_BYTES)
        # The annotation of client-side apply holds all of it once more.
        applied = crd["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        self.assertLessEqual(len(applied), LIMIT_BYTES)

    def test_fields_are_explained(self) -> None:
        # kubectl breaks lines where they get long.
        text = " ".join(self.must(api_server.kubectl("explain", "tj.spec.servers.replication")).split())

        self.assertIn("Copies of each parameter on other servers; less than replicas. Defaults to 0.", text)


if __name__ == "__main__":
    unittest.main()
