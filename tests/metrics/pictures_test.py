# SPDX-License-Identifier: Apache-2.0
"""Every panel of the dashboards as a picture of a real job's data, in build/metrics/panels: look at them.

The job has a slow worker, and lives through the end of a server, a resize and a change of its mode. The operator has an
API server with a job, and no nodes.
"""
import os
import re
import time
import unittest
from typing import Any

import chart
import live_test
import pictures
from live_test import job

PANELS = chart.ROOT / "build/metrics/panels"
ONE_JOB_CLUSTER = os.environ.get("ONE_JOB_CLUSTER", str(chart.ROOT / "build/release/tests/one_job_cluster"))
RATE = "5s"
# Of each part of the job, so that panels show what comes before and after.
PART_SECONDS = 12


def named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), legend)


class PicturesTest(live_test.LiveCase):

    def start_api_server(self) -> str:
        program = self.start(ONE_JOB_CLUSTER)
        return f"http://{program.wait_for_line(r'serves at (?P<address>.+)')['address']}"

    def now(self) -> float:
        return float(self.prometheus.query("vector(time())")[0]["value"][1])

    def train_for(self, seconds: float) -> None:
        end = self.now() + seconds
        job.wait_until(lambda: self.now() >= end, 10 * seconds, "so much of the job is scraped")

    def live_through(self) -> None:
        spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 10, "--values", 200_000, "--slow-worker", 1, "--slow-factor", 6,
                         workers=3, env=[{"name": "PROBE_IGNORES_SUMS", "value": "1"}],
                         restart={"backoffLimit": 5, "initialDelaySeconds": 0},
                         checkpoint={"uri": f"file://{self.folder}/checkpoints", "everySeconds": 4})
        spec["servers"].update(replication=1, maxReplicas=4)
        self.start_job(spec)
        self.await_value("max(pushpull_culprit) > 0", "the slow worker is named")
        self.train_for(PART_SECONDS)
        self.job.kill_and_await_next("server", 1)
        self.scrape()
        self.train_for(PART_SECONDS)
        self.must_scale(3)
        self.train_for(PART_SECONDS)
        self.assertEqual(self.job.set("mode=Async").returncode, 0)
        self.await_value("sum(rate(pushpull_staleness_steps_count[5s]))", "steps in Async")
        self.train_for(PART_SECONDS)

    def lines(self, panel: dict[str, Any], begin: float, seconds: int) -> list[pictures.Line]:
        found = []
        for target in panel["targets"]:
            for series in self.prometheus.range(chart.filled_in(target["expr"], RATE), seconds):
                times, values = zip(*series["values"])
                found.append(pictures.Line(named(target["legendFormat"], series["metric"]), [time - begin for time in times],
                                           [float(value) for value in values]))
        return found

    def marks(self, dashboard: dict[str, Any], begin: float, seconds: int) -> dict[str, list[float]]:
        """When each annotation begins to be there."""
        return {annotation["name"]: [series["values"][0][0] - begin for series in
                                     self.prometheus.range(chart.filled_in(annotation["expr"]), seconds)]
                for annotation in dashboard["annotations"]["list"]}

    def test_each_panel_is_drawn_from_a_real_job(self) -> None:
        begin = time.time()
        self.live_through()
        end = self.now()
        seconds = int(end - begin)
        empty = []
        for name, dashboard in chart.dashboards().items():
            marks = self.marks(dashboard, end - seconds, seconds)
            for panel in chart.panels(dashboard):
                path = PANELS / f"{name}-{re.sub('[^a-z0-9]+', '-', panel['title'].lower())}.png"
                path.unlink(missing_ok=True)
                lines = self.lines(panel, end - seconds, seconds)
                pictures.draw(panel, lines, marks, path)
                self.assertGreater(path.stat().st_size, 0)
                if not lines or any(line.newest() is None for line in lines):
                    empty.append(f"{name}, {panel['title']}: {[line.name for line in lines if line.newest() is None] or 'nothing'}")
        self.assertEqual(empty, [])


if __name__ == "__main__":
    unittest.main()
