# SPDX-License-Identifier: Apache-2.0
"""A cluster that chooses the users of pods, as OpenShift does by its security context constraint restricted-v2."""
import json
import re
import unittest

from api_server import CHART, helm, kubectl, wait_until
from operator_case import OperatorTestCase

# Of the first range that OpenShift gives to a namespace; group 0 is that of the files of an image.
AS_OF_THE_RANGE = ("setpriv", "--reuid", "1000680000", "--regid", "0", "--clear-groups", "--no-new-privs", "--bounding-set=-all")
JOB = "ranged"
# What the constraint refuses, for the pods of this test's job.
CONSTRAINT = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "users-of-a-range"},
    "spec": {
        "matchConstraints": {
            "objectSelector": {"matchLabels": {"pushpull.dev/job": JOB}},
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
        "validations": [{
            "expression": "[object.spec.securityContext].all(c, (!has(c.runAsUser) || c.runAsUser >= 1000680000) && !has(c.fsGroup))",
            "message": "unable to validate against any security context constraint", "reason": "Forbidden"}]}}
BINDING = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "users-of-a-range"},
           "spec": {"policyName": "users-of-a-range", "validationActions": ["Deny"]}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": {"pushpull.dev/job": JOB}},
       "spec": {"securityContext": {"runAsUser": 65532}, "containers": [{"name": "c", "image": "i"}]}}


def context_of_pods(values: str) -> dict:
    """As the chart tells the operator."""
    rendered = helm("template", "pushpull", CHART, "--values", CHART / "ci" / values, "--show-only", "templates/operator/config.yaml")
    return json.loads(re.search(r"podSecurityContext: (\{.*\})", rendered.stdout)[1])


class UidRangesTest(OperatorTestCase):

    def setUp(self) -> None:
        super().setUp()
        for thing in (CONSTRAINT, BINDING):
            self.must(kubectl("apply", "-f", "-", text=json.dumps(thing)))
            self.addCleanup(kubectl, "delete", "-f", "-", "--ignore-not-found", text=json.dumps(thing))
        wait_until(lambda: kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(POD)).returncode != 0, 60,
                   "the constraint is in force")
        level = "pod-security.kubernetes.io/enforce"
        self.must(kubectl("label", "namespace", "default", f"{level}=restricted"))
        self.addCleanup(kubectl, "label", "namespace", "default", f"{level}-")

    def kubeconfig_of_group_0(self) -> str:
        self.must(kubectl("create", "serviceaccount", "ranged"))
        self.addCleanup(kubectl, "delete", "serviceaccount", "ranged")
        self.must(kubectl("create", "clusterrolebinding", "ranged", "--clusterrole=cluster-admin", "--serviceaccount=default:ranged"))
        self.addCleanup(kubectl, "delete", "clusterrolebinding", "ranged")
        path = self.kubeconfig_of("ranged", "default")
        path.chmod(0o640)
        return str(path)

    def test_users_are_left_to_the_cluster(self) -> None:
        self.folder.chmod(0o770)
        kubeconfig = self.kubeconfig_of_group_0()
        self.player.as_user = ("env", "-u", "USER", "-u", "LOGNAME", "HOME=/", *AS_OF_THE_RANGE)
        fixed = self.start_operator_with("fixed", self.config(podSecurityContext=context_of_pods("default-values.yaml")),
                                         kubeconfig, as_user=self.player.as_user)
        self.start_job(JOB, servers={"replicas": 2})
        refused = self.await_condition(JOB, "Reconciled", "Forbidden")
        self.assertIn("unable to validate against any security context constraint", refused["message"])
        fixed.end()

        self.start_operator_with("ranged", self.config(podSecurityContext=context_of_pods("openshift-values.yaml")),
                                 kubeconfig, as_user=self.player.as_user)

        self.await_status(JOB, "it runs", phase="Running", servers={"ready": 2}, workers={"ready": 2})
        pod = json.loads(self.must(kubectl("get", "pod", f"{JOB}-worker-0", "-o", "json")))["spec"]
        self.assertEqual(pod["securityContext"], {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
        self.assertNotIn("runAsUser", pod["containers"][0]["securityContext"])
        self.await_complete(JOB)


if __name__ == "__main__":
    unittest.main()
