# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the pods of a job and the operator, as the chart's PodMonitors name them: Debian's knows no
Kubernetes, so the test makes of a PodMonitor what the Prometheus operator makes of it, and writes that into a file."""
import json
import re
import subprocess
import unittest
from typing import Any

import chart
import prometheus
from api_server import CLUSTER, run, wait_until
from nodes import NodeCase, get, is_true, kubectl, must
from operator_log import SYSTEM

# In the network of node 1, where nobody else has it.
ADDRESS = "127.0.0.1:9090"
WAIT_SECONDS = 90.0
# The operator asks the coordinator of a job that runs every 30 s.
TOLD_SECONDS = 75.0


def from_node(url: str) -> str:
    """Its answer, as a pod on node 1 gets it."""
    return must(run(CLUSTER, "net", 1, "curl", "-s", "--fail-with-body", "-m", "30", url))


def targets_of(monitor: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the pods that this PodMonitor selects: addresses, and the labels of their series."""
    spec, namespace = monitor["spec"], monitor["metadata"]["namespace"]
    where = ["-A"] if spec.get("namespaceSelector", {}).get("any") else ["-n", namespace]
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
    ports = [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]]
    found = []
    for pod in get("pods", *where, "-l", selector)["items"]:
        labels = pod["metadata"]["labels"]
        of_series = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"],
                     "job": labels.get(spec.get("jobLabel", ""), f"{namespace}/{monitor['metadata']['name']}")}
        of_series.update({re.sub(r"\W", "_", name): labels[name] for name in spec.get("podTargetLabels", []) if name in labels})
        for container in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]):
            found += [{"targets": [f"{pod['status']['podIP']}:{port['containerPort']}"], "labels": {**of_series, "container": container["name"]}}
                      for port in container.get("ports", []) if port.get("name") in ports]
    return found


class MetricsTest(NodeCase):

    def start_prometheus(self, *values: str) -> None:
        """Scrapes the pods that there are now, with the rules of these values."""
        self.prometheus = prometheus.Prometheus(self.folder / "prometheus", ADDRESS, lambda path: from_node(f"http://{ADDRESS}{path}"), *values)
        log = self.folder / "prometheus.log"
        with log.open("w", encoding="utf-8") as output:
            program = subprocess.Popen([CLUSTER, "net", "1", *self.prometheus.command], stdout=output, stderr=output)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        wait_until(lambda: prometheus.READY in log.read_text(encoding="utf-8"), WAIT_SECONDS, lambda: log.read_text(encoding="utf-8"))
        self.prometheus.scrape([target for monitor in chart.pod_monitors() for target in targets_of(monitor)])

    def await_value(self, expression: str, what: str) -> None:
        wait_until(lambda: self.prometheus.query(expression), WAIT_SECONDS, f"a value of {what}: {expression}")

    def test_every_pod_is_scraped_and_every_panel_has_values(self) -> None:
        self.create_claim("measured")
        self.start_job("measured", command=["probe_worker", "--steps", "1000000", "--step-milliseconds", "20"],
                       env=[{"name": "PROBE_IGNORES_SUMS", "value": "1"}],  # in Async they are others than it expects
                       servers={"replicas": 2, "replication": 1}, checkpoint={"claim": "measured", "everySeconds": 2})
        self.start_prometheus()
        expected = {*self.pods("measured"), *(pod["metadata"]["name"] for pod in get("pods", "-n", SYSTEM)["items"])}

        def scraped() -> set[str]:
            return {series["metric"]["pod"] for series in self.prometheus.query("up == 1")}
        wait_until(lambda: scraped() == expected, WAIT_SECONDS, lambda: f"scraped: {scraped()}, not {expected}")
        of_async = [question for question in chart.questions() if "pushpull_staleness_steps" in question[1]]
        for what, expression in (question for question in chart.questions() if question not in of_async):
            self.await_value(expression, what)
        must(kubectl("patch", "tj", "measured", "--type=merge", "-p", json.dumps({"spec": {"sync": {"mode": "Async"}}})))
        for what, expression in of_async:
            self.await_value(expression, what)
        self.say(f"{len(expected)} pods scraped, {len(chart.questions())} expressions have values")

    def test_a_stall_is_a_condition_an_alert_and_on_the_page(self) -> None:
        """Of a job whose worker 1 contributes nothing to a step until the test lets it."""
        command = ["probe_worker", "--steps", "300", "--step-milliseconds", "20", "--stall-at-step", "200", "--stall-worker", "1",
                   "--stall-until", "/test/go-on"]
        self.start_job("stalling", command=command, sync={"stallSeconds": 1})
        self.start_prometheus("metrics.rules.alerts.stalled.forSeconds=0")
        page = f"http://{get('pod', 'stalling-coordinator')['status']['podIP']}:9464"
        self.assertIn("<title>", from_node(f"{page}/"))

        told = self.await_job("stalling", lambda status: is_true({"status": status}, "Stalled"), TOLD_SECONDS, "Stalled is true")
        fired = wait_until(lambda: self.prometheus.firing("PushpullStalled"), TOLD_SECONDS, "the alert fires")
        on_page = json.loads(from_node(f"{page}/status.json"))["stalled"]
        self.say(f"told after {told:.1f} s; on the page: {on_page}")
        self.assertEqual([labels["job"] for labels in fired], ["stalling"])
        self.assertIn("step 200 waits for worker-1", on_page)

        (self.folder / "go-on").touch()
        wait_until(lambda: not self.prometheus.firing("PushpullStalled"), TOLD_SECONDS, "the alert clears")
        must(kubectl("wait", "--for=condition=Complete", f"--timeout={TOLD_SECONDS:.0f}s", "tj/stalling"))
        self.assertFalse(is_true(get("tj", "stalling"), "Stalled"))


if __name__ == "__main__":
    unittest.main()
