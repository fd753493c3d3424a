# SPDX-License-Identifier: Apache-2.0
"""Trainers and models of other packages over pushpull.torch, each as in one process. By hand, in an environment with the wheel:

    pip install torch lightning transformers accelerate timm torchvision build/python/dist/*.whl
    cd tests/python && python -m unittest -v adapter_test

A test whose package is missing is skipped.
"""
import importlib.util
import json
import os
import unittest
from typing import Any, Optional

import adapter_scenarios
import model_programs
import torch
from package_test import HERE, MANIFEST, PUSHPULL, JobTest, run
from programs_test import JudgesPrograms, add_tests, difference, result_in

PLACES = ("servers", "workers")


def compared(results: list[dict[str, Any]], alone: dict[str, Any]) -> dict[str, float]:
    """By what differs: the largest relative difference of the workers from one process. Its loss is the mean of theirs."""
    losses, weights = (torch.tensor([each[key] for each in results if key in each]) for key in ("losses", "weights"))
    mean_loss = (losses * weights).sum(0) / weights.sum(0) if len(weights) else losses.mean(0)
    count = len(mean_loss)  # fewer, if the training was resumed
    differences = {"losses": difference(mean_loss, torch.tensor(alone["losses"])[-count:])}
    for each in results:
        scores = torch.tensor(alone["scores"])[-len(each["scores"]):]
        differences["scores"] = max(differences.get("scores", 0), difference(torch.tensor(each["scores"]), scores))
        for name, value in alone["values"].items():
            differences["values"] = max(differences.get("values", 0), difference(each["values"][name], value))
    return differences


class AdapterTest(JobTest):
    """A test for each case of adapter_scenarios.py; see `add_cases`."""

    def compare(self, kind: str, name: str) -> None:
        case = adapter_scenarios.CASES[kind][name]
        alone = self.alone(kind, name)
        for place in PLACES:
            with self.subTest(optimizer_on=place):
                results = self.results_of(kind, name, place)
                errors = [each["error"] for each in results if "error" in each]
                if place in case.refused:
                    self.assertTrue(any(case.refused[place] in error for error in errors), errors or "no error")
                    print(f"{kind} {name}, {place}: refused", flush=True)
                    continue
                self.assertEqual(errors, [])
                for each in results:
                    for key in each.keys() & {"epochs", "generated"}:
                        self.assertEqual(torch.as_tensor(each[key]).tolist(), torch.as_tensor(alone[key]).tolist(), key)
                differences = compared(results, alone)
                print(f"{kind} {name}, {place}: {', '.join(f'{what} {value:.1e}' for what, value in differences.items())}", flush=True)
                self.assertLess(max(differences.values()), case.tolerance)

    def alone(self, kind: str, name: str) -> dict[str, Any]:
        adapter_scenarios.SHARED = self.folder / "alone"  # type: ignore[misc]
        adapter_scenarios.SHARED.mkdir()
        torch.set_num_threads(1)
        return adapter_scenarios.copied(adapter_scenarios.KINDS[kind](name, "alone"))

    def results_of(self, kind: str, name: str, place: str) -> list[dict[str, Any]]:
        folder = self.folder / place
        folder.mkdir()
        halves = ("first", "second") if name == "resumes" else (None,)
        return [self.run_job(kind, name, place, folder, half) for half in halves][-1]

    def run_job(self, kind: str, name: str, place: str, folder: Any, half: Optional[str]) -> list[dict[str, Any]]:
        manifest = folder / "job.yaml"
        command = ["python3", "-B", "-W", "ignore", str(HERE / "adapter_scenarios.py"), kind, name, place]
        manifest.write_text(MANIFEST.format(job=f"{kind}-{name}".replace("_", "-"), command=json.dumps(command), servers=1,
                                            workers=adapter_scenarios.WORKERS))
        environment = {**os.environ, "SCENARIO_FOLDER": str(folder), "OMP_NUM_THREADS": "1", **({"HALF": half} if half else {})}
        done = run(PUSHPULL, "run", manifest, f"--workdir={folder / (half or 'job')}", cwd=folder, env=environment)
        results = [result_in(folder / f"result-{worker}") for worker in range(adapter_scenarios.WORKERS)]
        found = [each for each in results if each is not None]
        if len(found) < len(results) and not any("error" in each for each in found):
            self.fail(done.stdout)
        return found


class ModelsTest(JudgesPrograms):
    """A test for each program of model_programs.py."""

    SCENARIOS = HERE / "model_programs.py"


def add_cases() -> None:
    for kind, cases in adapter_scenarios.CASES.items():
        for name in cases:
            @unittest.skipUnless(importlib.util.find_spec(kind), f"{kind} is not installed")
            def test(self: AdapterTest, kind: str = kind, name: str = name) -> None:
                self.compare(kind, name)
            setattr(AdapterTest, f"test_{kind}_{name}", test)


add_cases()
add_tests(ModelsTest, model_programs.__name__)

if __name__ == "__main__":
    unittest.main()
