# SPDX-License-Identifier: Apache-2.0
"""A server dies that was the only one to hold its shards: the job goes on, and says what that cost."""
import re
import unittest

from nodes import NodeCase, get, kubectl, must


# A coordinator without pods that change is asked every 30 s, and news are written once a minute.
TOLD_SECONDS = 100


class LossTest(NodeCase):

    def test_steps_lost_are_told(self) -> None:
        self.create_claim("unreplicated")
        command = ["probe_worker", "--steps", 5000, "--optimizer", "adam", "--values", 10_000, "--step-milliseconds", 50,
                   "--until", "/test/finish"]
        self.start_job("unreplicated", command=[str(word) for word in command],
                       servers={"replicas": 2, "replication": 0}, restart={"initialDelaySeconds": 0},
                       checkpoint={"claim": "unreplicated", "everySeconds": 2})
        self.await_job("unreplicated", lambda status: status.get("checkpoint", {}).get("step", 0) > 0, TOLD_SECONDS, "a checkpoint")
        self.trains("unreplicated")

        self.kill("unreplicated-server-1")
        took = self.await_job("unreplicated", lambda status: status.get("losses", {}).get("counted") == 1, TOLD_SECONDS, "a loss")

        self.say(f"told {took:.1f} s after the server was killed")
        message = self.status("unreplicated")["losses"]["last"]["message"]
        self.say(message)
        self.assertRegex(message, r"lost with server-1; \d+ values? from workers")
        lost = re.search(r"optimizer state of the checkpoint of step (\d+), (\d+) steps? of it lost", message)
        self.assertIsNotNone(lost, message)
        events = [event["note"] for event in get("events.events.k8s.io")["items"]
                  if event["reason"] == "ShardsLost" and event["regarding"]["name"] == "unreplicated"]
        self.assertEqual(events, [message])
        self.finish()
        must(kubectl("wait", "--for=condition=Complete", "--timeout=110s", "tj/unreplicated"))
        self.assertEqual(self.status("unreplicated")["losses"]["counted"], 1)


if __name__ == "__main__":
    unittest.main()
