# SPDX-License-Identifier: Apache-2.0
"""Ports that are taken, peers that are not there, and bytes that nobody asked for."""
import errno
import random
import socket
import struct
import unittest

import frames
import job

SEED = 20260
CONNECTION_SECONDS = 10.0


def sum_of_errors(started: job.LocalJob) -> float:
    series = started.metrics("server", 0)
    return sum(value for name, value in series.items() if name.startswith("pushpull_errors_total"))


class AddressTest(job.JobTestCase):

    def test_server_names_port_in_use(self) -> None:
        listener, address = job.taken_port()
        self.addCleanup(listener.close)

        server = self.start(job.PUSHPULL, "server", "--job", "x", "--index", 0, "--coordinator",
                            job.closed_port(), "--listen", address, "--metrics", "127.0.0.1:0")

        self.assertEqual(server.wait(20), 3, server.output)
        self.assertIn(address, server.output)

    def test_server_names_metrics_port_in_use(self) -> None:
        listener, address = job.taken_port()
        self.addCleanup(listener.close)

        server = self.start(job.PUSHPULL, "server", "--job", "x", "--index", 0, "--coordinator",
                            job.closed_port(), "--listen", "127.0.0.1:0", "--metrics", address)

        self.assertEqual(server.wait(20), 3, server.output)
        self.assertIn(address, server.output)

    def start_server(self, *flags: object) -> job.Program:
        return self.start(job.PUSHPULL, "server", "--job", "x", "--index", 0, "--coordinator",
                          job.closed_port(), "--metrics", "127.0.0.1:0", *flags)

    def test_server_on_every_address_must_say_where_it_is(self) -> None:
        for flags in ([], ["--listen", "0.0.0.0:0"], ["--listen", "[::]:0"]):
            with self.subTest(flags=flags):
                server = self.start_server(*flags)

                self.assertEqual(server.wait(20), 2, server.output)
                self.assertRegex(server.output, r"^pushpull: --listen .* --advertise HOST[^\n]*$")

    def test_server_on_every_address_is_where_it_says(self) -> None:
        server = self.start_server("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1")

        server.wait_for_line(r"listening .*data=127\.0\.0\.1:\d+")

    def test_coordinator_names_port_in_use(self) -> None:
        listener, address = job.taken_port()
        self.addCleanup(listener.close)
        manifest = self.write_manifest(self.spec())

        coordinator = self.start(job.PUSHPULL, "coordinator", "--manifest", manifest, "--listen",
                                 address, "--metrics", "127.0.0.1:0")

        self.assertEqual(coordinator.wait(20), 3, coordinator.output)
        self.assertIn(address, coordinator.output)

    def test_status_names_coordinator_that_is_not_there(self) -> None:
        address = job.closed_port()

        status = self.start(job.PUSHPULL, "status", "--coordinator", address)

        self.assertEqual(status.wait(20), 3, status.output)
        self.assertIn(address, status.output)

    def test_server_names_coordinator_that_is_not_there(self) -> None:
        address = job.closed_port()

        server = self.start(job.PUSHPULL, "server", "--job", "x", "--index", 0, "--coordinator",
                            address, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                            "--start-timeout-seconds", 1)

        self.assertEqual(server.wait(40), 3, server.output)
        self.assertIn(address, server.output)
        self.assertIn("no coordinator yet, trying again", server.output)

    def test_worker_names_coordinator_that_is_not_there(self) -> None:
        address = job.closed_port()

        worker = self.start(job.PROBE, "--join-seconds", 1, environment={
            "PUSHPULL_JOB": "x", "PUSHPULL_ROLE": "worker", "PUSHPULL_INDEX": "0",
            "PUSHPULL_COORDINATOR": address, "PUSHPULL_METRICS_PORT": "0"})

        self.assertNotEqual(worker.wait(40), 0, worker.output)
        self.assertIn(address, worker.output)

    def test_status_of_folder_without_job_names_it(self) -> None:
        status = self.start(job.PUSHPULL, "status", "--workdir", self.folder / "nothing")

        self.assertEqual(status.wait(20), 3, status.output)
        self.assertIn("nothing", status.output)


class NoiseTest(job.JobTestCase):

    def send(self, address: str, noise: bytes) -> None:
        """Sends all of it, or as much as the other side takes before it closes."""
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), CONNECTION_SECONDS) as connection:
            try:
                connection.sendall(noise)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            except OSError as closed:
                # Whichever call comes after the other side's close meets it in its own way.
                if closed.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                    raise

    def noises(self) -> list[bytes]:
        chance = random.Random(SEED)
        noise = [chance.randbytes(size) for size in (1, 127, 128, 129, 4096, 200_000)]
        # A length of 4 GiB - 1 wherever a reader might look for one.
        noise += [struct.pack("<I", 0xFFFFFFFF) * (frames.HEADER_BYTES // 4),
                  b"\0" * frames.HEADER_BYTES]
        # Oversized, cut off after the header, cut off within it, and a push before any hello.
        noise += [frames.new_header(frames.HELLO, 64, 0xFFFFFFFF),
                  frames.new_header(frames.HELLO, 0xFFFF, 0),
                  frames.new_header(frames.HELLO, 64, 0),
                  frames.new_header(frames.HELLO, 64, 0)[:100],
                  frames.new_header(frames.PUSH, 0, 1000) + chance.randbytes(1000)]
        noise += [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(99)]
        return noise

    def test_job_ends_well_whatever_arrives_on_its_ports(self) -> None:
        started = self.run_job(self.spec("--steps", 800, "--step-milliseconds", 50))
        started.wait_for_step(3)
        server = started.endpoint("server")
        coordinator = started.endpoint("coordinator")
        assert server is not None and coordinator is not None

        for noise in self.noises():
            for address in (server["data"], server["metrics"], coordinator["control"],
                            coordinator["metrics"]):
                self.send(address, noise)
        counted = sum_of_errors(started)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        self.assertGreaterEqual(counted, len(self.noises()))
        self.assertEqual(started.report()["restarts"], 0)
        self.assertEqual(started.report()["steps"], 800)


if __name__ == "__main__":
    unittest.main()
