# SPDX-License-Identifier: Apache-2.0
"""The life of a release: what install, upgrade, rollback and uninstall do to the CRD, to jobs and to the pods of
jobs that run.
"""
import json
import signal
import unittest

import api_server
from api_server import CHART, helm, kubectl, wait_until
from chart_test import NAMESPACE, ChartTestCase
from operator_case import JOB_SECONDS, Operator, OperatorTestCase

class ReleaseTestCase(ChartTestCase):
    """Each test begins without the CRDs, which a release must own."""

    CRDS = ("trainingjobs.pushpull.dev", "trainingjobworkers.pushpull.dev", "trainingruntimes.pushpull.dev")

    def setUp(self) -> None:
        super().setUp()
        self.must(kubectl("delete", "crd", *self.CRDS, "--ignore-not-found", "--timeout=60s"))
        self.addCleanup(api_server.install_crd)
        self.addCleanup(kubectl, "delete", "crd", *self.CRDS, "--ignore-not-found", "--timeout=60s")
        self.addCleanup(helm, "uninstall", "pushpull", "--namespace", NAMESPACE, "--ignore-not-found")

    def release(self, command: str, *arguments: str) -> None:
        self.must(helm(command, "pushpull", CHART, "--namespace", NAMESPACE, *arguments))


class CrdTest(ReleaseTestCase):

    def crd_is_there(self) -> bool:
        return any(kubectl("get", "crd", crd).returncode == 0 for crd in self.CRDS)

    def test_uninstall_keeps_crd_and_jobs(self) -> None:
        self.release("install")
        api_server.wait_for_crd()
        self.create_job("kept", servers={"replicas": 3})

        self.must(helm("uninstall", "pushpull", "--namespace", NAMESPACE))

        self.assertEqual(self.must(kubectl("get", "tj", "kept", "-o", "jsonpath={.spec.servers.replicas}")), "3")
        self.release("install")

    def test_uninstall_removes_the_crd_unless_it_is_kept(self) -> None:
        self.release("install", "--set", "crds.keep=false")
        self.assertTrue(self.crd_is_there())

        self.must(helm("uninstall", "pushpull", "--namespace", NAMESPACE))

        api_server.wait_until(lambda: not self.crd_is_there(), 60, "the CRD is gone")

    def test_upgrade_updates_the_crd(self) -> None:
        self.release("install")
        # As an older version of the chart would have left it.
        self.must(kubectl("patch", "crd", "trainingjobs.pushpull.dev", "--type=json",
                          "-p", '[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]'))

        self.release("upgrade", "--set", "operator.logLevel=debug")

        columns = self.must(kubectl("get", "crd", "trainingjobs.pushpull.dev",
                                    "-o", "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}"))
        self.assertIn("Restarts", columns)

    def test_rollback_restores_values_and_leaves_jobs_alone(self) -> None:
        self.release("install")
        api_server.wait_for_crd()
        self.create_job("untouched")
        before = json.loads(self.must(kubectl("get", "tj", "untouched", "-o", "json")))
        self.release("upgrade", "--set", "operator.replicas=3")

        self.must(helm("rollback", "pushpull", "1", "--namespace", NAMESPACE))

        replicas = self.must(kubectl("get", "deployment", "pushpull", "-n", NAMESPACE, "-o", "jsonpath={.spec.replicas}"))
        after = json.loads(self.must(kubectl("get", "tj", "untouched", "-o", "json")))
        self.assertEqual(replicas, "2")
        self.assertEqual(after, before)


