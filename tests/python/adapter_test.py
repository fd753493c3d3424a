# SPDX-License-Identifier: Apache-2.0
"""Trainers of other packages over pushpull.torch. By hand, in an environment with the wheel, torch and those packages:

    pip install torch lightning transformers accelerate build/python/dist/*.whl
    cd tests/python && python -m unittest -v adapter_test
"""
import importlib.util
import json
import unittest

from package_test import HERE, JobTest


class AdapterTest(JobTest):
    SCENARIOS = HERE / "adapter_scenarios.py"

    def train(self, name: str, accumulate: int, steps: int) -> None:
        report = self.run_scenario(name, accumulate)

        first, second = (json.loads((self.folder / f"model-{worker}").read_text()) for worker in range(2))
        self.assertEqual(report["steps"], steps)
        self.assertEqual(first, second)
        self.assertGreater(report["final"]["accuracy"], 0.95)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_trainer_of_transformers(self) -> None:
        self.train("transformers", accumulate=1, steps=150)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_trainer_of_transformers_accumulates(self) -> None:
        self.train("transformers", accumulate=2, steps=75)

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "lightning is not installed")
    def test_trainer_of_lightning(self) -> None:
        self.train("lightning", accumulate=1, steps=150)

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "lightning is not installed")
    def test_trainer_of_lightning_accumulates(self) -> None:
        self.train("lightning", accumulate=2, steps=75)


if __name__ == "__main__":
    unittest.main()
