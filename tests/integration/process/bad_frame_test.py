# SPDX-License-Identifier: Apache-2.0
"""Spoilt frames of a running job: the server closes the connection and counts it, the worker sends
again, and the sums are right (the probe worker compares every value of every step).
"""
import unittest

import faulty_network
import frames
import job

ROUNDS = 3
REASON_OF = {faulty_network.Fault.WRONG_CHECKSUM: "bad_frame",
             faulty_network.Fault.OVERSIZED: "bad_frame",
             faulty_network.Fault.TRUNCATED: "connection_lost"}


class BadFrameTest(job.JobTestCase):

    def test_spoilt_frame_costs_its_connection_and_nothing_else(self) -> None:
        for fault, reason in REASON_OF.items():
            with self.subTest(fault=fault):
                started = faulty_network.FaultyJob(self, "--steps", 200, "--values", 10_000,
                                                   "--step-milliseconds", 5)

                before = started.errors(reason)
                for _ in range(ROUNDS):
                    started.network.inject(fault)
                job.wait_until(lambda: started.errors(reason) >= before + ROUNDS, 10,
                               f"{ROUNDS} more errors {reason}")
                ends = started.wait_for_workers(30)
                started.stop()

                self.assertEqual(ends, [0, 0], started.output)
                self.wait_until_gone(5)

    def test_values_return_with_their_gradients_priorities(self) -> None:
        started = faulty_network.FaultyJob(self, "--steps", 20, "--values", 1000)

        ends = started.wait_for_workers(30)
        started.stop()

        self.assertEqual(ends, [0, 0], started.output)
        asked = started.network.priorities(frames.PUSH_PULL)
        self.assertEqual({priority for _, priority in asked}, {0, 1, 2})
        self.assertEqual(started.network.priorities(frames.PUBLISHED), asked)


if __name__ == "__main__":
    unittest.main()
