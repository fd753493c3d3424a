# SPDX-License-Identifier: Apache-2.0
"""The examples in PyTorch of runtime/examples, as a user runs them: alone, and with two workers and two servers.

Run by the Python of an environment that has the wheel and torch; `./dev python` makes one (__main__.py beside this).
"""
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from package_test import PUSHPULL, ROOT

EXAMPLES = ROOT / "runtime/examples"
SECONDS = 300


def run(*command: object) -> str:
    """From the root, as the manifests say; what it prints."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


def last_figure(text: str, name: str) -> float:
    return float(re.findall(rf"{name} (\S+)", text)[-1])


class ExamplesTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def alone(self, program: str, figure: str) -> float:
        return last_figure(run(sys.executable, "-B", EXAMPLES / f"python/{program}_plain.py"), figure)

    def distributed(self, name: str, figure: str, *flags: str) -> float:
        """Of the first worker, which has the same values as the second."""
        report = self.folder / "report.json"
        run(PUSHPULL, "run", EXAMPLES / f"torch-{name}.yaml", "--workdir", self.folder / "work", "--progress", "none",
            "--report", report, *flags)
        self.assertEqual(json.loads(report.read_text())["restarts"], 0)
        figures = [last_figure((self.folder / f"work/logs/worker-{worker}.log").read_text(), figure) for worker in range(2)]
        self.assertEqual(figures[0], figures[1])
        print(f"torch-{name}: {figure} {figures[0]}", flush=True)
        return figures[0]

    def test_fashion_mnist_learns_alone(self) -> None:
        self.assertGreaterEqual(self.alone("fashion_mnist", "test accuracy"), 0.88)

    def test_fashion_mnist_learns(self) -> None:
        self.assertGreaterEqual(self.distributed("fashion-mnist", "test accuracy"), 0.88)

    def test_fashion_mnist_learns_without_servers(self) -> None:
        accuracy = self.distributed("fashion-mnist", "test accuracy", "--set", "spec.sync.mode=AllReduce",
                                    "--set", "spec.servers.replicas=0")
        self.assertGreaterEqual(accuracy, 0.88)

    def test_characters_learn_alone(self) -> None:
        self.assertLess(self.alone("characters", "test loss"), 2.2)

    def test_characters_learn(self) -> None:
        self.assertLess(self.distributed("characters", "test loss"), 2.4)

    def test_clicks_learn_alone(self) -> None:
        self.assertGreater(self.alone("clicks", "test accuracy"), 0.75)

    def test_clicks_learn(self) -> None:
        self.assertGreater(self.distributed("clicks", "test accuracy"), 0.75)

    def test_five_lines_make_a_script_distributed(self) -> None:
        for program, most in (("fashion_mnist", 5), ("clicks", 5), ("characters", 6)):  # the last one clips gradients
            plain, distributed = ((EXAMPLES / f"python/{program}{end}.py").read_text().splitlines() for end in ("_plain", ""))

            changes = [change for change in difflib.SequenceMatcher(None, plain, distributed, autojunk=False).get_opcodes()
                       if change[0] != "equal"]

            lines = sum(max(there - here, then - now) for _, here, there, now, then in changes)
            self.assertLessEqual(lines, most, program)


if __name__ == "__main__":
    unittest.main()
