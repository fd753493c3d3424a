# SPDX-License-Identifier: Apache-2.0
"""Sparse embeddings of pushpull.torch as a user has them: real processes, `pushpull run`, the torch of the system.

Run by the Python of an environment that has the wheel and torch; `./dev python` makes one (__main__.py beside this).
"""
import json
import os
import pathlib
import shutil
import signal
import threading
import time
import unittest
from typing import Callable

import embedding_scenarios
import torch
from package_test import END_OF_JOB, HERE, PUSHPULL, RUN_SECONDS, JobTest, run

RELIABLE = "spec.servers.replication=1"


class EmbeddingTest(JobTest):
    SCENARIOS = HERE / "embedding_scenarios.py"

    def test_sgd_trains_like_a_dense_model(self) -> None:
        self.run_scenario("trains_like_a_dense_model", "sgd", 1)

    def test_adagrad_accumulates_like_a_dense_model(self) -> None:
        self.run_scenario("trains_like_a_dense_model", "adagrad", 3)

    def test_adam_is_the_lazy_one_of_torch(self) -> None:
        for kind in ("sparse_adam", "adam"):
            with self.subTest(kind=kind):
                self.run_scenario("trains_like_sparse_adam", kind)

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile came with torch 2")
    def test_compiled_model_trains_like_a_dense_model(self) -> None:
        self.run_scenario("compiles")

    def test_a_batch_receives_its_rows_and_no_others(self) -> None:
        self.run_scenario("receives_the_rows_of_the_batch")

    def test_a_worker_without_samples_pushes_no_rows(self) -> None:
        self.run_scenario("samples_of_elastic_loader")

    def test_wrong_use_is_named(self) -> None:
        self.run_scenario("wrong_use_is_named", workers=1, ends_with=END_OF_JOB)

    def test_state_of_rows_is_refused(self) -> None:
        self.run_scenario("state_is_refused", workers=1, ends_with=END_OF_JOB)

    def test_a_replaced_worker_has_the_rows_of_the_job(self) -> None:
        report = self.run_scenario("is_replaced")

        self.assertEqual(report["restarts"], 1)
        self.models_are_equal()

    def test_a_killed_server_and_resizes_change_no_row(self) -> None:
        expected, _ = self.train_through(lambda: None)

        received, report = self.train_through(self.kill_and_resize)

        self.assert_equal(received, expected)
        self.assertGreaterEqual(report["restarts"], 1)
        self.assertEqual([resize["to"] for resize in report["resizes"]], [3, 2])

    def test_a_restored_job_has_every_row(self) -> None:
        folder, kept = self.folder / "checkpoints", self.folder / "kept"
        expected, _ = self.train_through(lambda: self.save(folder, kept), f"spec.checkpoint.uri=file://{folder}")

        received, report = self.train_through(lambda: None, f"spec.checkpoint.uri=file://{self.folder / 'more'}",
                                              f"spec.checkpoint.restoreFrom={kept}", servers=3)

        self.assert_equal(received, expected)
        self.assertGreater(report["checkpoint"]["restored_step"], 0)
        self.assertEqual(report["final"]["start_step"], report["checkpoint"]["restored_step"])

    # ---- a job that is disturbed ----

    def train_through(self, disturb: Callable[[], None], *settings: str, servers: int = 2) -> tuple[dict, dict]:
        """The model of a job of two workers, and its report."""
        for name in ("training", "calm"):
            (self.folder / name).unlink(missing_ok=True)
        problems: list[BaseException] = []

        def run_beside() -> None:
            try:
                self.wait_until_training()
                disturb()
            except BaseException as problem:
                problems.append(problem)
            (self.folder / "calm").touch()

        beside = threading.Thread(target=run_beside)
        beside.start()
        report = self.run_scenario("trains_through", servers=servers, settings=(RELIABLE, *settings))
        beside.join()
        self.assertEqual(problems, [])
        self.assertEqual(report["steps"], embedding_scenarios.LONG_STEPS)
        return self.models_are_equal(), report

    def models_are_equal(self) -> dict:
        """Those of both workers; one of them."""
        first, second = (torch.load(self.folder / f"model-{worker}") for worker in range(2))
        self.assert_equal(first, second)
        return first

    def assert_equal(self, received: dict, expected: dict) -> None:
        for name, value in expected.items():
            self.assertTrue(torch.equal(received[name], value), name)

    def wait_until_training(self) -> None:
        deadline = time.monotonic() + RUN_SECONDS
        while not (self.folder / "training").exists():
            self.assertLess(time.monotonic(), deadline)
            threading.Event().wait(0.01)

    def pushpull(self, *words: object) -> None:
        done = run(PUSHPULL, *words, "--workdir", self.folder / ".pushpull/trains-through", "--wait")
        self.assertEqual(done.returncode, 0, done.stdout)

    def kill_and_resize(self) -> None:
        endpoints = json.loads((self.folder / ".pushpull/trains-through/endpoints.json").read_text())
        os.kill(next(each["pid"] for each in endpoints if each["role"] == "server"), signal.SIGKILL)
        self.pushpull("scale", "--servers", 3)
        self.pushpull("scale", "--servers", 2)

    def save(self, folder: pathlib.Path, kept: pathlib.Path) -> None:
        """Keeps one that is not the last: the job saves when it ends."""
        self.pushpull("checkpoint", "now")
        shutil.copytree(max(folder.glob("default/trains-through/step-*")), kept)


if __name__ == "__main__":
    unittest.main()