class LifeTest(ReleaseTestCase, OperatorTestCase):
    """The operator's processes run with the configuration and the rights that the release gives its pods."""

    def start_released_operator(self, name: str) -> Operator:
        config = self.must(kubectl("get", "configmap", "pushpull", "-n", NAMESPACE, "-o", "jsonpath={.data.operator\\.yaml}"))
        kubeconfig = self.kubeconfig_of("pushpull", NAMESPACE)
        self.assertIn("metricsPort: 9464", config)
        return self.start_operator_with(name, config.replace("metricsPort: 9464", "metricsPort: 0"), kubeconfig)

    def roll(self, old: Operator, name: str) -> Operator:
        """As a Deployment does after its pod template has changed."""
        new = self.start_released_operator(name)
        self.assertEqual(old.end(signal.SIGTERM), 143, old.log())
        wait_until(new.leads, 60, lambda: f"the new one leads: {new.log()}")
        return new

    def config_hash(self) -> str:
        return self.must(kubectl("get", "deployment", "pushpull", "-n", NAMESPACE, "-o",
                                 "jsonpath={.spec.template.metadata.annotations}"))

    def test_no_pod_of_a_running_job_is_touched(self) -> None:
        self.release("install")
        api_server.wait_for_crd()
        operator = self.start_released_operator("installed")
        self.start_job("steady")
        running = self.await_status("steady", "it runs", phase="Running", workers={"ready": 2})
        template = self.config_hash()

        self.release("upgrade", "--set", "operator.workers=3,operator.logLevel=debug")
        self.assertNotEqual(self.config_hash(), template)  # so that the pods of the Deployment are replaced
        operator = self.roll(operator, "upgraded")
        self.must(kubectl("scale", "tj/steady", "--replicas=2"))
        self.await_status("steady", "two servers", phase="Running", servers={"ready": 2})

        self.must(helm("rollback", "pushpull", "1", "--namespace", NAMESPACE))
        self.assertEqual(self.config_hash(), template)
        operator = self.roll(operator, "rolled-back")
        self.must(kubectl("scale", "tj/steady", "--replicas=1"))
        self.await_status("steady", "one server", phase="Running", servers={"ready": 1, "replicas": 1})

        self.must(helm("uninstall", "pushpull", "--namespace", NAMESPACE))
        self.assertEqual(operator.end(signal.SIGTERM), 143, operator.log())
        self.assertEqual(self.status("steady")["coordinator"], running["coordinator"])

        self.release("install")
        self.start_released_operator("installed-again")
        status = self.await_complete("steady")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once("steady-coordinator", "steady-server-0", "steady-server-1", "steady-worker-0",
                                           "steady-worker-1")
        wait_until(lambda: "steady-server-1" not in kubectl("get", "pods", "-o", "name").stdout, JOB_SECONDS, "it is gone")
        # But the one whose rights were taken away while it ran, and which could not give its lease back.
        for rightful in (one for one in self.operators if one is not operator):
            self.assertNotIn("forbidden", rightful.log())

    def test_uninstall_leaves_no_lease_and_the_next_one_leads(self) -> None:
        self.release("install")
        api_server.wait_for_crd()
        killed = self.start_released_operator("killed")
        wait_until(killed.leads, 60, lambda: f"it leads: {killed.log()}")
        killed.end()  # so that it gives nothing back

        self.must(helm("uninstall", "pushpull", "--namespace", NAMESPACE))

        self.assertEqual(self.must(kubectl("get", "leases", "-n", NAMESPACE, "-o", "name")), "")
        self.release("install")
        following = self.start_released_operator("following")
        wait_until(following.leads, 10, lambda: f"it leads at once: {following.log()}")  # 17 s with the lease of the other

    def test_lease_of_an_earlier_version_stays_the_operators(self) -> None:
        self.must(kubectl("create", "-f", "-", text=json.dumps(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "pushpull", "namespace": NAMESPACE}})))
        self.addCleanup(kubectl, "delete", "lease", "pushpull", "-n", NAMESPACE)

        self.release("install")
        self.release("upgrade", "--set", "operator.logLevel=debug")

        self.must(helm("uninstall", "pushpull", "--namespace", NAMESPACE))
        self.assertIn("pushpull", self.must(kubectl("get", "leases", "-n", NAMESPACE, "-o", "name")))

    def test_namespaced_operator_needs_no_cluster_role(self) -> None:
        self.release("install", "--set", "operator.namespaces={default}")
        api_server.wait_for_crd()
        self.assertNotEqual(kubectl("get", "clusterrole", "pushpull").returncode, 0)
        operator = self.start_released_operator("confined")
        self.start_job("inside")
        self.create_namespace("elsewhere")
        self.must(kubectl("create", "-n", "elsewhere", "-f", "-", text=json.dumps(api_server.job("outside", image="i"))))
        self.addCleanup(kubectl, "delete", "tj", "outside", "-n", "elsewhere", "--wait=false")

        self.await_status("inside", "it runs", phase="Running", workers={"ready": 2})
        self.await_complete("inside")

        self.assertEqual(json.loads(self.must(kubectl("get", "tj", "outside", "-n", "elsewhere", "-o", "json"))).get("status"), None)
        self.assertNotIn("forbidden", operator.log())


if __name__ == "__main__":
    unittest.main()
