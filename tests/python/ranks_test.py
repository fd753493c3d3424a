# SPDX-License-Identifier: Apache-2.0
"""Workers of several processes: torchrun under `pushpull run`, with the torch of the system.

Run by the Python of an environment that has the wheel, mypy and torch; `./dev python` makes one (__main__.py beside this).
"""
import collections
import json
import os
import unittest
from typing import Any
from unittest import mock

import fake_accelerator
import numpy
import ranks_scenarios
import torch
import torch_scenarios
from package_test import HERE, ROOT, JobTest


# What --standalone means; before torch 2 that takes a port which two workers of a host cannot have, and the defaults of
# redirects and tee do not work on Python 3.11.
ONE_HOST = ("--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--redirects=1", "--tee=1") \
    if torch.__version__ < "2" else ("--standalone",)


class RanksTest(JobTest):
    SCENARIOS = HERE / "ranks_scenarios.py"

    def run_ranks(self, name: str, *arguments: object, ranks: int = ranks_scenarios.RANKS, **more: Any) -> dict:
        launcher = ("-m", "torch.distributed.run", *ONE_HOST, f"--nproc_per_node={ranks}")
        return self.run_scenario(name, *arguments, launcher=launcher, **more)

    def check_models(self, ranks: int = ranks_scenarios.RANKS) -> dict:
        """All ranks of both workers have the same one."""
        models = [json.loads((self.folder / f"model-{worker}-{rank}").read_text()) for worker in range(2) for rank in range(ranks)]
        self.assertEqual(models, models[:1] * 2 * ranks)
        return models[0]

    def check_samples(self) -> None:
        seen: collections.Counter[int] = collections.Counter()
        for file in self.folder.glob("samples-*"):
            seen.update(json.loads(file.read_text()))
            file.unlink()
        self.assertEqual(seen, dict.fromkeys(range(ranks_scenarios.SAMPLES), ranks_scenarios.EPOCHS))

    def test_ranks_train_as_one_process(self) -> None:
        report = self.run_ranks("trains_as_one_process", "adamw", 0.5)

        self.assertEqual(report["steps"], torch_scenarios.STEPS)
        values = sum(numpy.size(value) for value in self.check_models().values())
        one_gradient_a_worker = 4 * values * torch_scenarios.STEPS * torch_scenarios.WORKERS
        self.assertLess(report["bytes"]["pushed"], 1.1 * one_gradient_a_worker)

    def test_forked_processes_of_ranks_end_at_sigterm(self) -> None:
        self.run_ranks("forks")

        self.check_models()

    def test_ranks_train_on_accelerators(self) -> None:
        library = fake_accelerator.build(ROOT / "build/python/fake_accelerator")
        with mock.patch.dict(os.environ, {"FAKE_ACCELERATOR": str(library)}):
            self.run_ranks("trains_as_one_process", "adamw", 0.5)
            self.check_models()

            self.run_ranks("averages_statistics")
            self.check_models()

            self.run_ranks("divides_samples", 0, 1, "never", ranks=3)
            self.check_samples()
            self.check_models(ranks=3)

            self.run_ranks("trains_as_one_process", "sgd", 0, servers=0, settings=("spec.sync.mode=AllReduce",))
            self.check_models()

    def test_each_rank_copies_a_part(self) -> None:
        library = fake_accelerator.build(ROOT / "build/python/fake_accelerator")
        with mock.patch.dict(os.environ, {"FAKE_ACCELERATOR": str(library)}):
            for ranks in (2, 3):
                with self.subTest(ranks=ranks):
                    self.run_ranks("copies_a_part", ranks=ranks)
                    self.check_models(ranks=ranks)

    def test_ranks_train_without_servers(self) -> None:
        self.run_ranks("trains_as_one_process", "sgd", 0, servers=0, settings=("spec.sync.mode=AllReduce",))

        self.check_models()

    def test_samples_of_a_worker_are_divided(self) -> None:
        for processes, accumulate in ((0, 1), (2, 3)):
            with self.subTest(processes=processes, accumulate=accumulate):
                self.run_ranks("divides_samples", processes, accumulate, "never", ranks=3)
                self.check_samples()
                divided = self.check_models(ranks=3)
                self.run_scenario("divides_samples", processes, accumulate, "never")
                self.check_samples()
                whole = self.check_models(ranks=1)
                for name, values in whole.items():
                    numpy.testing.assert_allclose(divided[name], values, rtol=1e-3, atol=1e-5)

    def test_worker_that_is_told_to_end_leaves_after_its_step(self) -> None:
        report = self.run_ranks("divides_samples", 0, 1, "once", fails=True)

        self.assertEqual(report["restarts"], 1)
        self.check_samples()
        self.check_models()

    def test_statistics_become_the_mean_of_all_ranks(self) -> None:
        self.run_ranks("averages_statistics")

        self.check_models()

    def kill_rank(self, rank: int) -> None:
        report = self.run_ranks("survives_a_killed_rank", rank, fails=True)

        self.assertEqual(report["restarts"], 1)
        self.assertEqual(report["steps"], torch_scenarios.STEPS)
        self.check_models()

    def test_killed_rank_ends_its_worker(self) -> None:
        self.kill_rank(1)

    def test_killed_rank_in_the_job_ends_its_worker(self) -> None:
        self.kill_rank(0)

    def test_wrong_use_is_named(self) -> None:
        self.run_ranks("wrong_use_is_named", workers=1, fails=True, ends_with=1, settings=("spec.restart.backoffLimit=0",))

        self.assertTrue((self.folder / "timed-out").exists())


if __name__ == "__main__":
    unittest.main()
