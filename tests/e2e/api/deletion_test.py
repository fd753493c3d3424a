# SPDX-License-Identifier: Apache-2.0
"""The three ways to delete a job, with Kubernetes' own garbage collector. No finalizer of the operator has a part in it."""
import signal
import unittest

import api_server
from api_server import kubectl, run, wait_until
from operator_case import JOB_SECONDS, OperatorTestCase

# Of a job with one server and two workers.
CHILDREN = ["pods", "services", "networkpolicies", "poddisruptionbudgets", "secrets"]
PODS = ["coordinator", "server-0", "worker-0", "worker-1"]


class DeletionTest(OperatorTestCase):

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        started = run(api_server.CLUSTER, "api", "add", "kube-controller-manager",
                      "--controllers=garbage-collector-controller")
        if started.returncode != 0:
            raise AssertionError(started.stderr)
        cls.addClassCleanup(run, api_server.CLUSTER, "api", "remove", "kube-controller-manager")

    def children(self, name: str) -> list[str]:
        listed = self.must(kubectl("get", ",".join(CHILDREN), "-o", "name", "-l", f"pushpull.dev/job={name}"))
        return sorted(line.partition("/")[2] for line in listed.split())

    def start_running_job(self, name: str) -> list[str]:
        self.start_job(name)
        self.await_status(name, "it runs", phase="Running", workers={"ready": 2})
        children = self.children(name)
        for pod in PODS:
            self.assertIn(f"{name}-{pod}", children)
        self.assertGreater(len(children), len(PODS))
        self.assertEqual(self.must(kubectl("get", "tj", name, "-o", "jsonpath={.metadata.finalizers}")), "")
        return children

    def await_gone(self, name: str) -> None:
        wait_until(lambda: not self.children(name), JOB_SECONDS, lambda: f"nothing is left of {name}: {self.children(name)}")
        # Each once: nothing was made anew while the job went.
        self.assert_each_pod_was_made_once(*(f"{name}-{pod}" for pod in PODS))

    def test_background_deletion_takes_all_that_the_job_has(self) -> None:
        self.start_operator()
        self.start_running_job("behind")

        self.must(kubectl("delete", "tj", "behind", "--cascade=background", "--timeout=10s"))

        self.await_gone("behind")

    def test_foreground_deletion_ends_after_all_owned_objects(self) -> None:
        self.start_operator()
        self.start_running_job("before")

        self.must(kubectl("delete", "tj", "before", "--cascade=foreground", f"--timeout={JOB_SECONDS}s"))

        self.assertEqual(self.children("before"), [])
        self.await_gone("before")

    def test_orphans_run_on_and_a_new_job_leaves_them_alone(self) -> None:
        self.start_operator()
        children = self.start_running_job("left")
        uids = {name: list(self.player.uids[name]) for name in self.player.uids}

        self.must(kubectl("delete", "tj", "left", "--cascade=orphan", "--timeout=30s"))
        self.assertEqual(self.children("left"), children)
        owners = self.must(kubectl("get", "pods", "-l", "pushpull.dev/job=left", "-o", "jsonpath={.items[*].metadata.ownerReferences}"))
        self.assertEqual(owners, "")

        self.start_job("left")
        told = self.await_condition("left", "Reconciled", "NameConflict")
        self.assertEqual(told["status"], "False")
        self.assertIn("left", told["message"])
        self.assertEqual(self.children("left"), children)
        self.assertEqual({name: list(self.player.uids[name]) for name in uids}, uids)

        # Whoever wants the new job clears the way.
        self.must(kubectl("delete", ",".join(CHILDREN), "-l", "pushpull.dev/job=left", "--wait=false"))
        self.await_status("left", "the new one runs", phase="Running", workers={"ready": 2})
        self.await_complete("left")

    def test_job_deleted_without_an_operator_is_collected(self) -> None:
        operator = self.start_operator()
        self.start_running_job("alone")
        self.assertEqual(operator.end(signal.SIGTERM), 143)

        self.must(kubectl("delete", "tj", "alone", f"--timeout={JOB_SECONDS}s"))

        self.await_gone("alone")


if __name__ == "__main__":
    unittest.main()
