# SPDX-License-Identifier: Apache-2.0
"""The Python package as a user has it: installed from its wheel, real processes, `pushpull run`.

Run by the Python of an environment that has the wheel, mypy and NumPy; `./dev python` makes one (__main__.py beside this).
"""
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import pushpull

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PUSHPULL = pathlib.Path(sys.executable).with_name("pushpull")
RUN_SECONDS = 300  # for what hangs; torch.compile takes a minute on a busy machine
END_OF_JOB = 3  # the exit code of scenarios that end the job at once

MANIFEST = """
apiVersion: pushpull.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {job}}}
spec:
  command: {command}
  servers: {{replicas: {servers}}}
  workers: {{replicas: {workers}}}
  restart:
    backoffLimit: 1
    initialDelaySeconds: 1
    rules: [{{role: Worker, exitCodes: {{in: [3]}}, action: FailJob}}]
"""

# What it starts imports it again.
UNGUARDED = """
import multiprocessing
import numpy
import pushpull
job = pushpull.init()
child = multiprocessing.get_context("spawn").Process(target=print)
child.start()
child.join()
assert child.exitcode == 1
value = numpy.zeros(1, "f")
job.store.register("w", value, reduce="sum")
job.start()
job.store.push_pull("w", numpy.ones(1, "f")).wait()
assert value[0] == 1
job.end()
"""


def run(*command: object, **arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=RUN_SECONDS, check=False, **arguments)  # type: ignore[call-overload]


class JobTest(unittest.TestCase):
    SCENARIOS = HERE / "scenarios.py"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_scenario(self, name: str, *arguments: object, servers: int = 2, workers: int = 2, ends_with: int = 0,
                     settings: tuple[str, ...] = (), launcher: tuple[str, ...] = (), flags: tuple[object, ...] = (),
                     fails: bool = False) -> dict:
        """Runs a job of SCENARIOS, with `settings` for --set, `flags` of `pushpull run` and `launcher` as Python's first
        arguments; its report.

        `fails`: a process may report an error.
        """
        manifest, report = self.folder / "job.yaml", self.folder / "report.json"
        command = json.dumps(["python3", "-B", *launcher, str(self.SCENARIOS), name, *map(str, arguments)])
        manifest.write_text(MANIFEST.format(job=name.replace("_", "-"), command=command, servers=servers, workers=workers))

        done = run(PUSHPULL, "run", manifest, "--report", report, *flags, *(f"--set={each}" for each in settings), cwd=self.folder,
                   env={**os.environ, "SCENARIO_FOLDER": str(self.folder)})

        logs = "".join(log.read_text() for log in sorted(self.folder.glob(".pushpull/*/logs/worker-*")))
        self.assertEqual(done.returncode, ends_with, done.stdout + logs)
        if not fails:
            self.assertNotIn("Traceback", logs)
        return json.loads(report.read_text()) if report.exists() else {}


