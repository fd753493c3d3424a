# SPDX-License-Identifier: Apache-2.0
"""pushpull.torch with parameters on an accelerator: scenarios of torch_test.py on a stand-in for a GPU (fake_accelerator.cc).

Run by the Python of an environment that has the wheel, mypy and torch; `./dev python` makes one (__main__.py beside this).
"""
import json
import os
import sys
import unittest
from unittest import mock

import fake_accelerator
import torch
import torch_scenarios
from package_test import HERE, ROOT, JobTest, run
from training_cases import TrainingCases


class DeviceTest(TrainingCases, JobTest):
    SCENARIOS = HERE / "torch_scenarios.py"

    @classmethod
    def setUpClass(cls) -> None:
        library = fake_accelerator.build(ROOT / "build/python/fake_accelerator")
        environment = mock.patch.dict(os.environ, {"FAKE_ACCELERATOR": str(library)})
        environment.start()
        cls.addClassCleanup(environment.stop)

    def test_trains_without_servers(self) -> None:
        report = self.run_scenario("trains_as_one_process", "sgd", 0, 1, "auto", servers=0, settings=("spec.sync.mode=AllReduce",))

        self.assertEqual(report["steps"], torch_scenarios.STEPS)

    def test_bfloat16_model_learns_from_float32_values(self) -> None:
        report = self.run_scenario("trains_in_bfloat16", "adamw", 0)

        self.assertLess(report["final"]["difference"], 0.05)
        self.assertLess(report["final"]["last"], report["final"]["first"])

    def test_state_of_the_optimizer_moves_to_torch_and_back(self) -> None:
        torch_scenarios.continue_alone("adamw", 0, 10, self.folder)
        self.run_scenario("continues", "adamw", 10, 20)
        self.run_scenario("continues", "adamw", 20, 30, servers=3)

        continued = [json.loads((self.folder / f"losses-{worker}").read_text()) for worker in range(2)]
        alone = torch_scenarios.continue_alone("adamw", 0, 30, self.folder)
        worst = max(abs(a - b) / b for worker in range(2) for a, b in zip(continued[worker], alone[worker][20:]))
        self.assertLess(worst, 1e-6)

    def test_statistics_become_the_mean(self) -> None:
        self.run_scenario("shared_unused_and_averaged")

        first, second = [json.loads((self.folder / f"model-{worker}").read_text()) for worker in range(2)]
        self.assertEqual(first, second)

    def test_lost_worker_and_resizes_change_nothing(self) -> None:
        self.run_scenario("survives", "servers")

        first, second = [json.loads((self.folder / f"model-{worker}").read_text()) for worker in range(2)]
        self.assertEqual(first, second)

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "GradScaler is for CUDA alone before torch 2.3")
    def test_step_that_overflows_in_one_worker_changes_nothing(self) -> None:
        self.run_scenario("scales_losses")

    def test_sparse_embeddings_stay_on_the_cpu(self) -> None:
        with mock.patch.object(self, "SCENARIOS", HERE / "embedding_scenarios.py"):
            self.run_scenario("trains_like_a_dense_model", "adagrad", 3)

    def test_device_that_is_late_is_named(self) -> None:
        self.run_scenario("device_is_late", workers=1)

    def test_stand_in_reports_what_is_not_in_order(self) -> None:
        for call, message in (("read_without_waiting()", "has not waited"), ("free_too_early()", "was freed while"),
                              ("free_host_memory()", "memory of the host was freed")):
            done = run(sys.executable, "-B", "-c", f"import fake_accelerator as fake; fake.{call}", cwd=HERE)

            self.assertIn(message, done.stdout)


if __name__ == "__main__":
    unittest.main()
