# SPDX-License-Identifier: Apache-2.0
"""Servers beside workers, as the containers of a pod are: each pair has a folder of shared memory that
nobody else has.
"""
import pathlib
import tempfile
import unittest
from typing import Any

import job

FIRST_COLOCATED = 1024


def pushed(metrics: dict[str, float], channel: str) -> float:
    return metrics[f'pushpull_push_bytes_total{{channel="{channel}"}}']


class ColocatedTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        memory = tempfile.TemporaryDirectory(prefix="pushpull-test-", dir="/dev/shm")
        self.addCleanup(memory.cleanup)
        self.memory = pathlib.Path(memory.name)
        # A tensor of six chunks: every server gets some.
        spec = self.spec("--samples", 1_500_000, "--epochs", 8, "--batch", 20_000,
                         "--step-milliseconds", 200, servers=1, workers=2)
        spec["workers"]["colocatedServer"] = True
        self.program = spec["command"]
        self.coordinator = self.start(
            job.PUSHPULL, "coordinator", "--manifest", self.write_manifest(spec), "--listen",
            "127.0.0.1:0", "--metrics", "127.0.0.1:0")
        self.address = self.coordinator.wait_for_line(r"listening .*control=(\S+)")[1]

    def pod(self, name: str) -> dict[str, str]:
        """The environment of its containers."""
        folder = self.memory / name
        folder.mkdir(exist_ok=True)
        return {"PUSHPULL_SHM_DIR": str(folder)}

    def start_server(self, index: int, pod: dict[str, str], *flags: Any) -> job.Program:
        return self.start(job.PUSHPULL, "server", "--job", self.job_name, "--index", index,
                          "--coordinator", self.address, "--listen", "127.0.0.1:0", "--metrics",
                          "127.0.0.1:0", *flags, environment=pod)

    def start_pair(self, index: int) -> tuple[job.Program, job.Program]:
        """A worker and the server beside it."""
        pod = self.pod(f"worker-{index}")
        server = self.start_server(FIRST_COLOCATED + index, pod, "--weight", 0.5)
        worker = self.start(*self.program, environment={
            **pod, "PUSHPULL_JOB": self.job_name, "PUSHPULL_ROLE": "worker",
            "PUSHPULL_COORDINATOR": self.address, "PUSHPULL_METRICS_PORT": "0",
            "PUSHPULL_INDEX": str(index)})
        return server, worker

    def command(self, name: str, *words: Any) -> Any:
        done = job.run_command(name, "--coordinator", self.address, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def status(self) -> dict[str, Any]:
        shown = job.run_command("status", "--coordinator", self.address, "--json")
        return job.json.loads(shown.stdout) if shown.returncode == 0 else {}

    def holders(self) -> set[int]:
        """The servers that hold parameters, once nothing moves."""
        status = self.status()
        if not status or status["shards_moving"] > 0:
            return set()
        return {server["index"] for server in status["servers"] if server["bytes"] > 0}

    def wait_for_holders(self, *expected: int) -> None:
        job.wait_until(lambda: self.holders() == set(expected), job.COMMAND_SECONDS,
                       f"parameters on {expected}")

    def test_they_train_and_come_and_go_with_their_workers(self) -> None:
        server = self.start_server(0, self.pod("server-0"))
        server.wait_for_line("listening")
        pairs = [self.start_pair(index) for index in range(2)]
        self.wait_for_holders(0, 1024, 1025)

        with self.subTest("the pair exchanges tensors through memory, others over sockets"):
            metrics = {member["index"]: job.read_metrics(member["metrics"])
                       for member in self.status()["workers"]}
            for index in range(2):
                self.assertGreater(pushed(metrics[index], "shm"), 0)
                self.assertGreater(pushed(metrics[index], "tcp"), 0)

        self.command("scale", "--workers", 3)
        pairs.append(self.start_pair(2))
        self.wait_for_holders(0, 1024, 1025, 1026)

        self.command("scale", "--workers", 2)
        third_server, third_worker = pairs.pop()
        self.assertEqual((third_server.wait(60), third_worker.wait(60)), (0, 0),
                         third_worker.output)
        self.wait_for_holders(0, 1024, 1025)

        self._let_go.touch()
        self.assertEqual([worker.wait(100) for _, worker in pairs], [0, 0])
        results = self.status()
        self.assertEqual(results["phase"], "Succeeded", results)
        self.assertEqual(results["servers_wanted"], 1)
        self.assertEqual([path for path in self.memory.rglob("*") if path.is_file()], [])


if __name__ == "__main__":
    unittest.main()