class PackageTest(JobTest):

    def test_sums_of_two_workers_are_exact(self) -> None:
        report = self.run_scenario("sums")

        self.assertEqual(report["steps"], 20)

    def test_a_worker_that_cannot_join_is_left_out(self) -> None:
        report = self.run_scenario("cannot_join", workers=1, settings=("spec.restart.initialDelaySeconds=0",), fails=True)

        self.assertEqual(report["left_out"],
                         [{"worker": 1, "why": "cannot join; the job goes on without it: begins at step 0 only"}])
        self.assertEqual(report["phase"], "Succeeded")

    def test_a_long_name_of_a_result_is_refused(self) -> None:
        report = self.run_scenario("long_result_names")

        self.assertEqual((report["restarts"], report["final"]["x" * 300]), (0, 1))

    def test_float16_tensors_have_float32_sums_and_values(self) -> None:
        self.run_scenario("halves")

    def test_training_converges(self) -> None:
        report = self.run_scenario("converges")

        self.assertEqual(report["steps"], 100)
        self.assertLess(report["final"]["distance"], 1e-5)
        self.assertLess(report["losses"][-1]["loss"], 1e-9)

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "the package tensorboard is not installed")
    def test_tensorboard_reads_what_a_job_has_written(self) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        report = self.run_scenario("converges", flags=("--tensorboard", self.folder / "events"))

        events = EventAccumulator(str(self.folder / "events"), {"scalars": 0}).Reload()
        self.assertEqual([(event.step, np.float32(event.value)) for event in events.Scalars("loss")],
                         [(point["step"], np.float32(point["loss"])) for point in report["losses"]])
        self.assertIn("samples_per_second", events.Tags()["scalars"])

    def test_bad_arguments_are_named_with_what_was_expected(self) -> None:
        self.run_scenario("bad_arguments", workers=1, ends_with=END_OF_JOB)

    def test_other_threads_run_while_one_waits(self) -> None:
        self.run_scenario("other_threads_run")

    def test_a_tensor_that_is_left_out_of_a_step_is_named(self) -> None:
        self.run_scenario("left_out", ends_with=END_OF_JOB)

    def test_a_timeout_names_the_worker_that_is_awaited(self) -> None:
        self.run_scenario("awaited")

    def test_ctrl_c_ends_joining_and_registering(self) -> None:
        self.run_scenario("ctrl_c", ends_with=END_OF_JOB)

        self.assertTrue((self.folder / "interrupted").exists())

    def test_ctrl_c_ends_a_wait_and_the_job_goes_on(self) -> None:
        self.run_scenario("ctrl_c_in_wait")

    def test_workers_divide_the_samples(self) -> None:
        self.run_scenario("samples")

        seen = [tuple(pair) for worker in range(2)
                for pair in json.loads((self.folder / f"samples-{worker}").read_text())]
        self.assertEqual(sorted(seen), [(epoch, index) for epoch in range(2) for index in range(1000)])

    def test_anything_with_dlpack_is_used_where_it_is(self) -> None:
        self.run_scenario("dlpack")

    def test_status_is_that_of_the_coordinator(self) -> None:
        self.run_scenario("status", workers=1)

    def test_registered_memory_is_read_in_place(self) -> None:
        self.run_scenario("in_place", servers=1)

    def test_worker_that_is_told_to_end_is_replaced(self) -> None:
        report = self.run_scenario("told_to_end", workers=1)

        self.assertEqual(report["steps"], 10)

    def test_script_told_to_end_at_the_start_is_replaced(self) -> None:
        report = self.run_scenario("told_to_end_at_the_start", settings=(
            'spec.restart.rules=[{"exitCodes": {"in": [1]}, "action": "FailJob"}]',))

        self.assertEqual(report["restarts"], 1)

    def test_forked_processes_are_no_part_of_the_worker(self) -> None:
        report = self.run_scenario("forked_processes")

        self.assertEqual((report["steps"], report["restarts"]), (3, 0))

    def test_a_process_that_imports_the_script_is_no_worker(self) -> None:
        self.SCENARIOS = self.folder / "unguarded.py"  # type: ignore[misc]
        self.SCENARIOS.write_text(UNGUARDED)

        report = self.run_scenario("unguarded", workers=1, fails=True)

        self.assertEqual((report["steps"], report["restarts"]), (1, 0))
        log = "".join(log.read_text() for log in self.folder.glob(".pushpull/*/logs/worker-*"))
        self.assertIn('is importing the script again, and is no worker: put what the script does under `if __name__ == "__main__":`', log)

    def test_example_trains(self) -> None:
        report = self.folder / "report.json"

        done = run(PUSHPULL, "run", "runtime/examples/python/softmax.yaml", "--workdir", self.folder / "work",
                   "--report", report, cwd=ROOT)

        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(json.loads(report.read_text())["final"]["accuracy"], 0.8)

    def test_example_has_thirty_lines_at_most(self) -> None:
        lines = (ROOT / "runtime/examples/python/softmax.py").read_text().splitlines()

        self.assertLessEqual(len(lines), 30)

    def test_joining_without_a_coordinator_fails(self) -> None:
        environment = {"PUSHPULL_JOB": "nobody", "PUSHPULL_INDEX": "0", "PUSHPULL_COORDINATOR": "127.0.0.1:1"}

        with self.assertRaises(pushpull.PushPullError) as failed:
            pushpull.init(timeout=2, environment=environment)

        self.assertEqual((failed.exception.code, failed.exception.peer), ("UNAVAILABLE", "coordinator"))
        self.assertIn("127.0.0.1:1", str(failed.exception))

    def test_missing_variable_is_named(self) -> None:
        with self.assertRaisesRegex(pushpull.PushPullError, r"PUSHPULL_JOB is not set.*pushpull\.local.*pushpull\.spawn"):
            pushpull.init(environment={})

    def test_wheel_brings_the_program_and_no_torch(self) -> None:
        version = run(PUSHPULL, "version")
        imported = run(sys.executable, "-c", "import pushpull, sys; print('torch' in sys.modules)")
        package = pathlib.Path(pushpull.__file__).parent

        self.assertIn(importlib.metadata.version("pushpull"), version.stdout)
        self.assertEqual(imported.stdout, "False\n")
        for binary in (*package.glob("_engine*.so"), package / "bin/pushpull"):
            linked = run("ldd", binary).stdout
            self.assertNotRegex(linked, "torch|not found")
            # Under names of their own: another package may bring the same libraries.
            self.assertRegex(linked, r"pushpull\.libs/libgrpc-")

    def test_types_are_checked(self) -> None:
        checked = run(sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", HERE / "typed_worker.py",
                      cwd=self.folder)

        self.assertEqual(checked.returncode, 0, checked.stdout)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
