# SPDX-License-Identifier: Apache-2.0
"""Jobs whose members are in racks: `pushpull run --topology`, on network namespaces."""
import json
import signal
import unittest
from typing import Any

import hosts_test
import job

# Links so fast that no step waits for one of them.
TWO_RACKS = {
    "apiVersion": "pushpull.dev/v1alpha1", "kind": "Topology", "name": "two racks",
    "machine": {"nics": [{"bandwidth": "40Gb/s"}]},
    "cluster": {"racks": [{"workers": 2, "servers": 2, "uplink": "10Gb/s"}] * 2}}
RACKS = {"topologyKey": "topology.kubernetes.io/rack"}


class RackTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        reason = hosts_test.why_not()
        if reason:
            self.skipTest(reason)
        self.topology = self.folder / "topology.yaml"
        self.topology.write_text(json.dumps(TWO_RACKS), encoding="utf-8")

    def run_in_racks(self, spec: dict[str, Any], *flags: Any) -> job.LocalJob:
        spec["workers"].update(RACKS)
        return self.run_job(spec, "--topology", self.topology, *flags)

    def test_replicas_survive_the_loss_of_a_rack(self) -> None:
        spec = self.long_spec(servers=4)
        spec["servers"]["replication"] = 1
        spec["restart"] = {"backoffLimit": 10, "initialDelaySeconds": 0}
        started = self.run_in_racks(spec)
        started.wait_for_step(3)
        before = job.wait_until(lambda: (lambda status: status if status.get("shards_moving") == 0 else None)(started.status()),
                                job.START_SECONDS, "all replicas are there")

        for server in (0, 2):
            started.signal_member("server", server, signal.SIGKILL)
        started.wait_for_step(before["step"] + 20)

        after = started.status()
        self.assertEqual([server["rack"] for server in before["servers"]], ["rack-0", "rack-1"] * 2)
        self.assertEqual([worker["rack"] for worker in before["workers"]], ["rack-0", "rack-1"])
        self.assertEqual(before["shards_in_one_rack"], 0)
        self.assertEqual(after["state_losses"], [], started.launcher.output)

    def test_workers_of_racks_get_the_sums_of_all(self) -> None:
        for workers in (3, 4):
            with self.subTest(workers=workers):
                spec = self.spec("--steps", 50, "--optimizer", "sum", servers=0, workers=workers, sync={"mode": "AllReduce"})
                spec["workers"].update(RACKS)
                started = self.run_job(spec, "--topology", self.topology, name=f"{self.job_name}-{workers}")

                code = started.finish()

                self.assertEqual(code, 0, started.launcher.output)
                self.assertEqual(started.report()["restarts"], 0)

    def test_racks_are_not_looked_at_without_the_field(self) -> None:
        started = self.run_job(self.long_spec(), "--topology", self.topology)
        started.wait_for_step(3)

        self.assertEqual({member["rack"] for member in started.status()["servers"]}, {""})

    def test_topology_without_enough_places_is_refused(self) -> None:
        started = self.run_in_racks(self.spec("--steps", 1, workers=5))

        self.assertEqual(started.finish(), 2)
        self.assertIn("spec.workers.replicas: is 5, the topology has places for 4", started.launcher.output)


if __name__ == "__main__":
    unittest.main()
