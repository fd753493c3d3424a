# SPDX-License-Identifier: Apache-2.0
"""The chart's dashboards: their shape, and the rules of Grafana's dashboard-linter, each as a test, because Go's module
proxy does not serve that program. Two of its rules do not hold here, with reason: there is no variable `instance`
(template-instance-rule, target-instance-rule), because members are told by their pods and an instance is an address that
changes with each start; and in panels about the operator the variable for its label `job` is `operator`. That the
expressions are PromQL and have values: live_test.py.
"""
import re
import unittest
from typing import Any, Iterator

import chart

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Of Grafana's list, those that there is a use for.
UNITS = {"none", "short", "cps", "reqps", "s", "percentunit", "bytes", "Bps", "bool"}
# Labels with few values, whatever the cluster has; all others need a bound on the number of series.
FEW_VALUES = {"role", "phase", "reason", "channel", "controller"}
DASHBOARD = {"uid": str, "title": str, "description": str, "tags": list, "schemaVersion": int, "version": int, "editable": bool,
             "graphTooltip": int, "timezone": str, "refresh": str, "time": dict, "annotations": dict, "links": list, "templating": dict,
             "panels": list}
PANEL = {"id": int, "type": str, "title": str, "description": str, "datasource": dict, "gridPos": dict, "fieldConfig": dict, "options": dict,
         "targets": list}
ROW = {"id": int, "type": str, "title": str, "collapsed": bool, "gridPos": dict, "panels": list}
TARGET = {"refId": str, "datasource": dict, "expr": str, "legendFormat": str}
ANNOTATION = {"name": str, "datasource": dict, "enable": bool, "iconColor": str, "expr": str, "step": str, "titleFormat": str, "textFormat": str,
              "tagKeys": str, "useValueForTime": bool}
VARIABLE = {"name": str, "label": str, "type": str, "datasource": dict, "query": str, "definition": str, "refresh": int, "sort": int,
            "multi": bool, "includeAll": bool, "allValue": str, "current": dict}
DATA_SOURCE_VARIABLE = {"name": str, "type": str, "query": str, "label": str, "current": dict, "refresh": int}
_SELECTOR = re.compile(r"\b(pushpull_\w+)(\{[^}]*\})?")


