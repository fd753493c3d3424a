# SPDX-License-Identifier: Apache-2.0
"""What the chart has for Prometheus and Grafana, as the tests here read it. Rules are rendered by helm, which is looked
for where tests/e2e/cluster/build.sh puts it and on PATH; promtool and prometheus in build/prometheus and on PATH.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/pushpull"
RUN_SECONDS = 120
_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
_FOLDERS = (os.environ.get("PROMETHEUS_BIN", str(ROOT / "build/prometheus/usr/bin")),
            os.environ.get("BIN", str(_CACHE / "pushpull-cluster/bin")))


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((*_FOLDERS, os.environ["PATH"])))
    if found is None:
        raise FileNotFoundError(f"{name} is neither in {', '.join(_FOLDERS)} nor on PATH; `./dev metrics` brings it")
    return found


def run(name: str, *words: object) -> subprocess.CompletedProcess:
    return subprocess.run([program(name), *(str(word) for word in words)], capture_output=True, text=True, timeout=RUN_SECONDS)


def read_yaml(path: pathlib.Path) -> Any:
    import yaml  # of Debian's python3-yaml; who reads dashboards only does without
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rendered(template: str, *values: str) -> list[dict[str, Any]]:
    """The objects of a template of metrics; `values` as helm's --set-json takes them."""
    import yaml
    settings = [word for value in values for word in ("--set-json", value)]
    done = run("helm", "template", "pushpull", CHART, "--namespace", "pushpull-system", "--show-only", f"templates/metrics/{template}", *settings)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return list(yaml.safe_load_all(done.stdout))


def rules(*values: str) -> dict[str, Any]:
    """The spec of the PrometheusRule."""
    return rendered("rules.yaml", "metrics.rules.enabled=true", *values)[0]["spec"]


def pod_monitors() -> list[dict[str, Any]]:
    return rendered("podmonitors.yaml", "metrics.podMonitor.enabled=true")


def write_rules(path: pathlib.Path, *values: str) -> None:
    """As Prometheus reads them: JSON is YAML."""
    path.write_text(json.dumps(rules(*values), indent=1), encoding="utf-8")


def alerts() -> list[dict[str, Any]]:
    return [rule for group in rules()["groups"] for rule in group["rules"] if "alert" in rule]


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((CHART / "dashboards").glob("*.json"))}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Without the rows, which are headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def filled_in(expression: str, rate: str = "30s") -> str:
    """As Grafana does, with all of each variable selected. What is shorter than it would be is so because the scrapes are."""
    expression = expression.replace("$__rate_interval", rate).replace("2m", "10s")
    return re.sub(r"\$(namespace|job|operator)\b", ".+", expression)


def questions() -> list[tuple[str, str]]:
    """What each panel and each variable asks, with where it stands."""
    asked = []
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            asked += [(f"{name}, {panel['title']}, {target['legendFormat']}", filled_in(target["expr"])) for target in panel["targets"]]
        for variable in dashboard["templating"]["list"][1:]:
            series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
            asked.append((f"{name}, variable {variable['name']}", filled_in(f"count by ({label}) ({series})")))
    return asked
