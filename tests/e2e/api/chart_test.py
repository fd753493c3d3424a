# SPDX-License-Identifier: Apache-2.0
"""The chart: lint and its own tests, what the API server says of all that it renders, and what the operator's
rights are in the end. Releases are in release_test.py.
"""
import json
import pathlib
import re
import unittest

import api_server
from api_server import CHART, helm, kubectl, run

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "pushpull-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:pushpull"

# Of the Prometheus operator, as much as an API server needs to take its objects.
_STRANGERS = "".join(f"""---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {plural[:-1]}}}
  versions:
    - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}
""" for plural, kind in (("podmonitors", "PodMonitor"), ("prometheusrules", "PrometheusRule")))

_NAMESPACES = "".join(f"""---
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels: {{pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}}
""" for name in (NAMESPACE, "team-a", "team-b"))


def template(values: pathlib.Path, *arguments: str) -> str:
    result = helm("template", "pushpull", CHART, "--namespace", NAMESPACE, "--values", values, *arguments)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


def documents(text: str) -> list[dict]:
    """As JSON, which kubectl makes of them."""
    listed = kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", text=text)
    if listed.returncode != 0:
        raise AssertionError(listed.stderr)
    decoder, rest, found = json.JSONDecoder(), listed.stdout.strip(), []
    while rest:
        value, end = decoder.raw_decode(rest)
        found += value["items"] if value["kind"] == "List" else [value]
        rest = rest[end:].strip()
    return found


class ChartTestCase(api_server.ApiTestCase):

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        applied = kubectl("apply", "-f", "-", text=_STRANGERS + _NAMESPACES)
        if applied.returncode != 0:
            raise AssertionError(applied.stderr)
        api_server.wait_until(lambda: kubectl("get", "podmonitors,prometheusrules", "-A").returncode == 0, 60,
                              "the API server serves PodMonitor and PrometheusRule")


