# SPDX-License-Identifier: Apache-2.0
"""The chart's alerts and recording rules, as Helm renders them, judged by promtool."""
import pathlib
import shutil
import tempfile
import unittest

import chart

TESTS = pathlib.Path(__file__).resolve().parent / "alerts.yaml"


class RulesTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.rules = pathlib.Path(folder.name) / "rules.yaml"

    def assert_passes(self, *words: object) -> None:
        result = chart.run("promtool", *words)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_rules_are_rules_of_prometheus(self) -> None:
        chart.write_rules(self.rules)

        self.assert_passes("check", "rules", "--lint=all", "--lint-fatal", self.rules)

    def test_each_alert_fires_under_its_fault_and_clears(self) -> None:
        chart.write_rules(self.rules)
        tests = shutil.copy(TESTS, self.rules.parent)

        self.assert_passes("test", "rules", tests)

    def test_no_alert_is_without_such_a_test(self) -> None:
        cases = [case for test in chart.read_yaml(TESTS)["tests"] for case in test["alert_rule_test"]]
        for alert in chart.alerts():
            fires = [case for case in cases if case["alertname"] == alert["alert"] and case["exp_alerts"]]
            silent = [case for case in cases if case["alertname"] == alert["alert"] and not case["exp_alerts"]]
            self.assertTrue(fires and silent, alert["alert"])

    def test_other_thresholds_are_rules_too(self) -> None:
        chart.write_rules(self.rules, "metrics.rules.alerts.straggler.stepShare=0.2", "metrics.rules.alerts.slowServer.stepShare=0.001",
                          "metrics.rules.alerts.certificateExpires.remainingSeconds=3000000", "metrics.rules.alerts.restarts.count=1000000")

        self.assert_passes("check", "rules", "--lint=all", "--lint-fatal", self.rules)
        self.assertIn("< 3000000", self.rules.read_text(encoding="utf-8"))

    def test_each_alert_has_a_runbook(self) -> None:
        alerts = {alert["alert"]: alert for alert in chart.alerts()}
        for name, alert in alerts.items():
            self.assertTrue((chart.ROOT / alert["annotations"]["runbook_url"]).is_file(), name)
        pages = {page.stem for page in (chart.ROOT / "docs/runbooks").glob("Pushpull*.md")}
        self.assertEqual(pages, set(alerts))
