# SPDX-License-Identifier: Apache-2.0
"""What a user does first: applies a job, scales it while it trains, waits for its end."""
import math
import time
import unittest

from api_server import ROOT, wait_until
from nodes import START_SECONDS, NodeCase, get, kubectl, must

EXAMPLE = ROOT / "runtime/examples/fashion-mnist.yaml"
STEPS = 3 * math.ceil(60_000 / 128)
LONGEST_PAUSE_SECONDS = 1.0


class InstallTest(NodeCase):

    def test_example_trains_to_its_end(self) -> None:
        begin = time.monotonic()
        must(kubectl("apply", "-f", EXAMPLE))
        self.addCleanup(kubectl, "delete", "tj", "fashion-mnist", "--timeout=60s")
        must(kubectl("wait", "--for=condition=Ready", f"--timeout={START_SECONDS}s", "tj/fashion-mnist"))
        self.say(f"Ready after {time.monotonic() - begin:.1f} s")
        must(kubectl("wait", "--for=condition=Complete", "--timeout=110s", "tj/fashion-mnist"))
        progress = self.status("fashion-mnist")["progress"]
        self.say(f"Complete after {time.monotonic() - begin:.1f} s: {progress}")
        self.assertEqual(progress["step"], STEPS)
        self.assertGreater(float(progress["results"]["accuracy"]), 0.8)
        self.assertIn("test accuracy", must(kubectl("logs", "fashion-mnist-worker-0")))

    def test_servers_are_added_and_taken_away_while_it_trains(self) -> None:
        self.start_job("scaled")
        workers = self.uids("scaled", "worker")
        self.trains("scaled")

        begin = time.monotonic()
        must(kubectl("scale", "tj/scaled", "--replicas=4"))
        wait_until(lambda: len(self.pods("scaled", "server")) > 2, 30, "a third server's pod")
        self.say(f"first new pod after {time.monotonic() - begin:.2f} s, all after {self.await_members('scaled', servers=4):.1f} s")
        self.trains("scaled")
        must(kubectl("scale", "tj/scaled", "--replicas=2"))
        self.say(f"two servers again after {self.await_members('scaled'):.1f} s")
        self.trains("scaled")

        status = self.finish_job("scaled")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assertEqual(self.uids("scaled", "worker"), workers)
        for worker in workers:
            self.assertLess(self.longest_step(worker), LONGEST_PAUSE_SECONDS)


if __name__ == "__main__":
    unittest.main()
