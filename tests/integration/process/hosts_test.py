# SPDX-License-Identifier: Apache-2.0
"""Roles started one by one on several hosts, as docs/by-hand.md says; network namespaces are the hosts.

    ns 0: coordinator, server-0      ns 1: server-1, worker-0      ns 2: worker-1

The namespaces hang on one bridge, which lives in the first of them, so that nothing of this machine's
own network changes.
"""
import os
import shutil
import signal
import subprocess
import unittest

import job

NETWORK = "10.213.77"  # in the namespaces only


def why_not() -> str:
    """Why namespaces cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    name = f"pp{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


class HostsTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        reason = why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = [f"pp{self.tag[:8]}{index}" for index in range(3)]
        # Takes the names away; a namespace itself goes with the last process in it.
        self.addCleanup(self.delete_hosts)
        for host in self.hosts:
            self.ip("netns", "add", host)
            self.ip("-n", host, "link", "set", "lo", "up")
        self.ip("-n", self.hosts[0], "link", "add", "bridge", "type", "bridge")
        self.ip("-n", self.hosts[0], "link", "set", "bridge", "up")
        self.ip("-n", self.hosts[0], "addr", "add", f"{NETWORK}.1/24", "dev", "bridge")
        for index, host in enumerate(self.hosts[1:], start=1):
            self.ip("-n", host, "link", "add", "eth0", "type", "veth", "peer", "name",
                    f"port{index}", "netns", self.hosts[0])
            self.ip("-n", self.hosts[0], "link", "set", f"port{index}", "master", "bridge", "up")
            self.ip("-n", host, "addr", "add", f"{NETWORK}.{index + 1}/24", "dev", "eth0")
            self.ip("-n", host, "link", "set", "eth0", "up")

    def delete_hosts(self) -> None:
        for host in self.hosts:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=20)

    def start_on(self, host: int, *command: object, **environment: str) -> job.Program:
        return self.start("ip", "netns", "exec", self.hosts[host], *command,
                          environment=environment)

    def start_worker(self, host: int, index: int) -> job.Program:
        return self.start_on(host, job.PROBE, "--steps", 200,
                             PUSHPULL_JOB=self.job_name, PUSHPULL_ROLE="worker",
                             PUSHPULL_INDEX=str(index), PUSHPULL_COORDINATOR=f"{NETWORK}.1:7170",
                             PUSHPULL_METRICS_PORT="0")

    def start_server(self, host: int, index: int) -> job.Program:
        address = f"{NETWORK}.{host + 1}"
        return self.start_on(host, job.PUSHPULL, "server", "--job", self.job_name, "--index", index,
                             "--coordinator", f"{NETWORK}.1:7170", "--listen", f"{address}:7171",
                             "--metrics", f"{address}:9464")

    def test_roles_started_one_by_one_train_together(self) -> None:
        manifest = self.write_manifest(self.spec("--steps", 200))
        coordinator = self.start_on(0, job.PUSHPULL, "coordinator", "--manifest", manifest,
                                    "--listen", f"{NETWORK}.1:7170", "--metrics",
                                    f"{NETWORK}.1:9465")
        coordinator.wait_for_line("listening")
        servers = [self.start_server(host, host) for host in range(2)]
        for server in servers:
            server.wait_for_line("registered")

        workers = [self.start_worker(1, 0), self.start_worker(2, 1)]
        ends = [worker.wait(60) for worker in workers]
        # One after the other: a server that hears first of the coordinator's orderly end exits with 0.
        stopped = []
        for role in (*servers, coordinator):
            os.kill(role.pid, signal.SIGTERM)
            stopped.append(role.wait(15))

        printed = "\n".join(p.output for p in (coordinator, *servers, *workers))
        self.assertEqual(ends, [0, 0], printed)
        self.assertEqual(stopped, [143, 143, 143], printed)
        self.wait_until_gone(5)


if __name__ == "__main__":
    unittest.main()
