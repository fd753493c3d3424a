# SPDX-License-Identifier: Apache-2.0
"""What the chart has for Prometheus and Grafana, as the tests here read it. Rules are rendered by helm, which is looked
for where tests/e2e/cluster/build.sh puts it and on PATH; promtool and prometheus in build/prometheus and on PATH.
"""
import json
import os
import pathlib
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


def rules(*values: str) -> dict[str, Any]:
    """The spec of the PrometheusRule; `values` as helm's --set-json takes them."""
    import yaml
    settings = [word for value in ("metrics.rules.enabled=true", *values) for word in ("--set-json", value)]
    rendered = run("helm", "template", "pushpull", CHART, "--namespace", "pushpull-system", "--show-only", "templates/metrics/rules.yaml",
                   *settings)
    if rendered.returncode != 0:
        raise AssertionError(rendered.stderr)
    return yaml.safe_load(rendered.stdout)["spec"]


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
