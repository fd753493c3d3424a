# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus with the rules of the chart, as tests start and ask it. It scrapes every second what a file names."""
import json
import pathlib
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable

import chart

READY = "ready to receive web requests"
# The body of what this path, with its query, answers; AssertionError if that is no success.
Fetch = Callable[[str], str]


def over_http(address: str) -> Fetch:
    def fetch(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{path}: {refused.read().decode()}") from None
    return fetch


class Prometheus:
    """The caller runs the command, and asks once the program has printed READY."""

    def __init__(self, folder: pathlib.Path, address: str, fetch: Fetch, *values: str, features: str = "") -> None:
        """Its files are in `folder`, its rules those of the chart under these values; it listens at `address`, of which
        `fetch` reads."""
        folder.mkdir()
        self._targets = folder / "targets.json"
        self._targets.write_text("[]", encoding="utf-8")
        self._fetch = fetch
        chart.write_rules(folder / "rules.yaml", *values)
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"],
                  "scrape_configs": [{"job_name": "pods", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self.command = (chart.program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                        f"--web.listen-address={address}", f"--enable-feature={features}")

    def scrape(self, targets: list[dict[str, Any]]) -> None:
        """These from now on: each with its addresses and the labels of its series."""
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(targets), encoding="utf-8")
        new.rename(self._targets)

    def _ask(self, path: str, **words: str) -> Any:
        return json.loads(self._fetch(f"/api/v1/{path}?{urllib.parse.urlencode(words)}"))["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Its values now that are numbers; of an operator, which may have nothing to reconcile, also those that are none."""
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

    def firing(self, name: str) -> list[dict[str, str]]:
        """The labels of the alerts of this rule."""
        alerts = (alert for rule in self.rules() if rule["name"] == name for alert in rule["alerts"])
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]
