# SPDX-License-Identifier: Apache-2.0
"""A job of many workers, each a real process, on a real API server."""
import json
import time
import unittest

from api_server import kubectl, wait_until
from operator_case import PROBE, OperatorTestCase

FEW, MANY = 30, 100
SAMPLES, EPOCHS = 3000, 400
# A hundred programs start, or end, on two cores.
SETTLED_SECONDS = 400


class ManyWorkersTest(OperatorTestCase):

    def await_workers(self, name: str, count: int) -> float:
        begin = time.monotonic()

        def are_there() -> bool:
            status = self.status(name)
            workers = status.get("workers", {})
            return status.get("phase") == "Running" and workers.get("ready") == workers.get("replicas") == count
        wait_until(are_there, SETTLED_SECONDS, lambda: f"{count} workers: {json.dumps(self.status(name), indent=1)}")
        return time.monotonic() - begin

    def test_thirty_workers_become_a_hundred_and_go(self) -> None:
        self.start_operator()
        command = [PROBE, "--samples", str(SAMPLES), "--batch", "5", "--epochs", str(EPOCHS), "--step-milliseconds", "100",
                   "--until", str(self.finish)]
        self.create_job("wide", image="i", command=command, servers={"replicas": 2}, workers={"replicas": FEW})
        times = [self.await_workers("wide", FEW)]
        for count in (MANY, FEW):
            self.must(kubectl("patch", "tj", "wide", "--type=merge", "-p", json.dumps({"spec": {"workers": {"replicas": count}}})))
            times.append(self.await_workers("wide", count))
        print(f"\n      {FEW}, {MANY} and {FEW} workers after {', '.join(f'{seconds:.0f} s' for seconds in times)}", flush=True)

        status = self.await_complete("wide")

        results = {key: float(value) for key, value in status["progress"]["results"].items()}
        self.assertEqual((results["least"], results["most"], results["total"]), (EPOCHS, EPOCHS, SAMPLES * EPOCHS))
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)


if __name__ == "__main__":
    unittest.main()
