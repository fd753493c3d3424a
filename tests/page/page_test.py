# SPDX-License-Identifier: Apache-2.0
"""The status page and the report in headless Chromium: loads quickly, follows a job, asks nobody but its host, says nothing
on the console, breaks no rule of axe-core. Screenshots are left in build/page/screenshots: look at them.

Run by `./dev page`, which installs Chromium and axe-core. CI runs process_page, which needs neither.
"""
import filecmp
import http.server
import json
import re
import signal
import sys
import threading
import unittest
import urllib.parse
import urllib.request
from typing import Any, Callable

from browser import DESKTOP, NODE_MODULES, PHONE, ROOT, Browser

sys.path.insert(0, str(ROOT / "tests/integration/process"))
import job  # noqa: E402

PAGE = ROOT / "runtime/status/page"
LOAD_SECONDS = 1.0
WAIT_SECONDS = 30.0
NUM_MEMBERS, NUM_SERVERS = 1000, 64
# Of what the browser itself does for a page of 1,000 members once a second.
SHOW_SECONDS = 0.25


def crowd(status: dict[str, Any]) -> dict[str, Any]:
    """A status as this one, of a job with a thousand workers: one is late, one is gone."""
    worker, server, step = status["workers"][0], status["servers"][0], status["step"]
    workers = [{**worker, "index": index, "step": step} for index in range(NUM_MEMBERS)]
    workers[500]["step"] = max(0, step - 1_000_000)
    workers[700].update(alive=False, member=False, state="gone")
    servers = [{**server, "index": index} for index in range(NUM_SERVERS)]
    return {**status, "workers": workers, "servers": servers, "workers_wanted": NUM_MEMBERS, "servers_wanted": NUM_SERVERS}


