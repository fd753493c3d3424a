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
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import chart

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


def filled_in(expression: str, rate: str = "30s") -> str:
    """As Grafana does, with all of each variable selected. What is shorter than it would be is so because the scrapes are."""
    expression = expression.replace("$__rate_interval", rate).replace("2m", "10s")
    return re.sub(r"\$(namespace|job|operator)\b", ".+", expression)


class Prometheus:
    """Scrapes every second what `targets` names."""

    def __init__(self, jobs: job.Jobs, *values: str, features: str = "") -> None:
        """With the rules of the chart under these values."""
        folder = jobs.folder / f"prometheus{features}"
        folder.mkdir()
        self._targets = folder / "targets.json"
        self._targets.write_text("[]", encoding="utf-8")
        chart.write_rules(folder / "rules.yaml", *values)
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"],
                  "scrape_configs": [{"job_name": "pods", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self._address = job.closed_port()
        self._program = jobs.start(chart.program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                   f"--web.listen-address={self._address}", f"--enable-feature={features}")
        self._program.wait_for_line("ready to receive web requests")

    def scrape(self, targets: list[dict[str, Any]]) -> None:
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(targets), encoding="utf-8")
        new.rename(self._targets)

    def _ask(self, path: str, **words: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{words}: {refused.read().decode()}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Its values now that are numbers; of an operator, which reconciles nothing here, also those that are none."""
        return [series for series in self._ask("query", query=expression)["result"]
                if series["value"][1] != "NaN" or "pushpull_operator_reconcile" in expression]

    def range(self, expression: str, seconds: int) -> list[dict[str, Any]]:
        """Its values, one a second, in the last so many."""
        end = float(self._ask("query", query="time()")["result"][1])
        return self._ask("query_range", query=expression, start=str(end - seconds), end=str(end), step="1")["result"]

    def exemplars(self, series: str) -> list[dict[str, Any]]:
        """Of the last minute."""
        end = float(self._ask("query", query="time()")["result"][1])
        found = self._ask("query_exemplars", query=series, start=str(end - 60), end=str(end))
        return [exemplar for of_series in found for exemplar in of_series["exemplars"]]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]


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
        self.prometheus = Prometheus(self, *values)
        self.job.wait_for_step(20)
        self.scrape()

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
        job.wait_until(lambda: self.prometheus.query(filled_in(expression)), WAIT_SECONDS, f"a value of {what}: {filled_in(expression)}")

    def must_scale(self, servers: int) -> None:
        scaled = self.job.scale(servers, "--wait")
        self.assertEqual(scaled.returncode, 0, scaled.stderr)
        self.scrape()


class LiveTest(LiveCase):

    def test_each_panel_and_variable_has_values(self) -> None:
        self.start_whole_job()
        targets = [(f"{name}, {panel['title']}, {target['legendFormat']}", target["expr"]) for name, dashboard in chart.dashboards().items()
                   for panel in chart.panels(dashboard) for target in panel["targets"]]
        of_async = [target for target in targets if "pushpull_staleness_steps" in target[1]]
        for what, expression in (target for target in targets if target not in of_async):
            self.await_value(expression, what)
        self.assertEqual(self.job.set("mode=Async").returncode, 0)
        for what, expression in of_async:
            self.await_value(expression, what)
        for name, dashboard in chart.dashboards().items():
            for variable in dashboard["templating"]["list"][1:]:
                series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
                self.await_value(f"count by ({label}) ({series})", f"{name}, variable {variable['name']}")
            for annotation in dashboard["annotations"]["list"]:
                self.prometheus.query(filled_in(annotation["expr"]))

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
        resizes, failovers = (filled_in(entry["expr"]) for entry in chart.dashboards()["job"]["annotations"]["list"])
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

    def firing(self, name: str) -> list[dict[str, str]]:
        """The labels of its alerts."""
        alerts = (alert for rule in self.prometheus.rules() if rule["name"] == name for alert in rule["alerts"])
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def test_slow_worker_is_the_straggler(self) -> None:
        spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 10, "--slow-worker", 1, "--slow-factor", 5, workers=3)
        self.start_job(spec, "metrics.rules.alerts.straggler.forSeconds=0")

        found = job.wait_until(lambda: self.firing("PushpullStraggler"), WAIT_SECONDS, "the straggler is found")

        self.assertEqual([labels["member"] for labels in found], ["worker-1"])

    def test_stall_is_told_and_clears(self) -> None:
        self.start_job(self.long_spec(sync={"stallSeconds": 1}, restart={"peerTimeoutSeconds": 3600}), "metrics.rules.alerts.stalled.forSeconds=0")
        self.await_value("pushpull_stalled == 0", "a job that does not stall")
        self.assertEqual(self.firing("PushpullStalled"), [])

        self.job.signal_member("worker", 1, signal.SIGSTOP)
        found = job.wait_until(lambda: self.firing("PushpullStalled"), WAIT_SECONDS, "the stall is told")
        self.job.signal_member("worker", 1, signal.SIGCONT)

        self.assertEqual([labels["job"] for labels in found], [self.job_name])
        job.wait_until(lambda: not self.firing("PushpullStalled"), WAIT_SECONDS, "the alert clears")

    def test_histograms_lead_to_a_trace(self) -> None:
        self.start_job(self.long_spec())
        text = self.prometheus = Prometheus(self, features="exemplar-storage")
        self.scrape()
        native = self.prometheus = Prometheus(self, features="exemplar-storage,native-histograms")
        self.scrape()
        self.await_value("histogram_quantile(0.9, sum(rate(pushpull_sync_seconds[10s]))) < 100", "a quantile of the native buckets")
        self.assertEqual(native.exemplars("pushpull_sync_seconds"), [])

        file = self.folder / "trace.json"
        traced = job.run_command("trace", "--workdir", self.job.workdir, "--steps", 20, "--out", file)
        self.assertEqual(traced.returncode, 0, traced.stderr)

        trace = json.loads(file.read_text(encoding="utf-8"))["otherData"]["trace_id"]
        for prometheus, series in (text, "pushpull_sync_seconds_bucket"), (native, "pushpull_sync_seconds"):
            found = job.wait_until(lambda: prometheus.exemplars(series), WAIT_SECONDS, f"exemplars of {series}")
            self.assertEqual({exemplar["labels"]["trace_id"] for exemplar in found}, {trace})


if __name__ == "__main__":
    unittest.main()
