# SPDX-License-Identifier: Apache-2.0
"""What the runners of tests on clusters print."""
import time
import unittest
from typing import Any


class TimedResult(unittest.TextTestResult):
    """Each test prints how long it took, and a failure at once: those after it may take half an hour."""

    def startTest(self, test: unittest.TestCase) -> None:
        self._begin = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        self.stream.writeln(f"    {time.monotonic() - self._begin:.1f} s")
        super().stopTest(test)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])
