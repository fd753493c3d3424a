# SPDX-License-Identifier: Apache-2.0
"""`pushpull trace`: the pushes of a running job can be followed from worker to server and back, on one clock."""
import collections
import json
import signal
import unittest
from typing import Any

import job

STEPS = 20
MICROSECONDS_AHEAD = 10e6  # of worker-1's clock, in a time namespace of its own
# Alignment is better by far (docs/performance.md); a loaded machine must not fail the test, an unaligned clock must.
TOLERANCE = 0.2e6
IN_OTHER_TIME = ["sh", "-c", '[ "$PUSHPULL_INDEX" = 1 ] && set -- unshare --time --monotonic 10 --fork --kill-child "$@"; exec "$@"', "sh"]


def ends(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


class TraceTest(job.JobTestCase):

    def trace(self, started: job.LocalJob, *flags: Any) -> dict[str, Any]:
        path = self.folder / "trace.json"
        traced = job.run_command("trace", "--workdir", started.workdir, "--out", path, *flags)
        self.assertEqual(traced.returncode, 0, traced.stderr)
        self.assertIn(str(path), traced.stdout)
        return json.loads(path.read_text(encoding="utf-8"))

    def assert_can_be_followed(self, trace: dict[str, Any]) -> int:
        """Every arrow begins and ends in a slice, in the right processes and in the order of time. Returns the arrows."""
        slices = collections.defaultdict(list)
        arrows = collections.defaultdict(list)
        names = {}
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                slices[event["pid"], event["tid"]].append(event)
            elif event["ph"] in "stf":
                arrows[event["id"]].append(event)
            elif event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]

        def around(event: dict[str, Any]) -> dict[str, Any]:
            found = [each for each in slices[event["pid"], event["tid"]] if each["ts"] <= event["ts"] < ends(each)]
            self.assertEqual(len(found), 1, event)
            return found[0]

        for events in arrows.values():
            self.assertEqual([event["ph"] for event in events], ["s", "t", "t", "f"])
            push, summed, optimized, answer = map(around, events)
            self.assertEqual([each["cat"] for each in (push, summed, optimized, answer)], ["push", "sum", "optimize", "answer"])
            self.assertEqual({summed["name"], optimized["name"]}, {f"sum {push['name']}", f"optimize {push['name']}"})
            self.assertEqual((answer["name"], answer["pid"]), (push["name"], push["pid"]))
            self.assertEqual({each["args"]["step"] for each in (summed, optimized, answer)}, {push["args"]["step"]})
            self.assertTrue(names[push["pid"]].startswith("worker-"))
            self.assertTrue(names[summed["pid"]].startswith("server-"))
            self.assertEqual(summed["pid"], optimized["pid"])
            self.assertGreaterEqual(summed["ts"] + TOLERANCE, ends(push))
            self.assertGreaterEqual(answer["ts"] + TOLERANCE, ends(optimized))
        return len(arrows)

    def test_a_push_is_followed_through_its_server(self) -> None:
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--values", 200_000, "--step-milliseconds", 10))
        started.wait_for_step(3)

        trace = self.trace(started, "--steps", STEPS)

        pushed = collections.defaultdict(set)
        for event in trace["traceEvents"]:
            if event["ph"] == "X" and event["cat"] == "push":
                pushed[event["pid"], event["args"]["step"]].add(event["name"])
        # Every worker pushes every chunk in each step.
        self.assertEqual(len(pushed), 2 * STEPS)
        self.assertEqual(len({step for _, step in pushed}), STEPS)  # the same ones
        chunks = next(iter(pushed.values()))
        self.assertGreaterEqual(len(chunks), 4)  # 800 kB
        self.assertTrue(all(each == chunks for each in pushed.values()))
        self.assertEqual(self.assert_can_be_followed(trace), 2 * STEPS * len(chunks))
        steps = collections.Counter(event["pid"] for event in trace["traceEvents"]
                                    if event["ph"] == "X" and event["name"].startswith("step "))
        self.assertEqual(set(steps.values()), {STEPS})
        self.assertEqual(len(steps), 2)
        self.assertEqual(trace["otherData"]["left_out"], 0)

    def test_clocks_that_differ_are_aligned(self) -> None:
        spec = self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 10)
        spec["command"] = [*IN_OTHER_TIME, *spec["command"]]
        started = self.run_job(spec)
        started.wait_for_step(3)

        trace = self.trace(started, "--steps", STEPS)

        self.assertGreater(self.assert_can_be_followed(trace), 0)
        clocks = trace["otherData"]["clock_offset_seconds"]
        self.assertAlmostEqual(clocks["worker-1"], MICROSECONDS_AHEAD / 1e6, delta=TOLERANCE / 1e6)
        self.assertEqual(clocks["worker-0"], 0)
        begins = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertLess(max(begins) - min(begins), MICROSECONDS_AHEAD)

    def test_a_worker_that_ends_is_not_waited_for(self) -> None:
        # The step in which a worker ends has another sum, at which a probe would end by itself.
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 100, env=[{"name": "PROBE_IGNORES_SUMS", "value": "1"}],
                                         restart={"backoffLimit": 3, "initialDelaySeconds": 0}))
        started.wait_for_step(3)
        path = self.folder / "trace.json"
        tracing = self.start(job.PUSHPULL, "trace", "--workdir", started.workdir, "--out", path, "--steps", 1000, "--timeout", 600)
        job.wait_until(lambda: "trace of the next 1000 steps of 2 workers" in started.launcher.output, job.START_SECONDS, "a trace")

        for index in (0, 1):
            started.kill_and_await_next("worker", index)

        self.assertEqual(tracing.wait(60), 1, tracing.output)
        self.assertIn("its workers were replaced or have left before they reported", tracing.output)
        self.assertFalse(path.exists())

    def test_ctrl_c_ends_a_command_that_waits(self) -> None:
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 100))
        started.wait_for_step(3)
        tracing = self.start(job.PUSHPULL, "trace", "--workdir", started.workdir, "--out", self.folder / "trace.json",
                             "--steps", 1000, "--timeout", 600)
        job.wait_until(lambda: "trace of the next 1000 steps" in started.launcher.output, job.START_SECONDS, "a trace")

        tracing.process.send_signal(signal.SIGINT)

        self.assertEqual(tracing.wait(20), 130, tracing.output)
        self.assertEqual(started.status()["phase"], "Running")

    def test_at_the_timeout_a_trace_has_what_there_is(self) -> None:
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 50))
        started.wait_for_step(3)

        trace = self.trace(started, "--steps", 1000, "--timeout", 2)

        arrows = self.assert_can_be_followed(trace)
        self.assertGreater(arrows, 0)
        steps = {event["args"]["step"] for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == "push"}
        self.assertLess(len(steps), 1000)

    def test_a_job_that_is_over_cannot_be_traced(self) -> None:
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 10))
        started.wait_for_step(3)
        started.launcher.process.send_signal(signal.SIGINT)
        started.launcher.wait(30)

        traced = job.run_command("trace", "--workdir", started.workdir, "--out", self.folder / "trace.json")

        self.assertEqual(traced.returncode, 3)
        self.assertIn("no job runs in this workdir", traced.stderr)

    def test_the_file_must_be_writable(self) -> None:
        started = self.run_job(self.spec("--steps", job.LONG_JOB_STEPS, "--step-milliseconds", 10))
        started.wait_for_step(3)

        traced = job.run_command("trace", "--workdir", started.workdir, "--steps", 1, "--out", self.folder / "none" / "trace.json")

        self.assertEqual(traced.returncode, 3)  # a file that cannot be reached
        self.assertRegex(traced.stderr, "write .*none/trace.json: No such file or directory")


if __name__ == "__main__":
    unittest.main()