class DashboardsTest(unittest.TestCase):

    def setUp(self) -> None:
        self.dashboards = chart.dashboards()
        self.assertEqual(set(self.dashboards), {"job", "fleet"})

    def panels(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, dashboard in self.dashboards.items():
            for panel in chart.panels(dashboard):
                yield f"{name}, {panel['title']}", panel

    def targets(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, panel in self.panels():
            for target in panel["targets"]:
                yield f"{name}, {target['refId']}", target

    def variables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, dashboard in self.dashboards.items():
            for variable in dashboard["templating"]["list"][1:]:
                yield f"{name}, {variable['name']}", variable

    def assert_shape(self, thing: dict[str, Any], shape: dict[str, type], where: str) -> None:
        self.assertEqual({key: type(value) for key, value in thing.items()}, shape, where)

    def test_shape_is_that_of_a_dashboard(self) -> None:
        for name, dashboard in self.dashboards.items():
            self.assert_shape(dashboard, DASHBOARD, name)
            source, *variables = dashboard["templating"]["list"]
            self.assert_shape(source, DATA_SOURCE_VARIABLE, name)
            for variable in variables:
                self.assert_shape(variable, VARIABLE, f"{name}, {variable['name']}")
            for annotation in dashboard["annotations"]["list"]:
                self.assert_shape(annotation, ANNOTATION, f"{name}, {annotation['name']}")
            for panel in dashboard["panels"]:
                self.assertIn(panel["type"], ("row", "timeseries", "stat"))
                self.assert_shape(panel, ROW if panel["type"] == "row" else PANEL, f"{name}, {panel['title']}")
        for where, target in self.targets():
            self.assert_shape(target, TARGET, where)

    def test_panels_have_places_of_their_own(self) -> None:
        for name, dashboard in self.dashboards.items():
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(set(ids)), len(ids), name)
            taken: set[tuple[int, int]] = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertFalse(taken & cells, f"{name}, {panel['title']}")
                taken |= cells

    def test_nobody_edits_what_an_upgrade_replaces(self) -> None:
        for name, dashboard in self.dashboards.items():
            self.assertFalse(dashboard["editable"], name)
            self.assertEqual(dashboard["uid"], f"pushpull-{name}")

    def test_data_source_is_the_variable_everywhere(self) -> None:
        for name, dashboard in self.dashboards.items():
            source = dashboard["templating"]["list"][0]
            self.assertEqual((source["name"], source["type"], source["query"], source["label"]),
                             ("datasource", "datasource", "prometheus", "Data source"), name)
            for annotation in dashboard["annotations"]["list"]:
                self.assertEqual(annotation["datasource"], DATA_SOURCE, annotation["name"])
        for where, thing in (*self.panels(), *self.targets(), *self.variables()):
            self.assertEqual(thing["datasource"], DATA_SOURCE, where)

    def test_variables_follow_the_time_and_take_several_values(self) -> None:
        for name, dashboard in self.dashboards.items():
            names = [variable["name"] for variable in dashboard["templating"]["list"]]
            self.assertEqual(names[:3], ["datasource", "namespace", "job"], name)
        for where, variable in self.variables():
            self.assertEqual((variable["type"], variable["refresh"], variable["multi"], variable["includeAll"], variable["allValue"]),
                             ("query", 2, True, True, ".+"), where)
            self.assertEqual(variable["label"], variable["name"].capitalize(), where)
            self.assertEqual(variable["query"], variable["definition"], where)
            self.assertRegex(variable["query"], r"^label_values\(pushpull_\w+(\{.+\})?, \w+\)$", where)

    def test_each_panel_has_title_description_unit_and_target(self) -> None:
        for name, dashboard in self.dashboards.items():
            titles = [panel["title"] for panel in dashboard["panels"]]
            self.assertEqual(len(set(titles)), len(titles), name)
        for where, panel in self.panels():
            self.assertTrue(panel["title"] and panel["targets"], where)
            self.assertRegex(panel["description"], r"^\S.*\.$", where)
            self.assertIn(panel["fieldConfig"]["defaults"].get("unit"), UNITS, where)
            references = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(set(references)), len(references), where)

    def test_counts_are_whole_numbers(self) -> None:
        """Half a member on an axis, or 4096 workers as 4.1 K, tell nobody anything."""
        for where, panel in self.panels():
            field = panel["fieldConfig"]["defaults"]
            self.assertEqual(field["unit"] == "none", field.get("decimals") == 0, where)
            if all(re.search(r"\bpushpull_(?:members|step|epoch|operator_jobs|operator_queue_depth)\{", target["expr"]) for target in panel["targets"]):
                self.assertEqual(field["unit"], "none", where)

    def test_each_selector_asks_for_job_and_namespace(self) -> None:
        expressions = [(where, target["expr"]) for where, target in self.targets()]
        expressions += [(annotation["name"], annotation["expr"]) for dashboard in self.dashboards.values()
                        for annotation in dashboard["annotations"]["list"]]
        for where, expression in expressions:
            selectors = _SELECTOR.findall(expression)
            self.assertTrue(selectors, where)
            for series, matchers in selectors:
                wanted = ['job=~"$operator"'] if series.startswith("pushpull_operator_") else ['namespace=~"$namespace"', 'job=~"$job"']
                for matcher in wanted:
                    self.assertIn(matcher, matchers, f"{where}: {series}")

    def test_rates_follow_the_interval_of_the_scrapes(self) -> None:
        for where, target in self.targets():
            for function, window in re.findall(r"\b(rate|irate|increase|changes|resets)\([^\[\]]*\[([^\]]*)\]\)", target["expr"]):
                self.assertEqual(window, "$__rate_interval", f"{where}: {function}")

    def test_counters_and_histograms_are_never_shown_raw(self) -> None:
        counted = re.compile(r"pushpull_\w+_(?:total|sum|count|bucket)\b")
        rated = re.compile(r"\b(?:rate|increase)\(pushpull_\w+_(?:total|sum|count|bucket)\{[^}]*\}\[")
        for where, target in self.targets():
            self.assertEqual(len(counted.findall(target["expr"])), len(rated.findall(target["expr"])), where)
            for grouped in re.findall(r"histogram_quantile\(([^)]*)\)", target["expr"]):
                self.assertIn("by (le", grouped, where)

    def test_legends_are_named_and_bounded(self) -> None:
        for where, panel in self.panels():
            for target in panel["targets"]:
                self.assertTrue(target["legendFormat"], where)
                shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in labels.split(", ")}
                self.assertLessEqual(shown, grouped, where)
                is_of_operator = "pushpull_operator_" in target["expr"]  # of which a cluster has one, or one for a few namespaces
                few = FEW_VALUES | ({"namespace"} if is_of_operator else set())
                if shown - few:
                    self.assertRegex(target["expr"], r"^(?:top|bottom)k\((?:10|20), ", where)
            if panel["type"] == "timeseries":
                legend = panel["options"]["legend"]
                self.assertEqual((legend["displayMode"], legend["placement"]), ("table", "bottom"), where)

    def test_resizes_and_failovers_are_annotations(self) -> None:
        for name, dashboard in self.dashboards.items():
            self.assertEqual([annotation["name"] for annotation in dashboard["annotations"]["list"]], ["Resizes", "Failovers"], name)


if __name__ == "__main__":
    unittest.main()
