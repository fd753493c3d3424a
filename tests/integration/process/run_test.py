# SPDX-License-Identifier: Apache-2.0
"""`pushpull run` and `pushpull status` when all goes well, and manifests that do not."""
import json
import pathlib
import struct
import subprocess
import unittest
from typing import Any

import job

REPORT_KEYS = {
    "job", "phase", "seconds", "steps", "samples", "workers", "servers", "restarts", "epoch",
    "final", "throughput", "sync", "bytes", "resizes", "losses", "contributors", "history", "events"}
PHASES = {"reduce", "encode", "queue", "wire", "server_queue", "wait", "sum", "optimize",
          "replicate", "reply", "apply"}


def events_in(folder: pathlib.Path) -> list[bytes]:
    """The records of the folder's one event file of TensorBoard."""
    [file] = folder.iterdir()
    data, records = file.read_bytes(), []
    while data:
        [size] = struct.unpack_from("<Q", data)
        records.append(data[12:12 + size])
        data = data[16 + size:]
    return records


class RunTest(job.JobTestCase):

    def test_job_and_its_runtime_are_judged_and_run_together(self) -> None:
        shared = self.folder / "runtime.json"
        spec = {**self.spec("--steps", 50, servers=3, workers=2), "sync": {"mode": "Bounded"}}
        shared.write_text(json.dumps({"apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "gpu"},
                                      "spec": spec}))
        own = {"runtimeRef": {"name": "gpu"}, "workers": {"replicas": 1}, "sync": {"staleness": 2}}
        manifest = self.write_manifest({**own, "sync": {"mode": "Sync", "staleness": 2}}, "wrong.yaml")

        def pushpull(*words: Any) -> subprocess.CompletedProcess:
            return subprocess.run([job.PUSHPULL, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("spec.sync.staleness: needs spec.sync.mode Bounded", pushpull("validate", manifest, "--runtime", shared).stderr)
        manifest = self.write_manifest(own)
        self.assertIn(f"valid: job {self.job_name}, 3 servers, 1 workers", pushpull("validate", manifest, "--runtime", shared).stdout)
        self.assertIn("valid as far as it goes: job", pushpull("validate", manifest).stdout)
        self.assertIn("valid as far as it goes: runtime gpu", pushpull("validate", shared).stdout)
        refused = pushpull("run", manifest)
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1), refused.stderr)
        self.assertIn("spec.runtimeRef: names an object of a cluster", refused.stderr)
        self.assertIn("kind: must be TrainingJob, is TrainingRuntime", pushpull("run", shared).stderr)

        started = self.run_job(own, "--runtime", shared)

        self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["steps"], report["workers"], report["servers"]), (50, 1, 3))

    def test_the_job_among_other_documents_of_a_file_runs(self) -> None:
        manifest = self.write_manifest(self.spec("--steps", 50, servers=1, workers=1))
        manifest.write_text("kind: ConfigMap\nmetadata: {name: settings}\n---\n" + manifest.read_text())

        started = self.start(job.PUSHPULL, "run", manifest, "--workdir", self.folder / "several")

        self.assertEqual(started.wait(60), 0, started.output)
        self.assertIn(f"{manifest}: uses TrainingJob {self.job_name}, ignores ConfigMap settings\n", started.output)

    def test_events_have_the_losses_of_the_report(self) -> None:
        started = self.run_job(self.spec("--steps", 100), "--tensorboard", self.folder / "events")

        self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)

        first, *scalars = events_in(self.folder / "events")
        losses = [struct.pack("<f", point["loss"]) for point in started.report()["losses"]]
        self.assertTrue(first.endswith(b"brain.Event:2"), first)
        self.assertEqual([event[-4:] for event in scalars if b"loss" in event], losses)

    def test_report_has_every_key(self) -> None:
        started = self.run_job(self.spec("--steps", 100),
                               "--set", "spec.servers.replicas=4",
                               "--set", "spec.workers.replicas=3")

        code = started.launcher.wait(60)

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertLessEqual(REPORT_KEYS, report.keys())
        self.assertEqual(report["job"], self.job_name)
        self.assertEqual(report["phase"], "Succeeded")
        self.assertEqual((report["steps"], report["workers"], report["servers"]), (100, 3, 4))
        self.assertEqual(report["samples"], 300)
        self.assertEqual(report["restarts"], 0)
        self.assertLessEqual({"loss", "accuracy"}, report["final"].keys())
        self.assertGreater(report["throughput"]["samples_per_second"], 0)
        self.assertGreater(report["sync"]["p50_seconds"], 0)
        self.assertGreaterEqual(report["sync"]["p99_seconds"], report["sync"]["p50_seconds"])
        self.assertEqual(report["sync"]["phases"].keys(), PHASES)
        self.assertGreaterEqual(report["bytes"]["pushed"], 100 * 3 * 3 * 1000 * 4)
        self.assertGreaterEqual(report["bytes"]["pulled"], 100 * 3 * 3 * 1000 * 4)
        self.assertEqual(report["bytes"]["replicated"], 0)
        self.assertEqual(report["losses"][0], {"step": 0, "loss": 2.0})
        self.assertEqual(report["contributors"], {"min": 3, "max": 3})

    def test_sum_over_workers_is_exact(self) -> None:
        # The probe compares every value of every step; 2 MiB tensors have several chunks.
        started = self.run_job(self.spec("--steps", 20, "--values", 600_000, workers=3))

        code = started.launcher.wait(60)

        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["final"]["loss"], 6.0)

    def test_orderly_end_leaves_no_process(self) -> None:
        started = self.run_job(self.spec("--steps", 5))

        self.assertEqual(started.launcher.wait(60), 0, started.launcher.output)

        self.wait_until_gone(5)
        self.assertFalse((started.workdir / "endpoints.json").exists())

    def test_status_shows_running_job(self) -> None:
        started = self.run_job(self.long_spec())
        started.wait_for_step(3)

        status = started.status()

        self.assertEqual((status["job"], status["phase"]), (self.job_name, "Running"))
        self.assertEqual([s["index"] for s in status["servers"]], [0, 1])
        self.assertEqual([w["alive"] for w in status["workers"]], [True, True])
        self.assertGreater(sum(s["bytes"] for s in status["servers"]), 0)

    def test_every_role_serves_its_metrics(self) -> None:
        started = self.run_job(self.long_spec())
        started.wait_for_step(3)
        job.wait_until(lambda: (started.endpoint("worker") or {}).get("metrics"), 10,
                       "the worker's metrics address")

        coordinator, server, worker = (started.metrics(r) for r in ("coordinator", "server", "worker"))

        self.assertEqual(coordinator['pushpull_members{role="server"}'], 2)
        self.assertIn("pushpull_nonfinite_gradients_total", server)
        self.assertGreater(worker["pushpull_sync_seconds_count"], 0)

    def test_second_run_in_workdir_is_refused(self) -> None:
        first = self.run_job(self.long_spec())
        first.wait_for_step(1)

        second = self.start(job.PUSHPULL, "run", self.folder / "job.yaml", "--workdir",
                            first.workdir)

        self.assertEqual(second.wait(20), 3, second.output)
        self.assertIn(str(first.workdir), second.output)
        self.assertIn(str(first.launcher.pid), second.output)
        self.assertIsNone(first.launcher.process.poll())


