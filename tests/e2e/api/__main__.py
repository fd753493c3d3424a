#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder against a real kube-apiserver and etcd, which are started for it and stopped
afterwards whatever happens. The programs come from `tests/e2e/cluster/build.sh api helm`.

    python3 tests/e2e/api [PATTERN...]     all tests, or those whose name has one of the patterns

Exit codes: 0 all passed, 1 one failed, 3 the API server does not start, 130 stopped by a signal.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from timed_result import TimedResult

HERE = pathlib.Path(__file__).resolve().parent
CLUSTER = HERE.parent / "cluster/cluster.sh"
MODULES = ("manifest_test", "scale_test", "workers_scale_test", "runtime_test", "chart_test", "release_test", "operator_test", "deletion_test", "rest_test",
           "outage_test", "healing_test", "large_objects_test", "crowd_test", "tenants_test", "openshift_test", "workers_test")


def api(*words: str) -> int:
    return subprocess.run([str(CLUSTER), "api", *words], check=False, stdout=subprocess.DEVNULL).returncode


def run_tests(patterns: list[str]) -> bool:
    loader = unittest.TestLoader()
    if patterns:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns]
    tests = loader.loadTestsFromNames(MODULES)
    result = unittest.TextTestRunner(verbosity=2, resultclass=TimedResult).run(tests)
    return result.wasSuccessful() and result.testsRun > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="*")
    patterns = parser.parse_args().pattern
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which a test does not catch: what was started is stopped
    with tempfile.TemporaryDirectory(prefix="pushpull-api-") as folder:
        os.environ["API_STATE"] = f"{folder}/state"
        begin = time.monotonic()
        try:
            if api("up") != 0:
                return 3
            print(f"API server up after {time.monotonic() - begin:.1f} s", flush=True)
            return 0 if run_tests(patterns) else 1
        except KeyboardInterrupt:
            return 130
        finally:
            begin = time.monotonic()
            api("down")
            print(f"API server down after {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
