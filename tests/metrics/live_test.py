# SPDX-License-Identifier: Apache-2.0
"""Every expression of the chart on a real Prometheus that scrapes a running job and an operator: none is without a value,
and the annotations of the dashboards mark a resize and a failover.

The job is one of `pushpull run`, over TLS; the labels are those that the chart's PodMonitors give. The operator finds no
API server, so its series stand at their first values. Deadlines are there for what hangs.
"""
import json
import os
import pathlib
import re
import signal
import sys
import unittest
import unittest.mock
from typing import Any

import chart
import prometheus

sys.path.insert(0, str(chart.ROOT / "tests/integration/process"))
import job  # noqa: E402
from tls_test import Authority  # noqa: E402

OPERATOR = os.environ.get("PUSHPULL_OPERATOR_BIN", str(chart.ROOT / "build/release/pushpull-operator"))
WAIT_SECONDS = 90.0
_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


class LiveCase(job.JobTestCase):
    """A test with Prometheus, a job and an operator."""

    def setUp(self) -> None:
        super().setUp()
        self.certificates = self.folder / "certificates"
        Authority(self.folder / "authority").issue(self.certificates, 30)
        variables = unittest.mock.patch.dict(os.environ, PUSHPULL_TLS_DIR=str(self.certificates))
        variables.start()
        self.addCleanup(variables.stop)
        self.operator = self.start_operator(self.start_api_server())

    def start_job(self, spec: dict[str, Any], *values: str) -> None:
        """And Prometheus, which scrapes it, with the rules of these values."""
        self.job = self.run_job(spec, environment={"PUSHPULL_TLS_DIR": str(self.certificates)})
        self.prometheus = self.start_prometheus(*values)
        self.job.wait_for_step(20)
        self.scrape()

    def start_prometheus(self, *values: str, features: str = "") -> prometheus.Prometheus:
        address = job.closed_port()
        started = prometheus.Prometheus(self.folder / f"prometheus{features}", address, prometheus.over_http(address), *values, features=features)
        self.start(*started.command).wait_for_line(prometheus.READY)
        return started

    def start_whole_job(self) -> None:
        """One that has all there is: copies of shards, checkpoints."""
        # In Async, which a test sets, sums are others than what the probe expects.
        spec = self.long_spec(env=[{"name": "PROBE_IGNORES_SUMS", "value": "1"}], restart={"backoffLimit": 5, "initialDelaySeconds": 0},
                              checkpoint={"uri": f"file://{self.folder}/checkpoints", "everySeconds": 2})
        spec["servers"].update(replication=1, maxReplicas=4)
        self.start_job(spec)

    def start_api_server(self) -> str:
        """The URL of the operator's API server: here nobody answers there."""
        return f"https://{job.closed_port()}"

    def start_operator(self, api_server: str) -> str:
        """The address of its metrics."""
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG.format(server=api_server), encoding="utf-8")
        config = self.folder / "operator.yaml"
        config.write_text(json.dumps({"runtimeImage": "pushpull:1", "metricsPort": 0, "leaderElection": {"enabled": False}}), encoding="utf-8")
        program = self.start(OPERATOR, "--config", config, "--kubeconfig", kubeconfig, environment={"POD_NAME": "operator"})
        return f"127.0.0.1:{program.wait_for_line(r' started metrics=0.0.0.0:(?P<port>[0-9]+)')['port']}"

    def scrape(self) -> None:
        """What is there now, once all of it is; labels as the PodMonitors give them."""
        def members() -> list[dict[str, Any]]:
            found = json.loads((self.job.workdir / "endpoints.json").read_text(encoding="utf-8"))
            return found if all(member["metrics"] for member in found) else []
        targets = [{"targets": [member["metrics"]],
                    "labels": {"namespace": "team-a", "job": self.job_name, "pod": f"{self.job_name}-{member['role']}-{member['index']}",
                               "app_kubernetes_io_component": member["role"], "pushpull_dev_index": str(member["index"])}}
                   for member in job.wait_until(members, WAIT_SECONDS, "each member has its metrics")]
        targets.append({"targets": [self.operator], "labels": {"namespace": "pushpull-system", "job": "pushpull-system/pushpull", "pod": "pushpull-0"}})
        self.prometheus.scrape(targets)

    def await_value(self, expression: str, what: str) -> None:
        job.wait_until(lambda: self.prometheus.query(chart.filled_in(expression)), WAIT_SECONDS, f"a value of {what}: {chart.filled_in(expression)}")

    def must_scale(self, servers: int) -> None:
        scaled = self.job.scale(servers, "--wait")
        self.assertEqual(scaled.returncode, 0, scaled.stderr)
        self.scrape()


