# SPDX-License-Identifier: Apache-2.0
"""A server in the pod of each worker: it is scaled with the worker, and the two share memory."""
import json
import re
import unittest

from api_server import wait_until
from nodes import START_SECONDS, NodeCase, kubectl, must

SERVER_METRICS = 9465


class ColocatedTest(NodeCase):

    def pushed(self, pod: str, channel: str) -> float:
        """Bytes that the worker has sent this way."""
        found = re.search(rf'^pushpull_push_bytes_total{{channel="{channel}"}} (\S+)$', self.metrics(pod), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def set_workers(self, name: str, replicas: int) -> None:
        must(kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"workers": {"replicas": replicas}}})))
        wait_until(lambda: len(self.pods(name, "worker")) == replicas, START_SECONDS, f"{replicas} pods of workers")
        self.await_members(name, workers=replicas)
        self.trains(name)

    def test_pairs_share_memory_and_come_and_go_together(self) -> None:
        # Eight chunks, so that every server has some.
        self.start_job("paired", samples=2_000_000, epochs=50, step_milliseconds=100, servers={"replicas": 2, "replication": 1}, workers={"replicas": 2, "colocatedServer": True})
        for worker in ("paired-worker-0", "paired-worker-1"):
            wait_until(lambda: self.pushed(worker, "shm") > 0, START_SECONDS, f"{worker} shares memory with its server")
        first = self.uids("paired", "worker")
        self.set_workers("paired", 3)
        self.set_workers("paired", 2)
        self.assertEqual(self.uids("paired", "worker"), first)
        for worker in first:
            self.say(f"{worker}: {self.pushed(worker, 'shm'):.0f} bytes through memory, {self.pushed(worker, 'tcp'):.0f} over the network")
        status = self.finish_job("paired")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)


if __name__ == "__main__":
    unittest.main()
