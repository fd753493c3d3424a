# SPDX-License-Identifier: Apache-2.0
"""Tenants of one cluster: the rights of users, the list of images, the quota of docs/tenants.md, each as Kubernetes' own
programs apply it.
"""
import json
import pathlib
import unittest
from typing import Any

import api_server
from api_server import CHART, Result, job, kubectl, run, wait_until
from chart_test import ChartTestCase, template
from operator_case import PROBE, OperatorTestCase

QUOTA = CHART / "examples/quota.yaml"
EVERYTHING = CHART / "ci/everything-values.yaml"
DEFAULT = CHART / "ci/default-values.yaml"
TENANT = "team-a"
OURS = "registry.example.com/ours/worker:1"
FOREIGN = "registry.example.com.evil/ours/worker:1"
# A busy machine; controllers look at new kinds of objects every 30 s.
SEEN_SECONDS = 120


class TenantCase(ChartTestCase):

    def applied(self, values: pathlib.Path, part: str, *arguments: str) -> None:
        rendered = template(values, "--show-only", f"templates/users/{part}.yaml", *arguments)
        self.must(kubectl("apply", "-f", "-", text=rendered))
        self.addCleanup(kubectl, "delete", "-f", "-", "--ignore-not-found", text=rendered)

    def create(self, namespace: str, manifest: dict[str, Any], *flags: str) -> Result:
        return kubectl("create", "-n", namespace, "-f", "-", *flags, text=json.dumps(manifest))


class ControlledCase(TenantCase):
    """With Kubernetes' own controllers of roles and quotas."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        started = run(api_server.CLUSTER, "api", "add", "kube-controller-manager",
                      "--controllers=clusterrole-aggregation-controller,resourcequota-controller")
        if started.returncode != 0:
            raise AssertionError(started.stderr)
        cls.addClassCleanup(run, api_server.CLUSTER, "api", "remove", "kube-controller-manager")


class UserRolesTest(ControlledCase):

    def bind(self, role: str) -> None:
        """A user of that name, in the tenant's namespace."""
        self.must(kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}", "-n", TENANT))
        self.addCleanup(kubectl, "delete", "rolebinding", role, "-n", TENANT)

    def may(self, user: str, verb: str, what: str, namespace: str = TENANT) -> bool:
        answer = kubectl("auth", "can-i", verb, *what.split(), f"--as={user}", "-n", namespace).stdout.strip()
        self.assertIn(answer, ("yes", "no"))
        return answer == "yes"

    def test_view_reads_and_edit_writes_jobs(self) -> None:
        for role in ("view", "edit", "admin"):
            self.bind(role)
        self.assertFalse(self.may("view", "get", "trainingjobs"))

        self.applied(DEFAULT, "roles")

        for role, verb in (("view", "get"), ("edit", "create"), ("admin", "create")):
            wait_until(lambda: self.may(role, verb, "trainingjobs"), SEEN_SECONDS, f"{role} may {verb} jobs")
        pool = "trainingjobworkers.pushpull.dev --subresource=scale"
        scale, status = "trainingjobs.pushpull.dev --subresource=scale", "trainingjobs.pushpull.dev --subresource=status"
        for role in ("view", "edit", "admin"):
            for verb, what in (("list", "trainingjobs"), ("watch", "trainingjobs"), ("get", status), ("get", scale),
                               ("list", "trainingjobworkers"), ("get", pool), ("list", "trainingruntimes")):
                self.assertTrue(self.may(role, verb, what), f"{role}: {verb} {what}")
            for verb in ("patch", "update"):
                self.assertFalse(self.may(role, verb, status), f"{role}: {verb} the status")
            self.assertFalse(self.may(role, "get", "trainingjobs", "team-b"), role)
            # It is the operator's but for its number.
            for verb in ("create", "patch", "delete"):
                self.assertFalse(self.may(role, verb, "trainingjobworkers"), f"{role}: {verb} trainingjobworkers")
        for verb, what in (("create", "trainingjobs"), ("update", "trainingjobs"), ("patch", "trainingjobs"), ("delete", "trainingjobs"),
                           ("deletecollection", "trainingjobs"), ("patch", scale), ("update", pool),
                           ("create", "trainingruntimes"), ("update", "trainingruntimes"), ("delete", "trainingruntimes")):
            self.assertFalse(self.may("view", verb, what), f"view: {verb} {what}")
            for role in ("edit", "admin"):
                self.assertTrue(self.may(role, verb, what), f"{role}: {verb} {what}")


