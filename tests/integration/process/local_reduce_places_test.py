# SPDX-License-Identifier: Apache-2.0
"""Workers that push together over every channel, and on machines and racks of `pushpull run --topology`."""
import json
import os
import unittest
import unittest.mock
from typing import Any

import hosts_test
import job
import local_reduce_test
import rack_test
import tls_test


class ChannelsTest(local_reduce_test.LocalReduceCase):

    def check_channel(self, **variables: str) -> None:
        started = self.run_with(self.adding_job("Host", "weights", workers=2), **variables)
        started.wait_for_step(5)

        gradients = local_reduce_test.Received(started, 2).gradients_a_step(1.3)
        self.assert_ends_well(started)

        self.assertGreaterEqual(gradients, 0.9)
        self.assertTrue(self.weights("weights") == self.reference(workers=2))

    def test_a_group_trains_over_tls(self) -> None:
        certificates = self.folder / "member"
        tls_test.Authority(self.folder / "authority").issue(certificates, days=1)
        with unittest.mock.patch.dict(os.environ, PUSHPULL_TLS_DIR=str(certificates)):
            self.check_channel(PUSHPULL_TLS_DIR=str(certificates))

    def test_a_group_trains_over_other_channels(self) -> None:
        for channel in ("tcp", "grpc"):
            with self.subTest(channel=channel):
                self.check_channel(PUSHPULL_CHANNEL=channel)


class PlacesTest(job.JobTestCase):
    """Groups by machine and by rack: `pushpull run --topology`, on network namespaces."""

    def setUp(self) -> None:
        super().setUp()
        reason = hosts_test.why_not()
        if reason:
            self.skipTest(reason)

    def run_on(self, topology: dict[str, Any], by: str, servers: int, **workers: Any) -> job.LocalJob:
        file = self.folder / "topology.yaml"
        file.write_text(json.dumps(topology), encoding="utf-8")
        spec = self.spec("--steps", local_reduce_test.STEPS, "--step-milliseconds", 100, "--optimizer", "sum",
                         "--tensors", local_reduce_test.TENSORS,
                         "--values", local_reduce_test.VALUES, servers=servers, workers=4, sync={"localReduce": by},
                         restart={"backoffLimit": 0})
        spec["workers"].update(workers)
        started = self.run_job(spec, "--topology", file, name=f"{self.job_name}-{by.lower()}")
        started.wait_for_step(5)
        return started

    def check_gradients(self, started: job.LocalJob, servers: int, expected: int) -> None:
        gradients = local_reduce_test.Received(started, servers).gradients_a_step(1.2 * expected)
        code = started.finish()

        self.assertGreaterEqual(gradients, 0.9 * expected)
        self.assertEqual(code, 0, started.launcher.output)  # the probe has compared every sum

    def test_workers_of_a_rack_push_together(self) -> None:
        for by, expected in (("Rack", 2), ("Host", 4)):
            with self.subTest(by=by):
                # Every machine has one worker.
                started = self.run_on(rack_test.TWO_RACKS, by, 4, **rack_test.RACKS)

                self.check_gradients(started, 4, expected)

    def test_workers_of_a_machine_push_together(self) -> None:
        topology = {**rack_test.TWO_RACKS, "name": "two machines",
                    "machine": {"gpus": 2, "pcie": {"bandwidth": "16GB/s"}, "nics": [{"bandwidth": "40Gb/s"}]},
                    "cluster": {"workers": 2, "servers": 2}}

        started = self.run_on(topology, "Host", 2)

        self.check_gradients(started, 2, expected=2)


if __name__ == "__main__":
    unittest.main()
