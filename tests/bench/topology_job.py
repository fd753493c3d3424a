# SPDX-License-Identifier: Apache-2.0
"""Runs a job of probe workers on the network namespaces of a topology, for the benchmarks of shaped links."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUSHPULL = os.environ.get("PUSHPULL_BIN", str(ROOT / "build/release/pushpull"))
PROBE = os.environ.get("PROBE_WORKER", str(ROOT / "build/release/tests/probe_worker"))
API_VERSION = "pushpull.dev/v1alpha1"
TENSOR_BYTES = 1 << 20
RUN_SECONDS = 600


def topology(machine: dict[str, Any], cluster: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Topology", "machine": machine, "cluster": cluster}


def manifest(name: str, steps: int, megabytes: int, **spec: Any) -> dict[str, Any]:
    """`megabytes` of gradients, in tensors of 1 MiB; `spec` is added to the job's."""
    command = [PROBE, "--optimizer", "sum", "--steps", str(steps), "--tensors", str((megabytes << 20) // TENSOR_BYTES),
               "--values", str(TENSOR_BYTES // 4)]
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"command": command, **spec}}


def report_of(job: dict[str, Any], places: dict[str, Any], case: str) -> dict[str, Any]:
    """The report of the job, run on this topology. Ends the program, naming `case`, if the job does not succeed."""
    with tempfile.TemporaryDirectory(prefix="pushpull-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "topology.yaml").write_text(json.dumps(places), encoding="utf-8")
        (folder / "job.yaml").write_text(json.dumps(job), encoding="utf-8")
        ran = subprocess.run([PUSHPULL, "run", folder / "job.yaml", "--topology", folder / "topology.yaml", "--workdir",
                              folder / "workdir", "--report", folder / "report.json", "--progress", "none"],
                             capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
        if ran.returncode != 0:
            sys.exit(f"{job['metadata']['name']}: {case}: exit code {ran.returncode}\n"
                     f"{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
        report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return report
