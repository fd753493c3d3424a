# SPDX-License-Identifier: Apache-2.0
"""The API server is away while a job is scaled, and the operator is upgraded while one trains."""
import threading
import time
import unittest

import nodes
from api_server import CLUSTER, run, wait_until
from nodes import SYSTEM, NodeCase, cluster, get, kubectl, must

AWAY_SECONDS = 60
# How long kube-proxy may take to reconnect: clients of an API server that is away look less and less often, up to once
# a minute, and again a minute later if it is not all there then.
PROXY_SECONDS = 180


def is_reached_by_pods() -> bool:
    """The service `kubernetes`, by whose address pods know the API server, from every node."""
    address = get("service", "kubernetes")["spec"]["clusterIP"]
    return all(run(CLUSTER, "net", node, "curl", "-sk", "-m", "2", f"https://{address}/readyz").stdout == "ok"
               for node in range(1, nodes.COUNT + 1))


class AbsenceTest(NodeCase):

    def test_scaling_is_finished_after_the_api_server_was_away(self) -> None:
        # What goes on while it is away; who leads gives up.
        self.expected_trouble = ["API server .*: (cannot connect|no answer within the deadline)", "lost the lease",
                                 "watch failed"]
        self.start_job("orphan", epochs=1500)
        workers = self.uids("orphan", "worker")
        must(kubectl("scale", "tj/orphan", "--replicas=4"))
        cluster("cp", "stop", "kube-apiserver")
        begin = time.monotonic()
        try:
            threading.Event().wait(AWAY_SECONDS)
        finally:
            cluster("cp", "start", "kube-apiserver")
            cluster("cp", "wait")
        begin_of_return = time.monotonic()
        wait_until(is_reached_by_pods, PROXY_SECONDS, "pods reach the API server")
        back = time.monotonic()
        self.say(f"reached by pods {back - begin_of_return:.1f} s after it answers")
        wait_until(lambda: len(self.pods("orphan", "server")) == 4, 60, "two more pods of servers")
        self.say(f"away for {begin_of_return - begin:.0f} s; pods made {time.monotonic() - back:.1f} s later")
        self.await_members("orphan", 90, servers=4)
        self.say(f"scaled {time.monotonic() - back:.1f} s after it was back")
        self.assertEqual(len(self.pods("orphan")), 7)
        self.assertEqual(self.uids("orphan", "worker"), workers)
        status = self.finish_job("orphan")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)

    def test_upgrade_of_the_operator_touches_no_pod(self) -> None:
        self.start_job("upgraded")
        before, epoch = self.uids("upgraded"), self.status("upgraded")["ring"]["epoch"]
        operators = {pod["metadata"]["name"] for pod in get("pods", "-n", SYSTEM)["items"]}
        nodes.install_operator("operator.logLevel=debug")
        self.addCleanup(nodes.install_operator)
        must(kubectl("rollout", "status", "-n", SYSTEM, "deployment/pushpull", "--timeout=60s"))
        self.assertTrue(operators.isdisjoint(pod["metadata"]["name"] for pod in get("pods", "-n", SYSTEM, "--field-selector=status.phase=Running")["items"]
                                             if "deletionTimestamp" not in pod["metadata"]))
        self.trains("upgraded", steps=50)
        self.assertEqual(self.uids("upgraded"), before)
        self.assertEqual(self.status("upgraded")["ring"]["epoch"], epoch)
        status = self.finish_job("upgraded")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)


if __name__ == "__main__":
    unittest.main()
