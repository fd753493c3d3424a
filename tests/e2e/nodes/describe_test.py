# SPDX-License-Identifier: Apache-2.0
"""What `kubectl describe` says of a job that starts, one that trains, one that lacks a member and one that failed: the texts of
docs/describe.md. PUSHPULL_WRITE_DOCS=1 writes it."""
import os
import re
import unittest

from api_server import ROOT, job, wait_until
from nodes import PROBE_IMAGE, START_SECONDS, NodeCase, conditions, get, is_true, kubectl, must

PAGE = ROOT / "docs/describe.md"
TOLD_SECONDS = 30
HEAD = """# What `kubectl describe` says of a job

Of four jobs on three nodes; times, ids and addresses are replaced. `tests/e2e/nodes/describe_test.py` makes this page.
"""
# What differs from run to run. Kubernetes writes the age of an event in a column of its own width.
CHANGING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"(Resource Version: +)\d+", r"\1NUMBER"),
    (r"(Sync Seconds P\d+: +)\S+", r"\1SECONDS"),
    (r"(Samples Per Second: +)\S+", r"\1NUMBER"),
    (r"(Step: +)\d+", r"\1NUMBER"),
    (r"\d+(\.\d+){3}:\d+", "ADDRESS"),
    (r"/tmp/tmp\w+", "/FOLDER"),
    (r"/tmp/tmp\w+", "/FOLDER"),
    (r"(?m)^(  (?:Normal|Warning) +\S+ +)\S+( \(x\d+ over \S+\))? +", r"\1AGE  "),
    (r"(?m) +$", ""),
)


class DescribeTest(NodeCase):

    def describe(self, name: str) -> str:
        text = must(kubectl("describe", "tj", name))
        for pattern, replacement in CHANGING:
            text = re.sub(pattern, replacement, text)
        return text

    def test_what_is_described(self) -> None:
        self.expected_trouble = ["."]
        page = [HEAD]

        def tell(what: str, name: str, *lines: str) -> None:
            text = self.describe(name)
            for line in lines:
                self.assertRegex(text, line)
            page.append(f"\n## {what}\n\n```text\n{text.rstrip()}\n```\n")

        # Its worker has no room: the start waits, and says for what.
        self.apply_job("starting", workers={"replicas": 1, "resources": {"requests": {"cpu": "1000"}}})
        wait_until(lambda: "Insufficient cpu" in self.describe("starting"), TOLD_SECONDS, "it says what it waits for")
        tell("A job that starts", "starting", r"Phase: +Starting", "starting-worker-0", "Insufficient cpu")
        must(kubectl("delete", "tj", "starting", "--cascade=foreground", "--timeout=60s"))

        self.start_job("healthy")
        self.trains("healthy")
        self.await_job("healthy", lambda status: bool(status.get("progress", {}).get("step")), TOLD_SECONDS, "its progress")
        tell("A job that trains", "healthy", r"Phase: +Running", "AllReady", "(?s)Events:.*Normal")

        self.apply(job("degraded", image=PROBE_IMAGE, command=["probe_worker", "--steps", "100000", "--step-milliseconds", "20"],
                       env=[{"name": "PROBE_IGNORES_SUMS", "value": "1"}],  # worker 0 goes on alone
                       workers={"replicas": 2}, servers={"replicas": 2, "replication": 1}, restart={"initialDelaySeconds": 60}))
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/degraded"))
        self.trains("degraded")
        self.kill("degraded-worker-1")
        self.await_job("degraded", lambda status: is_true({"status": status}, "Degraded"), TOLD_SECONDS, "a worker is missing")
        tell("A job that lacks a worker", "degraded", "WaitingForRestart", "degraded-worker-1", r"Exit Code: +137")

        self.apply(job("failed", image=PROBE_IMAGE, command=["probe_worker", "--learning-rate", "fast"],
                       restart={"backoffLimit": 1, "initialDelaySeconds": 0}))
        must(kubectl("wait", "--for=condition=Failed", f"--timeout={START_SECONDS}s", "tj/failed"))
        self.assertIn("failed-worker-0", conditions(get("tj", "failed"))["Failed"]["message"])
        tell("A job that failed", "failed", r"Phase: +Failed", "MemberFailed", "its program cannot run")

        if os.environ.get("PUSHPULL_WRITE_DOCS"):
            PAGE.write_text("".join(page), encoding="utf-8")
        headings = re.compile(r"^## .*$", re.MULTILINE)
        self.assertEqual(headings.findall(PAGE.read_text(encoding="utf-8")), headings.findall("".join(page)))


if __name__ == "__main__":
    unittest.main()
