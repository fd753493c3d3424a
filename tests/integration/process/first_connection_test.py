# SPDX-License-Identifier: Apache-2.0
"""Members that start before their coordinator can be reached: its name is unknown, its port is closed, connections are cut."""
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import unittest
from typing import Any

import job

NAME = "coordinator.pushpull-test"
NOBODY = "127.53.53.53"  # a loopback address without a name server
WAITS = "no coordinator yet, trying again"
# Runs a program whose names are those of two files of this test, and no others.
WITH_NAMES = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && exec "$@"'


class CuttingPort:
    """Takes connections at an address and cuts each of them. Use as a context."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.cut = 0
        self._listener = socket.create_server((host, int(port)))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.close()
            self.cut += 1

    def __enter__(self) -> "CuttingPort":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()


class FirstConnectionTest(job.JobTestCase):

    def start_coordinator(self, address: str) -> job.Program:
        manifest = self.write_manifest(self.spec("--steps", 20, servers=1, workers=1))
        return self.start(job.PUSHPULL, "coordinator", "--manifest", manifest, "--listen", address,
                          "--metrics", "127.0.0.1:0")

    def start_members(self, coordinator: str, *before: Any) -> tuple[job.Program, job.Program]:
        """A server and a worker, each with the words `before` in front of its program."""
        server = self.start(*before, job.PUSHPULL, "server", "--job", self.job_name, "--index", 0,
                            "--coordinator", coordinator, "--listen", "127.0.0.1:0", "--metrics",
                            "127.0.0.1:0")
        worker = self.start(*before, job.PROBE, "--steps", 20, environment={
            "PUSHPULL_JOB": self.job_name, "PUSHPULL_ROLE": "worker", "PUSHPULL_INDEX": "0",
            "PUSHPULL_COORDINATOR": coordinator, "PUSHPULL_METRICS_PORT": "0"})
        return server, worker

    def test_port_that_is_closed_then_cuts_then_serves(self) -> None:
        address = job.closed_port()
        server, worker = self.start_members(address)
        server.wait_for_line(WAITS)
        worker.wait_for_line(WAITS)
        with CuttingPort(address) as port:
            job.wait_until(lambda: port.cut >= 4, 20, "connections that were cut")

        self.start_coordinator(address)

        self.assertEqual(worker.wait(60), 0, self.output())

    def test_name_that_is_unknown_at_first(self) -> None:
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            self.skipTest("names of a program's own need root and unshare")
        hosts, resolver = self.folder / "hosts", self.folder / "resolv.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        resolver.write_text(f"nameserver {NOBODY}\noptions timeout:1 attempts:1\n")
        words = ("unshare", "--mount", "sh", "-c", WITH_NAMES, "sh", hosts, resolver)
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mount namespaces here")
        address = job.closed_port()
        coordinator = self.start_coordinator(address)
        coordinator.wait_for_line("listening")
        server, worker = self.start_members(f"{NAME}:{address.rpartition(':')[2]}", *words)
        for member in (server, worker):
            member.wait_for_line(f"{WAITS}.*DNS resolution failed for {NAME}")

        with pathlib.Path(hosts).open("a") as names:
            names.write(f"127.0.0.1 {NAME}\n")

        self.assertEqual(worker.wait(60), 0, self.output())


if __name__ == "__main__":
    unittest.main()
