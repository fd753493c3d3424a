# SPDX-License-Identifier: Apache-2.0
"""The commands of README and manual for Kubernetes, as a user would type them, from an empty cluster on."""
import os
import re
import subprocess
import unittest

import nodes
from api_server import CLUSTER, ROOT, wait_until
from nodes import SYSTEM, NodeCase, helm, kubectl, must

PAGES = ("README.md", "docs/running-jobs.md")  # the second goes on where the first ends
SECTION = re.compile(r"^## On Kubernetes$(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```bash$\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOTAL_SECONDS = 300
GONE_SECONDS = 60


class ReadmeTest(NodeCase):

    def test_commands_lead_to_a_trained_model(self) -> None:
        sections = [SECTION.search((ROOT / page).read_text(encoding="utf-8")) for page in PAGES]
        blocks = [block for section in sections for block in BLOCK.findall(section[1])]
        self.assertGreaterEqual(len(blocks), len(PAGES))
        for name in ("kubectl", "helm"):
            program = self.folder / name
            program.write_text(f'#!/bin/sh\nexec "{CLUSTER}" {name} "$@"\n', encoding="utf-8")
            program.chmod(0o755)
        # Its rights and its lease go before it does.
        self.expected_trouble = ["the API server answers 403 Forbidden", "lost the lease"]
        must(helm("uninstall", "pushpull", "--namespace", SYSTEM, "--wait"))
        self.addCleanup(nodes.install_operator)

        typed = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], cwd=ROOT, capture_output=True, text=True,
                               timeout=TOTAL_SECONDS, env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})

        self.assertEqual(typed.returncode, 0, typed.stdout + typed.stderr)
        self.assertRegex(typed.stdout, r"test accuracy 0\.8[5-9]")
        for line in ("trainingjob.pushpull.dev/fashion-mnist condition met", "Succeeded"):
            self.assertIn(line, typed.stdout)
        # What a job had goes some time after it, and the next test's job has the same name.
        wait_until(lambda: must(kubectl("get", "secret,service,configmap,pod,pdb", "-l", "pushpull.dev/job=fashion-mnist",
                                        "-o", "name")).strip() == "", GONE_SECONDS, "nothing is left of the job")


if __name__ == "__main__":
    unittest.main()
