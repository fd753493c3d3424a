# SPDX-License-Identifier: Apache-2.0
"""A job as a user that no file of the machine names, in group 0 and without a home, as OpenShift starts containers."""
import os
import unittest

import job

UID = 1000680000
# Of the first range that OpenShift gives to a namespace; group 0 is that of the files of an image.
AS_NOBODY_KNOWN = ("setpriv", "--reuid", UID, "--regid", 0, "--clear-groups", "--no-new-privs", "--bounding-set=-all")
NO_HOME = {"HOME": "/", "USER": "", "LOGNAME": ""}


@unittest.skipUnless(os.getuid() == 0, "only root may start programs as another user")
class ArbitraryUserTest(job.JobTestCase):

    def test_job_trains_saves_and_shares_memory(self) -> None:
        self.folder.chmod(0o770)
        manifest = self.write_manifest(self.spec("--steps", 300, "--step-milliseconds", 20, "--registered", 1,
                                                 checkpoint={"claim": "c", "everySeconds": 1}))
        workdir, report = self.folder / "workdir", self.folder / "report.json"
        launcher = self.start(*AS_NOBODY_KNOWN, job.PUSHPULL, "run", manifest, "--workdir", workdir, "--report", report,
                              "--progress", "none", environment=NO_HOME)
        started = job.LocalJob(launcher, workdir, report, self.folder / "let-go")
        started.wait_for_step(5)

        for role in ("coordinator", "server", "worker"):
            entry = started.endpoint(role)
            assert entry is not None
            self.assertEqual(os.stat(f"/proc/{entry['pid']}").st_uid, UID, role)
        code = started.finish()

        self.assertEqual(code, 0, launcher.output)
        self.assertEqual(started.report()["steps"], 300)
        self.assertGreater(started.report()["checkpoint"]["saved"], 0)
        self.assertNotRegex(launcher.output, r"(?i)permission denied|not permitted")


if __name__ == "__main__":
    unittest.main()
