# SPDX-License-Identifier: Apache-2.0
"""Tests of torch_scenarios.py that hold wherever the parameters are."""
from typing import Any

import torch_scenarios


class TrainingCases:
    """Beside a JobTest: on the CPU in torch_test.py, on the stand-in for a GPU in device_test.py."""

    run_scenario: Any
    assertEqual: Any

    def train(self, kind: str, clip: float = 0, micro: int = 1, where: str = "auto", on_servers: bool = True) -> None:
        report = self.run_scenario("trains_as_one_process", kind, clip, micro, where)

        self.assertEqual(report["steps"], torch_scenarios.STEPS)
        self.assertEqual(report["final"]["on_servers"], float(on_servers))

    def test_sgd_trains_as_one_process(self) -> None:
        self.train("sgd")

    def test_adamw_with_clipping_trains_as_one_process(self) -> None:
        self.train("adamw", clip=0.5)

    def test_adagrad_accumulates_as_one_process(self) -> None:
        self.train("adagrad", micro=3)

    def test_other_optimizers_train_on_workers(self) -> None:
        self.train("rmsprop", clip=0.5, on_servers=False)

    def test_adamw_trains_on_workers_if_told(self) -> None:
        self.train("adamw", where="workers", micro=2, on_servers=False)

    def test_values_loaded_before_the_start_count(self) -> None:
        self.run_scenario("begins_with_loaded_values")