class ManifestTest(job.JobTestCase):

    def test_every_problem_is_named_at_once(self) -> None:
        spec = self.spec("--steps", 5, servers=-1, workers=0, sync={"nonFinite": "Explode"},
                         colour="blue")
        manifest = self.write_manifest(spec)

        for command in ("run", "validate"):
            with self.subTest(command=command):
                refused = subprocess.run([job.PUSHPULL, command, manifest], capture_output=True,
                                         text=True, timeout=20, check=False, cwd=self.folder)

                self.assertEqual(refused.returncode, 2, refused.stderr)
                lines = refused.stderr.splitlines()
                for field in ("spec.servers.replicas", "spec.workers.replicas",
                              "spec.sync.nonFinite", "spec.colour"):
                    self.assertEqual(sum(f"{field}: " in line for line in lines), 1, lines)

    def test_missing_manifest_is_named(self) -> None:
        missing = self.start(job.PUSHPULL, "run", self.folder / "absent.yaml")

        self.assertEqual(missing.wait(20), 3, missing.output)
        self.assertIn("absent.yaml", missing.output)

    def test_missing_program_is_named(self) -> None:
        spec = {**self.spec(), "command": ["no-such-program-here"]}
        started = self.run_job(spec)

        self.assertEqual(started.launcher.wait(20), 3, started.launcher.output)
        self.assertIn("no-such-program-here", started.launcher.output)


if __name__ == "__main__":
    unittest.main()
