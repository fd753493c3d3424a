# SPDX-License-Identifier: Apache-2.0
"""No name is resolved for a minute: jobs that start, grow or get members replaced meanwhile, and an operator that starts
anew. All of them go on, and no restart is counted against them."""
import time
import unittest

from api_server import wait_until
from nodes import SYSTEM, NodeCase, cluster, conditions, get, kubectl, must

OUTAGE_SECONDS = 60
TOLD_SECONDS = 30
# Until members that try again at growing intervals are there.
BACK_SECONDS = 90
QUICK = {"initialDelaySeconds": 0}
PAIR = {"replicas": 2, "replication": 1}


class DnsTest(NodeCase):

    def begin_outage(self) -> None:
        cluster("cp", "stop", "coredns")
        self.addCleanup(cluster, "cp", "start", "coredns")
        self._began = time.monotonic()

    def end_outage(self) -> None:
        """When it has lasted as long as it is to last."""
        end = self._began + OUTAGE_SECONDS
        wait_until(lambda: time.monotonic() >= end, OUTAGE_SECONDS + 1, "the outage has lasted")
        cluster("cp", "start", "coredns")

    def await_told(self, name: str, missing: str) -> None:
        """A condition of the job says who is missing."""
        def told() -> list[str]:
            return [f"{it['type']} {it['reason']}: {it['message']}" for it in conditions(get("tj", name)).values()
                    if missing in it["message"]]
        found = wait_until(told, TOLD_SECONDS, lambda: f"{name}: {missing} is told: {conditions(get('tj', name))}")
        self.say(f"{time.monotonic() - self._began:.0f} s after the names went: {found}")

    def await_back(self, name: str, servers: int = 2) -> None:
        took = self.await_members(name, BACK_SECONDS, servers=servers)
        self.trains(name)
        self.say(f"{name}: whole {took:.0f} s later")

    def assert_nothing_counted(self, name: str, repeated: int = 0) -> None:
        status = self.finish_job(name, repeated)
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0, status)

    def test_a_job_starts_when_names_are_back(self) -> None:
        self.begin_outage()
        self.apply_job("early")
        self.await_told("early", "servers 0 of 2")
        self.end_outage()
        self.await_back("early")
        self.assert_nothing_counted("early")

    def test_a_job_grows_when_names_are_back(self) -> None:
        self.start_job("grows", servers=PAIR, restart=QUICK)
        self.trains("grows")
        self.begin_outage()
        must(kubectl("scale", "tj/grows", "--replicas=4"))
        self.await_told("grows", "servers 2 of 4")
        self.trains("grows")
        self.end_outage()
        self.await_back("grows", servers=4)
        self.assert_nothing_counted("grows")

    def replace_without_names(self, name: str, pod: str, missing: str) -> None:
        self.start_job(name, servers=PAIR, restart=QUICK, sync={"gated": True})
        self.trains(name)
        self.begin_outage()
        uid = self.uids(name)[pod]
        must(kubectl("delete", "pod", pod, "--wait=false"))
        wait_until(lambda: self.uids(name).get(pod, uid) != uid, TOLD_SECONDS + 30, f"another {pod}")
        self.await_told(name, missing)
        self.end_outage()
        self.await_back(name)
        self.assert_nothing_counted(name)

    def test_a_server_is_replaced_when_names_are_back(self) -> None:
        self.replace_without_names("shelved", "shelved-server-1", "servers 1 of 2")

    def test_a_worker_is_replaced_when_names_are_back(self) -> None:
        self.replace_without_names("idle", "idle-worker-1", "workers 1 of 2")

    def test_a_coordinator_is_found_when_names_are_back(self) -> None:
        self.replace_without_names("headless", "headless-coordinator", "coordinator not ready")

    def test_an_operator_starts_without_names(self) -> None:
        self.expected_trouble = ["connection", "lease"]
        self.start_job("alone", servers=PAIR)
        self.begin_outage()
        before = get("lease", "-n", SYSTEM, "pushpull")["spec"]["leaseTransitions"]
        self.kill_operator()
        wait_until(lambda: get("lease", "-n", SYSTEM, "pushpull")["spec"]["leaseTransitions"] > before, TOLD_SECONDS, "another one leads")
        must(kubectl("scale", "tj/alone", "--replicas=3"))
        wait_until(lambda: "alone-server-2" in self.pods("alone"), TOLD_SECONDS, "it acts")
        self.trains("alone")
        self.end_outage()
        self.await_back("alone", servers=3)
        self.assert_nothing_counted("alone")
        wait_until(lambda: get("deployment", "-n", SYSTEM, "pushpull")["status"].get("readyReplicas") == 2, 120,
                   "both operators ready")


if __name__ == "__main__":
    unittest.main()
