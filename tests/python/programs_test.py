# SPDX-License-Identifier: Apache-2.0
"""Each of programs.py and optimizer_programs.py keeps its meaning as a worker's program, or is refused by an error that says what to change.

Run by the Python of an environment that has the wheel and torch; `./dev python` makes one (__main__.py beside this).
"""
import concurrent.futures
import json
import os
import pathlib
import re
import unittest
from typing import Any, Optional

import optimizer_programs  # both fill PROGRAMS
import programs
import torch
from package_test import HERE, MANIFEST, PUSHPULL, JobTest, run
from program_ways import PROGRAMS, WORKERS, run_alone

TOLERANCE = 1e-3  # of relative differences
REMEDY = re.compile(r"optimizer_on|no_sync|clip_norm|\b(pass|call|use|set|move|wrap|make|construct|give|keep|replace|write|add|load)\b", re.IGNORECASE)
CALLS = re.compile(r"\w+\(|\w+_\w+|\b(step|backward|LBFGS|closure|requires_grad|grad|group|deepcopy|optimizer)\b")


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Of `a` from `b`, relative to the largest element of `b`."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not b.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    if b.numel() == 0:
        return 0.0
    a, b = a.double(), b.double()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-4))


def compared(seen: dict[str, Any], expected: dict[str, Any]) -> tuple[str, str]:
    """The verdict on what a worker has logged and returned, and its reason."""
    if len(seen["logged"]) != len(expected["logged"]) or seen["values"].keys() != expected["values"].keys():
        return "wrong", f"{len(seen['logged'])} values are logged, not {len(expected['logged'])}; returned are {list(seen['values'])}"
    differences = {f"logged value {number}": abs(a - b) / max(abs(b), 1e-4)
                   for number, (a, b) in enumerate(zip(seen["logged"], expected["logged"]))}
    differences.update({name: difference(seen["values"][name], value) for name, value in expected["values"].items()})
    for name, each in differences.items():
        if not each < TOLERANCE:  # nor is NaN
            return "wrong", f"{name} differs by {each:.2g}"
    return "equal", f"{max(differences.values()):.1e}"


def judged(result: dict[str, Any]) -> tuple[str, str]:
    """The verdict on an error: a refusal names what and says what to do."""
    text = result["error"]
    names_it = any(name in text for name in result["names"]) or CALLS.search(text)
    return "refused" if result["is_ours"] and names_it and REMEDY.search(text) else "wrong", text


class JudgesPrograms(JobTest):
    """Runs a program of SCENARIOS in all ways."""

    SCENARIOS = HERE / "programs.py"

    def judge(self, name: str) -> None:
        program = PROGRAMS[name]
        if not program.is_possible():
            self.skipTest(f"torch {torch.__version__} has no {program.needs}")
        expected = run_alone(name)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ways = {way: pool.submit(self.verdict_of, name, way, expected) for way in program.expected}
        for way, future in ways.items():
            with self.subTest(optimizer_on=way):
                verdict, why = future.result()
                print(f"{name}, {way}: {verdict} ({why})", flush=True)
                self.assertIn(verdict, program.expected[way].split(" or "), why)

    def verdict_of(self, name: str, way: str, expected: list[dict[str, Any]]) -> tuple[str, str]:
        folder = self.folder / way
        folder.mkdir()
        command = ["python3", "-B", "-W", "ignore", str(self.SCENARIOS), name, way]
        environment = {**os.environ, "SCENARIO_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
        if PROGRAMS[name].is_notebook:
            done = run(PUSHPULL.with_name(command[0]), *command[1:], cwd=folder, env=environment)
        else:
            manifest = folder / "job.yaml"
            manifest.write_text(MANIFEST.format(job=name.replace("_", "-"), command=json.dumps(command), servers=1,
                                                workers=WORKERS))
            done = run(PUSHPULL, "run", manifest, cwd=folder, env=environment)
        results = [result_in(folder / f"result-{worker}") for worker in range(len(expected))]
        errors = [judged(each) for each in results if each is not None and "error" in each]
        if errors:  # the job ends at the first; a worker that waits may see another one
            return max(errors, key=lambda each: each[0] == "refused")
        if None in results:
            return "wrong", f"no result: {done.stdout[-2000:]}"
        verdicts = [compared(seen, alone) for seen, alone in zip(results, expected) if seen is not None]
        return max(verdicts, key=lambda each: each[0] == "wrong")


class ProgramsTest(JudgesPrograms):
    """A test for each program of programs.py."""


class OptimizerProgramsTest(JudgesPrograms):
    """A test for each program of optimizer_programs.py."""

    SCENARIOS = HERE / "optimizer_programs.py"


def result_in(path: pathlib.Path) -> Optional[dict[str, Any]]:
    return torch.load(path, weights_only=False) if path.exists() else None


def add_tests(suite: type[JudgesPrograms], module: str) -> None:
    """A test for each program of the module."""
    for name, program in PROGRAMS.items():
        def test(self: JudgesPrograms, name: str = name) -> None:
            self.judge(name)
        if program.run.__module__ == module:
            setattr(suite, f"test_{name}", test)


add_tests(ProgramsTest, programs.__name__)
add_tests(OptimizerProgramsTest, optimizer_programs.__name__)

if __name__ == "__main__":
    unittest.main()