class ChangingHost(http.server.ThreadingHTTPServer):
    """Passes on what a coordinator serves, its headers too, but for the status, which it changes."""

    def __init__(self, page: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Pass)
        self.page = page
        self.change = change
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self.daemon_threads = True
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Pass(http.server.BaseHTTPRequestHandler):
    server: ChangingHost

    def do_GET(self) -> None:
        with urllib.request.urlopen(urllib.parse.urljoin(self.server.page, self.path.lstrip("/"))) as answer:
            body, headers = answer.read(), answer.headers
        if self.path == "/status.json":
            body = json.dumps(self.server.change(json.loads(body))).encode()
        self.send_response(200)
        for name, value in headers.items():
            if name not in ("Content-Length", "Connection", "ETag"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class PageTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def train(self) -> tuple[job.LocalJob, str]:
        """A job of two servers that trains, and the address of its page."""
        spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 20, "--values", 200_000,
                         # Long enough away to be seen: one that is back between two statuses is "lost and replaced".
                         restart={"backoffLimit": 3, "initialDelaySeconds": 2})
        started = self.run_job(spec)
        started.wait_for_step(20)
        page = job.wait_until(lambda: (started.endpoint("coordinator") or {}).get("page"), WAIT_SECONDS, "the page's address")
        return started, page

    def wait_for(self, script: str, what: str, seconds: float = WAIT_SECONDS) -> Any:
        """The first true value of the expression."""
        return job.wait_until(lambda: self.browser.run(f"return {script}"), seconds, what)

    def wait_for_event(self, text: str) -> None:
        self.wait_for(f"document.getElementById('events').textContent.includes({json.dumps(text)})", f"event {text}")

    def wait_for_charts(self, count: int = 3) -> None:
        self.wait_for(f"document.querySelectorAll('.uplot canvas').length === {count}", f"{count} charts")

    def assert_is_clean(self, *prefixes: str) -> None:
        """Nothing on the console, no violation, no request that begins otherwise."""
        self.assertEqual(self.browser.console(), [])
        self.assertEqual(self.browser.violations(), [])
        elsewhere = [url for url in self.browser.requests() if not url.startswith(prefixes)]
        self.assertEqual(elsewhere, [])

    def take_screenshots(self, name: str) -> None:
        for scheme in ("light", "dark"):
            self.browser.prefer(scheme)
            self.browser.screenshot(f"{name}-{scheme}")
            self.assertEqual(self.browser.violations(), [], scheme)
        self.browser.prefer("light")
        self.browser.screenshot(f"{name}-whole", whole=True)
        self.browser.resize(PHONE)
        self.browser.screenshot(f"{name}-phone", whole=True)
        self.assertEqual(self.browser.run("return document.documentElement.scrollWidth"), PHONE[0], "wider than a phone")
        self.assertEqual(self.browser.violations(), [], "phone")
        self.browser.resize(DESKTOP)

    def test_page_follows_resize_and_killed_server(self) -> None:
        started, page = self.train()

        self.browser.open(page)
        # From the request of the page to the first figures and charts, by the browser's clock.
        took = self.wait_for("performance.getEntriesByName('shown')[0]?.startTime", "the first figures") / 1e3
        self.assertEqual(self.browser.text("job"), self.job_name)
        self.assertFalse({"Batch", "Noise scale"} & set(self.figures()))
        step = self.browser.text("figures")
        self.wait_for(f"document.getElementById('figures').textContent !== {json.dumps(step)}", "other figures")
        self.assertEqual(started.scale(3, "--wait").returncode, 0)
        self.wait_for_event("servers: from 2 to 3 requested")
        self.wait_for_event("servers: from 2 to 3 done")
        self.wait_for("document.getElementById('servers').children.length === 3", "three servers")
        started.signal_member("server", 1, signal.SIGKILL)
        self.wait_for_event("server-1 lost")
        self.wait_for_event("server-1 joined")
        self.wait_for_charts()
        job.wait_until(lambda: self.browser.text("problems") == "No member is late.", WAIT_SECONDS, "all is well again")
        self.take_screenshots("page")

        self.assert_is_clean(page)
        self.assertLess(took, LOAD_SECONDS * job.PATIENCE)
        print(f"loaded in {took:.2f} s")

    def test_page_opened_late_has_what_was_before(self) -> None:
        started, page = self.train()
        self.assertEqual(started.scale(3, "--wait").returncode, 0)
        started.wait_for_step(200)

        self.browser.open(page)

        self.wait_for_event("servers: from 2 to 3 done")
        self.assertGreaterEqual(self.wait_for("points && points.time.length", "points"), 2)

    def test_page_stays_open_over_a_new_coordinator(self) -> None:
        started, page = self.train()
        self.browser.open(page)
        self.wait_for("points && points.time.length > 2", "points")
        before = self.browser.run("return points.time[0]")

        started.kill_and_await_next("coordinator", 0)

        self.wait_for_event("a new coordinator")
        self.wait_for("status.term === 2 && points.time.length > 5", "points of the new one")
        self.assertEqual(self.browser.run("return points.time[0]"), before)
        self.assertIn("training begins", self.browser.text("events"))

    def test_silent_coordinator_is_said_to_be(self) -> None:
        started, page = self.train()
        self.browser.open(page)
        self.wait_for("document.getElementById('connection').textContent === 'live'", "live")

        started.launcher.process.kill()

        self.wait_for("document.getElementById('connection').textContent.startsWith('no answer')", "no answer")
        self.assertEqual(self.browser.text("phase"), "Running")

    def figures(self) -> dict[str, str]:
        return self.browser.run("return Object.fromEntries([...document.getElementById('figures').children]"
                                ".map((item) => [item.children[0].textContent, item.children[1].textContent]))")

    def wait_for_figure(self, name: str, pattern: str) -> None:
        job.wait_until(lambda: re.fullmatch(pattern, self.figures().get(name, "")), WAIT_SECONDS, f"figure {name}: {pattern}")

    def test_batch_and_its_change_are_shown(self) -> None:
        spec = self.spec("--samples", 100_000, "--epochs", 100, "--batch", 7, "--step-milliseconds", 100)
        spec["workers"]["globalBatch"] = 128
        started = self.run_job(spec)
        page = job.wait_until(lambda: (started.endpoint("coordinator") or {}).get("page"), WAIT_SECONDS, "the page's address")
        host = ChangingHost(page, lambda status: {**status, "noise_scale": 2473.6})
        self.addCleanup(host.close)

        self.browser.open(host.url)
        self.wait_for_figure("Batch", "128")
        self.assertEqual(started.set("globalBatch=1024").returncode, 0)
        self.wait_for_event("globalBatch: 1024 requested")
        self.wait_for_figure("Batch", "1,024")
        self.wait_for_charts(2)  # the program reports no loss
        self.take_screenshots("batch")

        self.assertEqual(self.figures()["Noise scale"], "2,474")
        self.assert_is_clean(host.url)

    def test_noise_scale_is_shown_where_it_is_measured(self) -> None:
        # As in batch_test: 2,500 samples by the gradients' mean and deviation.
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--values", 30_000, "--tensors", 1, "--optimizer", "sgd",
                                         "--noise-samples", 4000, "--step-milliseconds", 30, workers=3, sync={"noiseScale": True}))
        page = job.wait_until(lambda: (started.endpoint("coordinator") or {}).get("page"), WAIT_SECONDS, "the page's address")

        self.browser.open(page)

        self.wait_for_figure("Noise scale", "[23],[0-9]{3}")
        self.assertNotIn("Batch", self.figures())  # no data set is divided

    def test_page_is_used_by_keyboard(self) -> None:
        _, page = self.train()
        self.browser.open(page)
        self.wait_for_charts()
        reached = []
        for _ in range(3):
            self.browser.press("Tab")
            reached.append(self.browser.focused())

        self.assertEqual(reached, ["events", "Table of workers", "Table of servers"])

    def test_thousand_members_stay_readable(self) -> None:
        _, page = self.train()
        host = ChangingHost(page, crowd)
        self.addCleanup(host.close)

        self.browser.open(host.url)
        self.wait_for(f"document.getElementById('workers-map').children.length === {NUM_MEMBERS}", "a cell for each worker")
        self.wait_for_charts()
        self.take_screenshots("crowd")
        rows = self.browser.run("return [...document.getElementById('workers').children].map((row) => row.textContent)")
        shown = self.browser.run("const begin = performance.now(); for (let i = 0; i < 10; ++i) show(); return (performance.now() - begin) / 1e4")
        self.browser.run("document.getElementById('workers-all').click()")
        every = self.browser.run("return document.getElementById('workers').children.length")

        self.assertIn("worker-700", rows[0])
        self.assertEqual(len(rows), 40)
        self.assertEqual(every, NUM_MEMBERS)
        self.assertEqual(self.browser.run("return document.documentElement.scrollWidth"), DESKTOP[0])
        self.assert_is_clean(host.url)
        self.assertLess(shown, SHOW_SECONDS * job.PATIENCE)
        print(f"shown in {shown * 1e3:.0f} ms")

    def test_report_opens_from_the_disk_alone(self) -> None:
        started, _ = self.train()
        self.assertEqual(started.scale(3, "--wait").returncode, 0)
        started.kill_and_await_next("server", 1)
        started.wait_for_step(400, 60)
        started.launcher.process.send_signal(signal.SIGINT)
        started.launcher.wait(60)
        html = self.folder / "report.html"
        made = job.run_command("report", self.folder / "report.json", "--html", html)
        self.assertEqual(made.returncode, 0, made.stderr)

        self.browser.open(html.as_uri())
        self.wait_for_charts()
        self.take_screenshots("report")

        self.assertEqual(self.browser.text("job"), self.job_name)
        self.assertIn("servers: from 2 to 3 done", self.browser.text("events"))
        self.assertIn("server-1 lost", self.browser.text("events"))
        self.assertIn("2 to 3", self.browser.text("resizes"))
        self.assert_is_clean("file://")


class VendorTest(unittest.TestCase):

    def test_vendored_files_are_those_of_the_locked_package(self) -> None:
        """`npm ci` has checked the package against the lock's hash."""
        for name, origin in (("uPlot.iife.min.js", "dist/uPlot.iife.min.js"), ("uPlot.min.css", "dist/uPlot.min.css"),
                             ("uPlot-LICENSE.txt", "LICENSE")):
            with self.subTest(name):
                package = NODE_MODULES / "uplot" / origin
                self.assertTrue(filecmp.cmp(PAGE / "vendor" / name, package, shallow=False))


if __name__ == "__main__":
    unittest.main()
