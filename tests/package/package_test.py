# SPDX-License-Identifier: Apache-2.0
"""The project runtime/examples/cpp, the program of docs/writing-a-worker.md, is built against what `cmake --install`
installs, and trains.

PUSHPULL_BUILD names the build folder. Everything that the test writes is in its folder `package`.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "runtime/examples/cpp"
MANUAL = ROOT / "docs/writing-a-worker.md"
BUILD = pathlib.Path(os.environ["PUSHPULL_BUILD"])
FOLDER = BUILD / "package"
PREFIX = FOLDER / "prefix"
WORKER = FOLDER / "build/my_worker"

def run(*command: object, **arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **arguments)


class PackageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls) -> None:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        cmake, compiler = os.environ["CMAKE"], os.environ["CXX"]
        for command in ((cmake, "--install", BUILD, "--prefix", PREFIX),
                        (cmake, "-G", "Ninja", "-S", SOURCE, "-B", WORKER.parent, f"-DCMAKE_CXX_COMPILER={compiler}",
                         f"-DCMAKE_PREFIX_PATH={PREFIX}"),
                        (cmake, "--build", WORKER.parent)):
            done = run(*command)
            if done.returncode != 0:
                raise AssertionError(done.stdout)

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(FOLDER)  # the library alone has a hundred megabytes

    def test_installed_headers_include_no_others_of_the_project(self) -> None:
        headers = list((PREFIX / "include").rglob("*.h"))

        includes = {name for header in headers for name in re.findall(r'#include "([^"]+)"', header.read_text())}

        self.assertIn(PREFIX / "include/pushpull/job.h", headers)
        own = {name for name in includes if not name.startswith("absl/")}
        self.assertLessEqual(own, {str(header.relative_to(PREFIX / "include")) for header in headers})

    def test_program_is_that_of_the_manual(self) -> None:
        shown = re.search(r"\n```cpp\n(.*?)```\n", MANUAL.read_text(), re.DOTALL)

        program = (SOURCE / "main.cc").read_text()

        self.assertIsNotNone(shown, MANUAL)
        self.assertEqual([line for line in program.splitlines() if line][1:], [line for line in shown[1].splitlines() if line])

    def test_worker_trains_under_the_installed_program(self) -> None:
        report = FOLDER / "report.json"

        done = run(PREFIX / "bin/pushpull", "run", SOURCE / "my_worker.yaml", "--set", f'spec.command=["{WORKER}"]',
                   "--report", report, cwd=FOLDER, timeout=60)

        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertAlmostEqual(json.loads(report.read_text())["final"]["loss"], 0, places=6)

    def test_join_fails_without_a_coordinator(self) -> None:
        with socket.socket() as nobody:  # bound, but it does not listen
            nobody.bind(("127.0.0.1", 0))
            environment = {"PUSHPULL_JOB": "package", "PUSHPULL_INDEX": "0",
                           "PUSHPULL_COORDINATOR": f"127.0.0.1:{nobody.getsockname()[1]}"}

            done = run(WORKER, env=environment, timeout=60)

        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(environment["PUSHPULL_COORDINATOR"], done.stdout)