class QuotaTest(ControlledCase):

    def test_example_refuses_the_job_above_its_number(self) -> None:
        self.must(kubectl("apply", "-n", TENANT, "-f", QUOTA))
        self.addCleanup(kubectl, "delete", "-n", TENANT, "-f", QUOTA)
        self.addCleanup(kubectl, "delete", "tj", "--all", "-n", TENANT, "--wait=false")
        count = "count/trainingjobs.pushpull.dev"

        def status(part: str) -> Any:
            quota = json.loads(self.must(kubectl("get", "resourcequota", "pushpull", "-n", TENANT, "-o", "json")))
            return quota.get("status", {}).get(part, {}).get(count)
        wait_until(lambda: (status("hard"), status("used")) == ("2", "0"), SEEN_SECONDS, "the quota is counted")
        for name in ("first", "second"):
            self.must(self.create(TENANT, job(name)))

        self.refused(self.create(TENANT, job("third")), "exceeded quota: pushpull", f"{count}=2")

        self.must(self.create("team-b", job("third"), "--dry-run=server"))
        self.must(kubectl("delete", "tj", "first", "-n", TENANT))
        wait_until(lambda: self.create(TENANT, job("third")).returncode == 0, SEEN_SECONDS, "there is room for another one")

    def test_example_is_that_of_the_page(self) -> None:
        page = (api_server.ROOT / "docs/tenants.md").read_text(encoding="utf-8")
        example = QUOTA.read_text(encoding="utf-8").partition("apiVersion:")

        self.assertIn(f"```yaml\n{example[1]}{example[2]}```\n", page)


class QuotaPodsTest(OperatorTestCase, ControlledCase):

    def test_quota_of_cpu_and_memory_runs_a_job(self) -> None:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpu"},
                 "spec": {"hard": {"requests.cpu": "8", "requests.memory": "8Gi"}}}
        self.must(kubectl("create", "-f", "-", text=json.dumps(quota)))
        self.addCleanup(kubectl, "delete", "resourcequota", "cpu")
        wait_until(lambda: "8Gi" in kubectl("get", "resourcequota", "cpu", "-o", "jsonpath={.status.hard}").stdout, SEEN_SECONDS,
                   "the quota is counted")
        self.start_operator()

        def start(name: str, **roles: Any) -> None:
            command = [PROBE, "--steps", "100000", "--optimizer", "sgd", "--step-milliseconds", "20", "--until", str(self.finish)]
            self.create_job(name, image="i", command=command, **roles)
        needs = {role: {"requests": {"cpu": cpu, "memory": "64Mi"}}
                 for role, cpu in (("coordinator", "125m"), ("server", "250m"), ("worker", "500m"))}
        start("silent", servers={"resources": needs["server"]}, workers={"resources": needs["worker"]})
        start("stated", coordinator={"resources": needs["coordinator"]}, servers={"resources": needs["server"]},
              workers={"resources": needs["worker"]})

        told = self.await_condition("silent", "Reconciled", "Forbidden")
        self.assertIn("must specify requests.cpu for: coordinator", told["message"])
        self.await_status("stated", "it runs", phase="Running", servers={"ready": 1}, workers={"ready": 1})
        for pod, role in (("stated-coordinator", "coordinator"), ("stated-server-0", "server"), ("stated-worker-0", "worker")):
            found = json.loads(self.must(kubectl("get", "pod", pod, "-o", "jsonpath={.spec.containers[0].resources}")))
            self.assertEqual(found, needs[role], pod)
        self.await_complete("stated")


