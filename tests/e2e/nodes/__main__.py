#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder on a real cluster of one machine, with real kubelets, which is started for it and
taken down afterwards whatever happens. Needs root, the packages of docker/cluster-packages.txt, the programs of
`tests/e2e/cluster/build.sh` and the images of `./dev image`.

    python3 tests/e2e/nodes [PATTERN...]     all tests, or those whose name has one of the patterns

Exit codes: 0 all passed, 1 one failed, 3 the cluster does not start, 130 stopped by a signal.
"""
import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))

import nodes  # noqa: E402

MODULES = ("install_test",)
NODES = 3


def run_tests(patterns: list[str]) -> bool:
    loader = unittest.TestLoader()
    if patterns:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns]
    result = unittest.TextTestRunner(verbosity=2).run(loader.loadTestsFromNames(MODULES))
    return result.wasSuccessful() and result.testsRun > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="*")
    patterns = parser.parse_args().pattern
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.monotonic()
    try:
        if subprocess.run([nodes.CLUSTER, "up", str(NODES)], check=False, stdout=subprocess.DEVNULL).returncode != 0:
            return 3
        print(f"{NODES} nodes up after {time.monotonic() - begin:.1f} s", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            nodes.load_images(pathlib.Path(folder))
        print(f"images loaded after {time.monotonic() - begin:.1f} s", flush=True)
        return 0 if run_tests(patterns) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        subprocess.run([nodes.CLUSTER, "down"], check=False)


if __name__ == "__main__":
    sys.exit(main())
