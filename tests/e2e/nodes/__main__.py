#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder on a real cluster of one machine, with real kubelets, which is started for it and
taken down afterwards whatever happens. Needs root, the packages of docker/cluster-packages.txt, the programs of
`tests/e2e/cluster/build.sh`, Prometheus, the images of `./dev image` and the program probe_worker: `./dev e2e nodes` makes them all. The
test of the image of `./dev image python` is left out where that has not been built.

    python3 tests/e2e/nodes [--smoke] [--use] [PATTERN...]     all tests, or those whose name has one of the patterns

--smoke: what a user does first, alone. --use: on the cluster that is there, as it is, and stays.

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
sys.path += [str(HERE.parent / "api"), str(HERE.parents[1] / "metrics")]

import nodes  # noqa: E402
from timed_result import TimedResult  # noqa: E402

SMOKE = ("section_test", "install_test")
MODULES = (*SMOKE, "member_test", "node_loss_test", "trouble_test", "suspend_test", "claim_test", "loss_test", "absence_test", "trust_test", "colocated_test",
           "python_test", "isolation_test", "place_test", "dns_test", "rack_test",
           "mistakes_test", "describe_test", "shrink_test", "metrics_test")
IMAGES = ["slim", "operator", "runtime"]


def run_tests(modules: tuple[str, ...], patterns: list[str]) -> bool:
    loader = unittest.TestLoader()
    if patterns:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns]
    result = unittest.TextTestRunner(verbosity=2, resultclass=TimedResult).run(loader.loadTestsFromNames(modules))
    return result.wasSuccessful() and result.testsRun > 0


def prepare() -> bool:
    begin = time.monotonic()
    if subprocess.run([nodes.CLUSTER, "up", str(nodes.COUNT)], check=False, stdout=subprocess.DEVNULL).returncode != 0:
        return False
    print(f"{nodes.COUNT} nodes up after {time.monotonic() - begin:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        nodes.load_images(pathlib.Path(folder), IMAGES)
    print(f"images loaded after {time.monotonic() - begin:.1f} s", flush=True)
    nodes.install_operator()
    print(f"operator installed after {time.monotonic() - begin:.1f} s", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="*")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--use", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not arguments.use and not prepare():
            return 3
        return 0 if run_tests(SMOKE if arguments.smoke else MODULES, arguments.pattern) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        if not arguments.use:
            subprocess.run([nodes.CLUSTER, "down"], check=False)


if __name__ == "__main__":
    sys.exit(main())