class LiveTest(LiveCase):

    def test_each_panel_and_variable_has_values(self) -> None:
        self.start_whole_job()
        of_async = [question for question in chart.questions() if "pushpull_staleness_steps" in question[1]]
        for what, expression in (question for question in chart.questions() if question not in of_async):
            self.await_value(expression, what)
        self.assertEqual(self.job.set("mode=Async").returncode, 0)
        for what, expression in of_async:
            self.await_value(expression, what)
        for dashboard in chart.dashboards().values():
            for annotation in dashboard["annotations"]["list"]:
                self.prometheus.query(chart.filled_in(annotation["expr"]))

    def test_each_rule_is_evaluated(self) -> None:
        self.start_whole_job()
        records = [rule["name"] for rule in self.prometheus.rules() if rule["type"] == "recording"]
        self.assertEqual(len(records), 6)
        for record in records:
            self.await_value(record, record)
        evaluated = job.wait_until(lambda: all(rule["health"] == "ok" for rule in self.prometheus.rules()) and self.prometheus.rules(), WAIT_SECONDS,
                                   "every rule has been evaluated")
        alerts = [rule for rule in evaluated if rule["type"] == "alerting"]
        self.assertEqual(len(alerts), 13)
        for alert in alerts:
            for selector in re.findall(r"[\w:]*\bpushpull_[\w:]+(?:\{[^}]*\})?", alert["query"]):
                if not selector.startswith("pushpull_culprit"):  # it is there while somebody holds the others up
                    self.await_value(selector, alert["name"])

    def test_annotations_mark_resize_and_failover(self) -> None:
        self.start_whole_job()
        resizes, failovers = (chart.filled_in(entry["expr"]) for entry in chart.dashboards()["job"]["annotations"]["list"])
        self.await_value("sum(pushpull_members offset 10s) > 3", "all members for long enough")
        self.assertEqual(self.prometheus.range(resizes, 1), [])
        self.assertEqual(self.prometheus.range(failovers, 1), [])

        self.job.kill_and_await_next("server", 1)
        self.scrape()
        job.wait_until(lambda: self.prometheus.query(failovers), WAIT_SECONDS, "the failover is marked")
        self.assertEqual(self.prometheus.query(resizes), [])
        job.wait_until(lambda: not self.prometheus.query(failovers), WAIT_SECONDS, "the failover is over")

        self.must_scale(3)
        marked = job.wait_until(lambda: self.prometheus.query(resizes), WAIT_SECONDS, "the resize is marked")
        self.assertEqual([series["metric"]["role"] for series in marked], ["server"])
        self.assertEqual(self.prometheus.query(failovers), [])

    def test_slow_worker_is_the_straggler(self) -> None:
        spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 10, "--slow-worker", 1, "--slow-factor", 5, workers=3)
        self.start_job(spec, "metrics.rules.alerts.straggler.forSeconds=0")

        found = job.wait_until(lambda: self.prometheus.firing("PushpullStraggler"), WAIT_SECONDS, "the straggler is found")

        self.assertEqual([labels["member"] for labels in found], ["worker-1"])

    def test_stall_is_told_and_clears(self) -> None:
        self.start_job(self.long_spec(sync={"stallSeconds": 1}, restart={"peerTimeoutSeconds": 3600}), "metrics.rules.alerts.stalled.forSeconds=0")
        self.await_value("pushpull_stalled == 0", "a job that does not stall")
        self.assertEqual(self.prometheus.firing("PushpullStalled"), [])

        self.job.signal_member("worker", 1, signal.SIGSTOP)
        found = job.wait_until(lambda: self.prometheus.firing("PushpullStalled"), WAIT_SECONDS, "the stall is told")
        self.job.signal_member("worker", 1, signal.SIGCONT)

        self.assertEqual([labels["job"] for labels in found], [self.job_name])
        job.wait_until(lambda: not self.prometheus.firing("PushpullStalled"), WAIT_SECONDS, "the alert clears")

    def test_histograms_lead_to_a_trace(self) -> None:
        self.start_job(self.long_spec())
        text = self.prometheus = self.start_prometheus(features="exemplar-storage")
        self.scrape()
        native = self.prometheus = self.start_prometheus(features="exemplar-storage,native-histograms")
        self.scrape()
        self.await_value("histogram_quantile(0.9, sum(rate(pushpull_sync_seconds[10s]))) < 100", "a quantile of the native buckets")
        self.assertEqual(native.exemplars("pushpull_sync_seconds"), [])

        file = self.folder / "trace.json"
        traced = job.run_command("trace", "--workdir", self.job.workdir, "--steps", 20, "--out", file)
        self.assertEqual(traced.returncode, 0, traced.stderr)

        trace = json.loads(file.read_text(encoding="utf-8"))["otherData"]["trace_id"]
        for server, series in (text, "pushpull_sync_seconds_bucket"), (native, "pushpull_sync_seconds"):
            found = job.wait_until(lambda: server.exemplars(series), WAIT_SECONDS, f"exemplars of {series}")
            self.assertEqual({exemplar["labels"]["trace_id"] for exemplar in found}, {trace})


if __name__ == "__main__":
    unittest.main()
