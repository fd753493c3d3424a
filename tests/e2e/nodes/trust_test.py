# SPDX-License-Identifier: Apache-2.0
"""Who is not of the job is refused, and the certificates of a job are replaced while it trains."""
import base64
import pathlib
import re
import unittest

import nodes
from api_server import CLUSTER, run, wait_until
from nodes import NodeCase, get

# Replaced after 3/5 of it; kubelets bring the new ones within 90 s.
LIFE_SECONDS = 300
CONTROL, DATA = 7170, 7171
# `timeout` has ended what was still connected then.
STILL_CONNECTED = 124


class TrustTest(NodeCase):

    def certificates(self, job: str) -> pathlib.Path:
        """A folder with the Secret of this job."""
        folder = self.folder / f"tls-{job}"
        folder.mkdir(exist_ok=True)
        for name, text in get("secret", f"{job}-tls")["data"].items():
            (folder / name).write_bytes(base64.b64decode(text))
        return folder

    def connect(self, pod: str, port: int, *flags: object) -> int:
        """Over TLS; whether the peer kept the connection open. Its certificate is not looked at."""
        address = get("pod", pod)["status"]["podIP"]
        client = ["timeout", 5, "openssl", "s_client", "-quiet", "-ign_eof", "-alpn", "h2", "-connect", f"{address}:{port}", *flags]
        # What it answers is no text.
        return run(CLUSTER, "net", 1, "sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", *client).returncode

    def test_strangers_are_refused(self) -> None:
        for name in ("ours", "theirs"):
            self.start_job(name, servers={"replicas": 1}, workers={"replicas": 1})
        pair = {name: ("-cert", self.certificates(name) / "worker-0.crt", "-key", self.certificates(name) / "worker-0.key")
                for name in ("ours", "theirs")}
        for pod, port in (("ours-coordinator", CONTROL), ("ours-server-0", DATA)):
            with self.subTest(pod=pod):
                self.assertEqual(self.connect(pod, port, *pair["ours"]), STILL_CONNECTED)
                self.assertNotEqual(self.connect(pod, port, *pair["theirs"]), STILL_CONNECTED)
                self.assertNotEqual(self.connect(pod, port), STILL_CONNECTED)
        self.trains("ours")
        self.finish_job("ours")

    def expiry(self, name: str) -> float:
        """Of the certificate that the coordinator uses, in seconds since 1970."""
        found = re.search(r"^pushpull_certificate_expiry_timestamp_seconds\S* (\S+)$", self.metrics(f"{name}-coordinator"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def test_certificates_are_replaced_while_it_trains(self) -> None:
        nodes.install_operator(f"operator.certificateLifeSeconds={LIFE_SECONDS}")
        self.addCleanup(nodes.install_operator)
        self.start_job("rotated", epochs=3000, servers={"replicas": 2, "replication": 1}, restart={"initialDelaySeconds": 0})
        before, first = self.uids("rotated"), self.expiry("rotated")
        wait_until(lambda: self.expiry("rotated") > first, LIFE_SECONDS, "another certificate")
        self.say(f"expires {self.expiry('rotated') - first:.0f} s later")
        wait_until(lambda: nodes.now() > first + 5, LIFE_SECONDS, "the first certificate has expired")
        self.trains("rotated")
        self.assertEqual(self.uids("rotated"), before)

        # All connections to a new server are made with the new certificates.
        self.kill("rotated-server-1")
        wait_until(lambda: self.uids("rotated").get("rotated-server-1", "") not in ("", before["rotated-server-1"]), 60, "another server")
        self.await_members("rotated")
        self.trains("rotated")
        self.finish_job("rotated")


if __name__ == "__main__":
    unittest.main()
