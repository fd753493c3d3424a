# SPDX-License-Identifier: Apache-2.0
"""A server's memory: what it must hold, one step's sum, and a constant; and that for ever, whatever
arrives.
"""
import os
import signal
import unittest

import faulty_network
import job

MIB = 1 << 20
SERVERS = 2
TENSORS = 4
TENSOR_BYTES = 512 * 1024
PARAMETER_BYTES = TENSORS * TENSOR_BYTES  # of all servers together
ADAM_STATE_PER_PARAMETER = 2
SLACK_BYTES = 48 * MIB
GROWTH_BYTES_MAX = 2 * MIB
STEPS_SECONDS = 120.0
# Each leaves a chunk half done. One chunk, so that nothing is sent again that the server has: of that it drops
# what comes, unread.
CHUNK_BYTES = 256 * 1024
WARM_UP_ROUNDS = 3
ROUNDS = 10


def anonymous_memory(pid: int) -> int:
    """Bytes that are resident and of no file."""
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no RssAnon")


class MemoryTest(job.JobTestCase):

    def memory_at(self, started: job.LocalJob, step: int) -> list[int]:
        started.wait_for_step(step, STEPS_SECONDS)
        entries = [started.endpoint("server", index) for index in range(SERVERS)]
        return [anonymous_memory(entry["pid"]) for entry in entries if entry is not None]

    def test_server_holds_state_and_one_sum_and_does_not_grow(self) -> None:
        started = self.run_job(
            self.spec("--steps", job.LONG_JOB_STEPS, "--optimizer", "adam", "--tensors", TENSORS,
                      "--values", TENSOR_BYTES // 4, servers=SERVERS))

        early = self.memory_at(started, 1000)
        late = self.memory_at(started, 3000)
        owned = [server["bytes"] for server in started.status()["servers"]]
        os.kill(started.launcher.pid, signal.SIGINT)
        code = started.launcher.wait(15)

        self.assertEqual(code, 130, started.launcher.output)
        self.assertEqual(sum(owned), PARAMETER_BYTES)
        for server in range(SERVERS):
            with self.subTest(server=server, early=early, late=late, owned=owned):
                # Parameters, optimizer state, one accumulator.
                held = owned[server] * (1 + ADAM_STATE_PER_PARAMETER + 1)
                self.assertLessEqual(early[server], held + SLACK_BYTES)
                self.assertLessEqual(late[server], early[server] + GROWTH_BYTES_MAX)

    def test_server_does_not_grow_by_spoilt_frames(self) -> None:
        started = faulty_network.FaultyJob(self, "--steps", job.LONG_JOB_STEPS, "--tensors", 1,
                                           "--values", CHUNK_BYTES // 4)
        memory = []

        for rounds in (WARM_UP_ROUNDS, ROUNDS):
            for _ in range(rounds):
                for fault in faulty_network.ENDING:
                    started.network.inject(fault)
            memory.append(anonymous_memory(started.server.pid))

        self.assertLessEqual(memory[1], memory[0] + GROWTH_BYTES_MAX)
        self.assertEqual([worker.process.poll() for worker in started.workers], [None, None],
                         started.output)


if __name__ == "__main__":
    unittest.main()
