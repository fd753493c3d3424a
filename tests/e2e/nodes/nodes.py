# SPDX-License-Identifier: Apache-2.0
"""The cluster that __main__.py has started, as the tests here use it."""
import json
import pathlib
from typing import Any, Optional

from api_server import CLUSTER, ROOT, Result, run

IMAGES = ROOT / "build/images"
# Of workers: the program that the tests of processes use, too.
PROBE_IMAGE = "localhost/probe:1"
_PROBE = ROOT / "build/release/tests/probe_worker"


def kubectl(*arguments: Any, text: Optional[str] = None) -> Result:
    return run(CLUSTER, "kubectl", *arguments, text=text)


def helm(*arguments: Any) -> Result:
    return run(CLUSTER, "helm", *arguments)


def must(result: Result) -> str:
    if result.returncode != 0:
        raise AssertionError(f"{result.args}: {result.stdout}{result.stderr}")
    return result.stdout


def get(*what: str) -> dict[str, Any]:
    return json.loads(must(kubectl("get", *what, "-o", "json")))


def load_images(folder: pathlib.Path) -> None:
    """Onto every node."""
    root = folder / "probe"
    root.mkdir(mode=0o755)
    must(run(ROOT / "docker/rootfs.sh", root, _PROBE))
    must(run(ROOT / "docker/archive.sh", PROBE_IMAGE, folder / "probe.tar", root, "USER=65532:65532", "probe_worker"))
    must(run(CLUSTER, "load", IMAGES / "slim.tar", IMAGES / "operator.tar", folder / "probe.tar"))