class LintTest(ChartTestCase):

    def test_lint_is_content_with_each_values_file(self) -> None:
        self.assertGreaterEqual(len(VALUES), 4)
        for values in VALUES:
            with self.subTest(values.name):
                self.must(helm("lint", "--strict", CHART, "--values", values))

    def test_own_tests_pass(self) -> None:
        self.must(run(api_server.bin_folder() / "helm-unittest", "--strict", CHART))

    def test_misspelt_value_fails_the_installation(self) -> None:
        result = helm("install", "pushpull", CHART, "--namespace", NAMESPACE, "--set", "operator.replica=3", "--dry-run=server")

        self.refused(result, "operator", "replica")

    def test_schema_has_the_keys_of_the_values(self) -> None:
        # That the values fit the schema is the lint's.
        schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

        def paths(node: dict, path: str) -> set[str]:
            reference = node.get("$ref", "").rpartition("/")[2]
            node = schema["definitions"][reference] if reference else node
            inner = [paths(value, f"{path}.{key}") for key, value in node.get("properties", {}).items()]
            return {path} | set().union(*inner)

        written, stack = set(), []
        for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
            key = re.match(r"( *)(\w+):", line)
            if key is not None:
                del stack[len(key[1]) // 2:]
                stack.append(key[2])
                written.add("." + ".".join(stack))

        self.assertEqual(paths(schema, "") - written, {"", ".global"})

    def test_panels_and_alerts_ask_for_metrics_that_there_are(self) -> None:
        sources = [path.read_text(encoding="utf-8") for folder in ("runtime", "operator")
                   for path in (api_server.ROOT / folder).rglob("*.cc")]
        known = set(re.findall(r'"(pushpull_\w+)"', "".join(sources)))
        files = [*(CHART / "dashboards").glob("*.json"), CHART / "templates/metrics/_rules.tpl"]
        self.assertEqual(len(files), 3)
        for path in files:
            # Names of records have a colon on both sides.
            asked = set(re.findall(r"(?<!:)\bpushpull_\w+", path.read_text(encoding="utf-8")))
            # A histogram is asked for by what it is stored as.
            asked = {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in asked}
            self.assertEqual(asked - known, set(), path.name)


class ServerTest(ChartTestCase):

    def test_everything_rendered_is_taken(self) -> None:
        for values in VALUES:
            with self.subTest(values.name):
                rendered = template(values)

                result = kubectl("apply", "--dry-run=server", "-f", "-", text=rendered)

                self.must(result)
                self.assertNotIn("would violate PodSecurity", result.stderr)

    def test_operator_pod_passes_the_restricted_level(self) -> None:
        for values in VALUES:
            with self.subTest(values.name):
                deployment = next(d for d in documents(template(values)) if d["kind"] == "Deployment")
                pod = {"apiVersion": "v1", "kind": "Pod", "spec": deployment["spec"]["template"]["spec"],
                       "metadata": {**deployment["spec"]["template"]["metadata"], "name": "p", "namespace": NAMESPACE}}
                pod["spec"].pop("priorityClassName", None)  # of a namespace of the cluster's own

                self.must(kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod)))

                self.assertTrue(pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"])


class RightsTest(ChartTestCase):

    def table(self) -> set[tuple[str, str]]:
        """Of the chart's README: (resource, verb)."""
        rows = re.findall(r"^\| `([\w./]+)` \| ([a-z, ]+) \|", (CHART / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
        return {(resource, verb) for resource, verbs in rows for verb in verbs.split(", ")}

    def rendered(self, kind: str, values: str) -> set[tuple[str, str]]:
        """Of the operator; those of users are in tenants_test.py."""
        rendered = template(CHART / "ci" / values, "--show-only", "templates/operator/rbac.yaml")
        roles = [d for d in documents(rendered) if d["kind"] == kind]
        rights = set()
        for rule in (rule for role in roles for rule in role["rules"]):
            for group in rule["apiGroups"]:
                names = [f"{resource}.{group}" if group else resource for resource in rule["resources"]]
                rights |= {(re.sub(r"^(\w+)(/\w+)(\..*)$", r"\1\3\2", name), verb) for name in names for verb in rule["verbs"]}
        return rights

    def test_rights_are_those_of_the_table(self) -> None:
        cluster = self.rendered("ClusterRole", "default-values.yaml") | self.rendered("Role", "default-values.yaml")

        self.assertEqual(cluster, self.table())
        # Nodes have no namespace.
        self.assertEqual(self.rendered("Role", "namespaced-values.yaml"), self.table() - {("nodes", "get")})
        self.assertNotIn("kind: ClusterRole", template(CHART / "ci/namespaced-values.yaml"))

    def may(self, verb: str, what: str, *where: str) -> bool:
        """`what` is a resource, "resource/name", or "resource --subresource=name"."""
        answer = kubectl("auth", "can-i", verb, *what.split(), f"--as={OPERATOR}", *where).stdout
        self.assertIn(answer.strip(), ("yes", "no"))
        return answer.strip() == "yes"

    def apply_rights(self, values: str) -> None:
        # Nothing is left of another test's.
        for kind in ("clusterrole", "clusterrolebinding"):
            self.must(kubectl("delete", kind, "pushpull", "--ignore-not-found"))
        rendered = template(CHART / "ci" / values, "--show-only", "templates/operator/rbac.yaml")
        self.must(kubectl("apply", "-f", "-", text=rendered))
        self.addCleanup(kubectl, "delete", "-f", "-", "--ignore-not-found", text=rendered)
        api_server.wait_until(lambda: self.may("create", "pods", "-n", "team-a"), 30, "the API server knows the new rights")

    def test_cluster_operator_has_exactly_the_rights_it_needs(self) -> None:
        self.apply_rights("default-values.yaml")

        for verb, what in (("create", "pods"), ("patch", "trainingjobs --subresource=status"), ("get", "secrets"), ("watch", "trainingjobs")):
            self.assertTrue(self.may(verb, what, "--all-namespaces"), f"{verb} {what}")
        for verb, what in (("list", "secrets"), ("watch", "secrets"), ("create", "pods --subresource=exec"), ("get", "pods --subresource=log"),
                           ("create", "trainingjobs"), ("update", "trainingjobs"), ("delete", "trainingjobworkers"), ("create", "roles"), ("list", "nodes"),
                           ("*", "*"), ("impersonate", "users"), ("get", "configmaps")):
            self.assertFalse(self.may(verb, what, "--all-namespaces"), f"{verb} {what}")

    def test_operator_of_some_namespaces_may_nothing_elsewhere(self) -> None:
        self.apply_rights("namespaced-values.yaml")

        self.assertTrue(self.may("create", "pods", "-n", "team-b"))
        self.assertFalse(self.may("create", "pods", "-n", "default"))
        self.assertFalse(self.may("list", "trainingjobs", "--all-namespaces"))
        self.assertTrue(self.may("create", "leases", "-n", NAMESPACE))
        self.assertFalse(self.may("create", "leases", "-n", "team-a"))

    def test_lease_of_another_is_not_its_own(self) -> None:
        self.apply_rights("default-values.yaml")

        self.assertTrue(self.may("update", "leases.coordination.k8s.io/pushpull", "-n", NAMESPACE))
        self.assertFalse(self.may("update", "leases.coordination.k8s.io/other", "-n", NAMESPACE))


if __name__ == "__main__":
    unittest.main()
