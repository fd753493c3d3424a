# SPDX-License-Identifier: Apache-2.0
"""The bundle for machines with a GPU: what it has, and what it says where there is none."""
import ctypes
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = os.environ["PUSHPULL_BUILD"]
SECONDS = 60


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def has_kernels() -> bool:
    return "PUSHPULL_ENABLE_CUDA:BOOL=ON" in (pathlib.Path(BUILD) / "CMakeCache.txt").read_text()


class BundleTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "bundle"

    def make(self) -> str:
        done = subprocess.run([HERE / "bundle.sh", BUILD, self.folder], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def start(self, program: str, *arguments: str, libraries: str = "") -> subprocess.CompletedProcess:
        """As the bundle's `run` does, with these folders of libraries besides."""
        library_path = ["--library-path", f"{self.folder}/lib:{libraries}", self.folder / "bin" / program]
        return subprocess.run([self.folder / "lib/loader", *library_path, *arguments], capture_output=True, text=True,
                              timeout=SECONDS)

    def test_programs_run_with_the_libraries_of_the_bundle(self):
        self.assertRegex(self.make(), r": \d+ MiB")

        done = self.start("device_test", "--gtest_filter=KernelLaunchTest.*")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"PASSED  \] [1-9]")

    def test_a_folder_with_something_in_it_is_refused(self):
        self.folder.mkdir()
        (self.folder / "mine").touch()

        done = subprocess.run([HERE / "bundle.sh", BUILD, self.folder], capture_output=True, text=True, timeout=SECONDS)

        self.assertEqual(done.returncode, 2)
        self.assertIn("must be empty", done.stderr)

    @unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
    def test_without_a_driver_it_says_so(self):
        self.make()

        done = subprocess.run([self.folder / "run", self.folder], capture_output=True, text=True, timeout=SECONDS)
        speed = self.start("device_speed")

        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("there is no NVIDIA driver on this machine", done.stderr)
        self.assertEqual(speed.returncode, 3, speed.stdout)
        self.assertIn("libcuda.so.1", speed.stderr)
        self.assertIn("install the driver", speed.stderr)

    def test_with_a_driver_it_checks_times_and_prints_a_table(self):
        self.make()
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD}/tests/fake_driver", "SPEED_ARGUMENTS": "--mib 1 --rounds 3",
                       "NCCL_LIBRARY": f"{BUILD}/tests/fake_driver/libnccl.so.2", "NCCL_ARGUMENTS": "--mib 1 --rounds 3"}

        done = subprocess.run([self.folder / "run", self.folder / "out"], capture_output=True, text=True, timeout=10 * SECONDS,
                              env=environment)

        if not has_kernels():
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("this build has no kernels for GPUs", done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"device_test +[1-9]\d* passed, 0 failed, 0 skipped")
        self.assertRegex(done.stdout, r"nccl_test +[1-9]\d* passed, 0 failed, 0 skipped")
        self.assertRegex(done.stdout, r"(?m)^4 ranks, one GPU +[\d.]+ +[\d.]+ +[\d.]+ +0\.95: met$")
        self.assertRegex(done.stdout, r"(?m)^sum +[\d.]+ +[\d.]+ +[\d.]+ +0\.85: met$")
        speed = json.loads((self.folder / "out/speed.json").read_text())
        self.assertIn("adamw", [row["name"] for row in speed["rows"]])

    def test_nccl_is_called_as_its_header_says(self):
        self.make()
        libraries = f"{BUILD}/tests/fake_driver"

        tests = self.start("collective_nccl_test", "--gtest_filter=*/gpu", libraries=libraries)
        speed = self.start("nccl_speed", "--mib", "1", "--rounds", "2", "--ranks", "1,2", libraries=libraries)

        self.assertEqual(tests.returncode, 0, tests.stdout)
        self.assertRegex(tests.stdout, r"PASSED  \] [1-9]")
        self.assertNotIn("SKIPPED", tests.stdout)
        self.assertEqual(speed.returncode, 0, speed.stdout + speed.stderr)
        self.assertRegex(speed.stdout, r"NCCL 2\.32\.3: all-reduce of 1 MiB")
        self.assertRegex(speed.stdout, r"(?m)^2 ranks, one GPU +[\d.]+ +[\d.]+ +[\d.]+ +0\.95: met$")

    def test_wrong_arguments_are_named(self):
        self.make()

        for arguments, text in ((["--mib"], "--mib needs a value"), (["--mib", "0"], "not understood: --mib 0")):
            done = self.start("device_speed", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertTrue(re.search(text, done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
