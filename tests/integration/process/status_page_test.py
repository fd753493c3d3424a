# SPDX-License-Identifier: Apache-2.0
"""What shows a job to people, without a browser: the status page's files and JSON, `pushpull status --watch`, and the report.

tests/page looks at the page in Chromium.
"""
import json
import os
import pty
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from typing import Any

import job

QUICK_RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


class StatusPageTest(job.JobTestCase):

    def start_job(self) -> tuple[job.LocalJob, str]:
        started = self.run_job(self.spec("--steps", 2000, "--step-milliseconds", 20, "--values", 1000, restart=QUICK_RESTARTS))
        started.wait_for_step(3)
        return started, (started.endpoint("coordinator") or {})["page"]

    def wait_for_event(self, page: str, text: str) -> dict[str, Any]:
        """The newest status once it has this event."""
        def seen() -> dict[str, Any]:
            try:
                code, _, body = get(page + "status.json")
            except OSError:  # between two coordinators
                return {}
            status = json.loads(body) if code == 200 else {"events": []}
            return status if any(text in event["text"] for event in status["events"]) else {}
        return job.wait_until(seen, job.START_SECONDS, f"event {text}")

    def test_page_follows_a_resize_and_a_killed_server(self) -> None:
        started, page = self.start_job()

        code, headers, body = get(page)
        self.assertEqual(code, 200)
        self.assertIn(b"<title>Pushpull</title>", body)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertEqual(get(page, **{"If-None-Match": headers["ETag"]})[0], 304)
        self.assertEqual(started.scale(3, "--wait").returncode, 0)
        self.wait_for_event(page, "servers: from 2 to 3 done")
        started.signal_member("server", 2, signal.SIGKILL)
        status = self.wait_for_event(page, "server-2 lost")
        history = json.loads(get(page + "history.json")[2])

        self.assertEqual(status["job"], self.job_name)
        self.assertLessEqual(set(started.status()), set(status))
        self.assertEqual(len(status["workers"]), 2)
        self.assertGreater(len(history["time"]), 0)
        self.assertEqual({len(points) for points in history["phases"].values()}, {len(history["time"])})
        self.assertEqual(started.finish(), 0, started.launcher.output)
        texts = [event["text"] for event in started.report()["events"]]
        self.assertIn("server-2 lost", " ".join(texts))

    def test_next_coordinator_serves_the_page_at_its_place(self) -> None:
        started, page = self.start_job()

        started.kill_and_await_next("coordinator", 0)

        self.assertEqual(job.wait_until(lambda: (started.endpoint("coordinator") or {}).get("page"), job.START_SECONDS, "its page"), page)
        self.wait_for_event(page, "a new coordinator, term 2")
        self.wait_for_event(page, "the new coordinator knows the job again")

    def test_requests_for_other_hosts_are_refused(self) -> None:
        spec = self.spec("--steps", 2000, "--step-milliseconds", 20, "--values", 1000)
        started = self.run_job(spec, environment={"PUSHPULL_PAGE_HOSTS": "train.example.com"})
        started.wait_for_step(3)
        page = (started.endpoint("coordinator") or {})["page"]

        for path in ("", "status.json", "history.json"):
            for host in ("localhost:9464", socket.gethostname(), "train.example.com", f"{self.job_name}-coordinator.default.svc:9464"):
                self.assertEqual(get(page + path, Host=host)[0], 200, host)
            code, _, body = get(page + path, Host="evil.example:9464")
            self.assertEqual(code, 403)
            self.assertIn(b"the request is for host evil.example:9464, which is not known to be this process", body)

    def test_only_the_coordinator_has_a_page(self) -> None:
        started, _ = self.start_job()

        for role in ("server", "worker"):
            entry = started.endpoint(role) or {}
            self.assertEqual(entry["page"], "")
            self.assertEqual(get(f"http://{entry['metrics']}/status.json")[0], 404)

    def test_watch_prints_lines_and_ends_at_an_interrupt(self) -> None:
        started, _ = self.start_job()
        watching = self.start(job.PUSHPULL, "status", "--workdir", started.workdir, "--watch")
        watching.wait_for_line(r"samples/s .*2 of 2 workers   2 of 2 servers .*phases")

        watching.process.send_signal(signal.SIGINT)

        self.assertEqual(watching.wait(30), 130)

    def test_watch_ends_with_the_job(self) -> None:
        started, _ = self.start_job()
        watching = self.start(job.PUSHPULL, "status", "--workdir", started.workdir, "--watch")
        watching.wait_for_line("2 of 2 workers")

        started.launcher.process.send_signal(signal.SIGTERM)

        self.assertNotEqual(watching.wait(60), 130)

    def test_watch_on_a_terminal_redraws_in_place(self) -> None:
        started, _ = self.start_job()
        main, terminal = pty.openpty()
        watching = subprocess.Popen([job.PUSHPULL, "status", "--workdir", started.workdir, "--watch"], stdout=terminal,
                                    env=self.environment())
        os.close(terminal)
        try:
            seen = b""
            while b"phases" not in seen:
                seen += os.read(main, 4096)
        finally:
            watching.send_signal(signal.SIGINT)
            code = watching.wait(30 * job.PATIENCE)
            os.close(main)

        self.assertIn(b"\x1b[", seen)
        self.assertRegex(seen.decode(), r"worker-0 +member")
        self.assertEqual(code, 130)

    def test_report_becomes_one_page(self) -> None:
        started, _ = self.start_job()
        self.assertEqual(started.finish(), 0, started.launcher.output)
        html, report = self.folder / "r.html", self.folder / "report.json"

        made = job.run_command("report", report, "--html", html)

        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn(self.job_name, html.read_text(encoding="utf-8"))

    def test_what_is_no_report_is_named(self) -> None:
        empty, html = self.folder / "empty.json", self.folder / "r.html"
        empty.write_text("{}", encoding="utf-8")

        missing = job.run_command("report", self.folder / "none.json", "--html", html)
        wrong = job.run_command("report", empty, "--html", html)

        self.assertEqual(missing.returncode, 3, missing.stderr)
        self.assertIn("none.json", missing.stderr)
        self.assertEqual(wrong.returncode, 2, wrong.stderr)
        self.assertIn("job is missing", wrong.stderr)
        self.assertFalse(html.exists())
