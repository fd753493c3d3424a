# SPDX-License-Identifier: Apache-2.0
"""Jobs whose members know each other by certificates, which change while they run."""
import os
import pathlib
import socket
import ssl
import subprocess
import unittest
import unittest.mock

import job

EXPIRY = "pushpull_certificate_expiry_timestamp_seconds"
# A process looks at its certificates every five seconds.
ROTATION_SECONDS = 30.0


class Authority:
    """Signs for the members of one job. What it issues is valid from so many minutes before."""

    def __init__(self, folder: pathlib.Path, minutes_early: int = 0) -> None:
        folder.mkdir()
        self._folder = folder
        self._minutes_early = minutes_early
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", f"/CN={folder.name}", "-days", 2, "-keyout", self._key, "-out",
                      self.certificate)

    def issue(self, into: pathlib.Path, days: int, *more_names: str) -> None:
        """The three files of a member, in a new folder."""
        names = ",".join(f"DNS:{name}" for name in ("pushpull", *more_names))
        into.mkdir()
        request = into / "request"
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                      "/CN=member", "-addext", f"subjectAltName={names}", "-keyout", into / "tls.key",
                      "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
                      "-CAcreateserial", "-copy_extensions", "copy", "-days", days, "-out", into / "tls.crt")
        (into / "ca.crt").write_bytes(self.certificate.read_bytes())
        request.unlink()

    def _openssl(self, *words: object) -> None:
        early = ["faketime", "-f", f"-{self._minutes_early}m"] if self._minutes_early else []
        subprocess.run([*early, "openssl", *(str(word) for word in words)], check=True, capture_output=True, timeout=60)


class TlsTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.authority = Authority(self.folder / "authority")
        self.certificates = self.new_member("member", self.authority)
        # For the commands that tests run beside the job.
        named = unittest.mock.patch.dict(os.environ, PUSHPULL_TLS_DIR=str(self.certificates))
        named.start()
        self.addCleanup(named.stop)

    def new_member(self, name: str, authority: Authority, *more_names: str) -> pathlib.Path:
        """A folder as Kubernetes makes it: links to what is behind one link."""
        folder = self.folder / name
        folder.mkdir()
        authority.issue(folder / "..1", 1, *more_names)
        (folder / "..data").symlink_to("..1")
        for file in ("ca.crt", "tls.crt", "tls.key"):
            (folder / file).symlink_to(f"..data/{file}")
        return folder

    def swap(self, version: str) -> None:
        (self.certificates / "..next").symlink_to(version)
        (self.certificates / "..next").rename(self.certificates / "..data")

    def run_over_tls(self, spec: dict) -> job.LocalJob:
        manifest = self.write_manifest(spec)
        workdir = self.folder / "workdir"
        report = self.folder / "report.json"
        launcher = self.start(job.PUSHPULL, "run", manifest, "--workdir", workdir, "--report",
                              report, "--progress", "none",
                              environment={"PUSHPULL_TLS_DIR": str(self.certificates)})
        return job.LocalJob(launcher, workdir, report, self.folder / "let-go")

    def start_server(self, coordinator: str, **environment: str) -> job.Program:
        """One more, that is not asked for."""
        return self.start(job.PUSHPULL, "server", "--job", self.job_name, "--index", 0,
                          "--coordinator", coordinator, "--listen", "127.0.0.1:0", "--metrics",
                          "127.0.0.1:0", "--start-timeout-seconds", 5, environment=environment)

    def assert_shuts_out(self, address: str, folder: pathlib.Path) -> None:
        """A client that trusts everybody is told that nobody trusts it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            # Which call meets the refusal, and whether as an alert or as a reset, is the network's.
            with self.assertRaises(OSError):
                with context.wrap_socket(connection) as stranger:
                    if not stranger.recv(1):
                        raise ConnectionResetError("closed")

    def test_ring_of_workers_trains_over_tls(self) -> None:
        started = self.run_over_tls(self.spec("--steps", 100, "--values", 100000, "--optimizer", "sum", servers=0, workers=3,
                                              sync={"mode": "AllReduce"}))

        self.assertEqual(started.finish(), 0, started.launcher.output)
        self.assertEqual(started.report()["restarts"], 0)

    def test_certificates_rotate_and_strangers_stay_out(self) -> None:
        steps = 3000
        started = self.run_over_tls(self.spec("--steps", steps, "--step-milliseconds", 50))
        started.wait_for_step(3)
        roles = [("coordinator", 0), ("server", 0), ("server", 1), ("worker", 0), ("worker", 1)]
        before = {role: started.metrics(*role)[EXPIRY] for role in roles}
        coordinator = started.endpoint("coordinator")["control"]

        stranger = self.new_member("stranger", Authority(self.folder / "another"))
        refused = [self.start_server(coordinator, PUSHPULL_TLS_DIR=str(stranger)),
                   self.start_server(coordinator)]
        for address in (coordinator, started.endpoint("server")["data"]):
            self.assert_shuts_out(address, stranger)
        self.authority.issue(self.certificates / "..2", 2)
        self.swap("..2")
        job.wait_until(lambda: all(started.metrics(*role)[EXPIRY] > before[role] for role in roles),
                       ROTATION_SECONDS, "the new certificates in use everywhere")
        # Everybody connects to a member that comes now, with new ones on both sides.
        scaled = started.scale(3, "--wait")
        codes = [server.wait(60) for server in refused]
        code = started.finish()

        self.assertEqual(scaled.returncode, 0, scaled.stderr)
        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["steps"], steps)
        for server in refused:
            self.assertRegex(server.output, rf"coordinator at {coordinator}: .*PUSHPULL_TLS_DIR")
        self.assertEqual(codes, [3, 3], [server.output for server in refused])
        self.assertRegex(started.launcher.output,
                         r"server-0 .*peer without this job's certificates refused")
        self.assertNotIn("PRIVATE KEY", started.launcher.output)

    def test_workers_certificate_opens_nothing_else(self) -> None:
        steps = 1000
        started = self.run_over_tls(self.spec("--steps", steps, "--step-milliseconds", 5))
        started.wait_for_step(3)
        coordinator = started.endpoint("coordinator")["control"]
        name = f"worker-7.{self.job_name}.default.pushpull"
        worker = str(self.new_member("worker-7", self.authority, name))
        as_worker = {"PUSHPULL_TLS_DIR": worker}

        with unittest.mock.patch.dict(os.environ, as_worker):
            refused = [started.scale(3), started.set("mode=Async"),
                       job.run_command("checkpoint", "now", "--coordinator", coordinator)]
            status = started.status()
        server = self.start_server(coordinator, **as_worker)
        another = self.start(job.PROBE, "--steps", 1, environment={
            **as_worker, "PUSHPULL_JOB": self.job_name, "PUSHPULL_ROLE": "worker",
            "PUSHPULL_INDEX": "0", "PUSHPULL_COORDINATOR": coordinator})
        codes = [server.wait(60), another.wait(60)]
        code = started.finish()

        for command in refused:
            self.assertNotEqual(command.returncode, 0, command.stdout)
            self.assertRegex(command.stderr, f"certificate of {name} may not .*TrainingJob")
        self.assertEqual(status["phase"], "Running", status)
        for member, whose in ((server, "server-0"), (another, "worker-0")):
            self.assertRegex(member.output, f"certificate of {name} is not that of {whose}")
        self.assertNotIn(0, codes)
        self.assertEqual(code, 0, started.launcher.output)
        self.assertEqual(started.report()["steps"], steps)

    def test_unusable_certificate_files_are_named_at_start(self) -> None:
        (self.certificates / "tls.key").unlink()

        started = self.run_over_tls(self.spec("--steps", 1))

        self.assertEqual(started.launcher.wait(30), 3, started.launcher.output)
        self.assertRegex(started.launcher.output, r"PUSHPULL_TLS_DIR .*tls\.key")


if __name__ == "__main__":
    unittest.main()