def template_of(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


# Field as the answer names it, and the spec.
FIELDS = [
    ("spec.image", lambda image: {"image": image}),
    ("spec.servers.image", lambda image: {"servers": {"image": image}}),
    ('spec.workers.template.spec.containers["worker"].image',
     lambda image: {"workers": template_of(containers=[{"name": "worker", "image": image}])}),
    ('spec.workers.template.spec.containers["sidecar"].image',
     lambda image: {"image": OURS, "workers": template_of(containers=[{"name": "worker"}, {"name": "sidecar", "image": image}])}),
    ('spec.workers.template.spec.initContainers["fetch"].image',
     lambda image: {"workers": template_of(initContainers=[{"name": "fetch", "image": image}])}),
    ('spec.servers.template.spec.containers["server"].image',
     lambda image: {"servers": template_of(containers=[{"name": "server", "image": image}])}),
    ('spec.coordinator.template.spec.containers["coordinator"].image',
     lambda image: {"coordinator": template_of(containers=[{"name": "coordinator", "image": image}])}),
    ("spec.servers.template.spec.initContainers.image",
     lambda image: {"servers": template_of(initContainers=[{"image": image}])}),
    ('spec.servers.template.spec.ephemeralContainers["look"].image',
     lambda image: {"servers": template_of(ephemeralContainers=[{"name": "look", "image": image}])}),
    ('spec.workers.template.spec.volumes["data"].image.reference',
     lambda image: {"workers": template_of(volumes=[{"name": "data", "image": {"reference": image}}])}),
]


def restrict_images(test: TenantCase, namespace: str, *allowed: str, arguments: tuple[str, ...] = ()) -> None:
    """For the rest of the test; returns when the policy holds in this namespace."""
    listed = [f"jobImages.allowed[{index}]={entry}" for index, entry in enumerate(allowed)]
    flags = [word for value in ("jobImages.restrict=true", *listed) for word in ("--set-string" if "[" in value else "--set", value)]

    def answer() -> Result:
        return test.create(namespace, job("imaged", image=FOREIGN), "--dry-run=server")
    # A policy holds for a moment after it has gone.
    test.addCleanup(wait_until, lambda: answer().returncode == 0, SEEN_SECONDS, "the policy is gone")
    test.applied(DEFAULT, "job-images", *flags, *arguments)
    wait_until(lambda: "is not on the list" in answer().stderr, SEEN_SECONDS, "the policy holds")


class JobImagesTest(TenantCase):

    LISTED = ("registry.example.com/ours/*", "tools/probe:*", "tools/exact:1")

    def restrict(self, *arguments: str) -> None:
        restrict_images(self, TENANT, *self.LISTED, arguments=arguments)

    def take(self, spec: dict[str, Any], namespace: str = TENANT, kind: str = "TrainingJob") -> Result:
        return self.create(namespace, {**job("imaged", **spec), "kind": kind}, "--dry-run=server")

    def test_every_field_is_kept_to_the_list(self) -> None:
        self.restrict()
        for field, spec in FIELDS:
            for kind in ("TrainingJob", "TrainingRuntime"):
                with self.subTest(f"{kind} {field}"):
                    self.must(self.take(spec(OURS), kind=kind))
                    self.refused(self.take(spec(FOREIGN), kind=kind), f'{field}: the image "{FOREIGN}" is not on the list',
                                 ", ".join(self.LISTED))

    def test_star_ends_where_a_name_does(self) -> None:
        self.restrict()
        for image in ("tools/probe:1", "tools/exact:1", "registry.example.com/ours/deep/er@sha256:0", ""):
            with self.subTest(image):
                self.must(self.take({"image": image}))
        for image in ("tools/probe", "tools/probe:5000/evil", "tools/exact:12", "registry.example.com/ours", "registry.example.com/theirs/w:1"):
            with self.subTest(image):
                self.refused(self.take({"image": image}), f'spec.image: the image "{image}" is not on the list')

    def test_what_cannot_be_judged_is_refused(self) -> None:
        self.restrict()
        for spec, word in ((template_of(initContainers="x"), "job-images"), (template_of(containers=[{"image": [FOREIGN]}]), "job-images"),
                           (template_of(containers="x"), "must be of type array"), ({"template": {"spec": [1]}}, "must be of type object")):
            with self.subTest(json.dumps(spec)):
                self.refused(self.take({"workers": spec}), word)
        # But null is what it is for the operator: nothing.
        self.must(self.take({"workers": template_of(containers=[{"name": "worker", "image": None}], initContainers=None)}))

    def test_job_that_was_there_goes_on(self) -> None:
        self.must(self.create(TENANT, job("earlier", image=FOREIGN)))
        self.addCleanup(kubectl, "delete", "tj", "earlier", "-n", TENANT, "--ignore-not-found", "--wait=false")
        self.restrict()

        self.must(kubectl("scale", "tj/earlier", "--replicas=2", "-n", TENANT))
        self.must(kubectl("label", "tj", "earlier", "tier=old", "-n", TENANT))
        self.must(kubectl("patch", "tj", "earlier", "-n", TENANT, "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Pending"}}'))
        self.refused(kubectl("patch", "tj", "earlier", "-n", TENANT, "--type=merge", "-p", '{"spec": {"suspend": true}}'), "spec.image: the image")
        self.must(kubectl("delete", "tj", "earlier", "-n", TENANT, "--timeout=60s"))

    def test_list_holds_where_the_selector_says(self) -> None:
        self.restrict("--set", "jobImages.namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=team-a")

        self.must(self.take({"image": FOREIGN}, "team-b"))


if __name__ == "__main__":
    unittest.main()
