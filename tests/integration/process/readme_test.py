# SPDX-License-Identifier: Apache-2.0
"""The commands of README and manual, as a user would type them, against the programs that were built.

Every ```sh block of README.md and docs/*.md is run, in a folder that looks like a checkout, unless the line above it is
`<!-- not run by the README's test: REASON -->`; what such a block has must be commands of ./dev, and
documented. A block whose parts begin with `# on HOST` is for several hosts: each part runs for itself,
and the hosts are addresses of the loopback interface. CMake has built the C++ block of
docs/writing-a-worker.md.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
from typing import NamedTuple

import job

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORKER = pathlib.Path(job.PROBE).parent / "readme_worker"
README = (ROOT / "README.md").read_text(encoding="utf-8")
MANUAL = "\n".join([README, *(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))])
FOR_SEVERAL_HOSTS = "# on "
TRAINING_SECONDS = 90.0
_BLOCK = re.compile(r"^(?P<above>[^\n]*)\n```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run by the README's test: \w[^>]* -->")
_PART = re.compile(r"^# (?:on|from) (?P<host>[^\n]*)\n(?P<text>(?:(?!# )[^\n]*\n)*)", re.MULTILINE)
_ADDRESS = re.compile(r"\b10(?:\.\d+){3}:\d+\b")
_SPAN = re.compile(r"`([^`\n]+)`")
_CPP_BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    text: str
    is_run: bool


def blocks() -> list[Block]:
    return [Block(match["text"], _NOT_RUN.fullmatch(match["above"]) is None)
            for match in _BLOCK.finditer(MANUAL)]


def spans(start: str) -> list[str]:
    """Commands within a sentence."""
    return [span for span in _SPAN.findall(MANUAL) if span.startswith(start)]


class LocalAddresses:
    """Gives each host:port of the README a free one of this machine, always the same."""

    def __init__(self) -> None:
        self._local: dict[str, str] = {}

    def of(self, address: str) -> str:
        return self._local.setdefault(address, job.closed_port())

    def within(self, text: str) -> str:
        return _ADDRESS.sub(lambda match: self.of(match[0]), text)

    def command(self, host: str, text: str) -> str:
        """A part's command. Roles of several hosts all take the same port for their metrics."""
        text = self.within(text).strip()
        text = text.replace("PUSHPULL_METRICS_PORT=9464", "PUSHPULL_METRICS_PORT=0")
        if re.search(r"/pushpull (?:server|coordinator) ", text) and "--metrics" not in text:
            text += f" --metrics {self.of(f'{host}:9464')}"
        return text


class ReadmeTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "build").mkdir()
        (self.folder / "build/release").symlink_to(pathlib.Path(job.PUSHPULL).parent)
        (self.folder / "runtime").symlink_to(ROOT / "runtime")

    def shell(self, text: str) -> job.Program:
        return self.start("bash", "-euo", "pipefail", "-c", text)

    def test_commands_that_are_not_run_are_documented(self) -> None:
        usage = subprocess.run([ROOT / "dev", "--help"], capture_output=True, text=True,
                               check=True).stdout
        documented = set(re.findall(r"^  ([\w-]+)", usage, re.MULTILINE))

        for block in (block for block in blocks() if not block.is_run):
            for line in block.text.splitlines():
                with self.subTest(line=line):
                    found = re.match(r"\./dev ([\w-]+)(?: +#.*)?$", line)
                    self.assertIsNotNone(found, "only commands of ./dev may be left out")
                    self.assertIn(found and found[1], documented)

    def test_block_for_one_machine_runs(self) -> None:
        wanted = [b.text for b in blocks() if b.is_run and not b.text.startswith(FOR_SEVERAL_HOSTS)]
        self.assertTrue(wanted, "README and manual have no such block any more")

        for text in wanted:
            with self.subTest(block=text):
                ended = self.shell(text)

                self.assertEqual(ended.wait(TRAINING_SECONDS), 0, ended.output)

    def test_commands_beside_a_running_job_answer(self) -> None:
        wanted = [spans(f"build/release/pushpull {name} ") for name in ("status", "scale", "set")]
        self.assertTrue(all(wanted), "README and manual have no such command any more")
        probe = f'spec.command=["{job.PROBE}","--steps","{job.LONG_JOB_STEPS}","--step-milliseconds","5"]'
        launcher = self.start("build/release/pushpull", "run", "runtime/examples/fashion-mnist.yaml",
                              "--progress", "none", "--set", probe,
                              environment={"PROBE_IGNORES_SUMS": "1"})  # workers come and go
        workdir = self.folder / ".pushpull/fashion-mnist"
        job.LocalJob(launcher, workdir, workdir / "report.json").wait_for_step(3)

        for command in sum(wanted, []):
            with self.subTest(command=command):
                ended = self.shell(command)

                self.assertEqual(ended.wait(20), 0, ended.output)
                self.assertRegex(ended.output, "fashion-mnist|0 shards to move|4 workers of 4|mode Sync")

    def test_readme_shows_a_part_of_the_complete_worker(self) -> None:
        complete = (ROOT / "docs/writing-a-worker.md").read_text(encoding="utf-8")
        shown = _CPP_BLOCK.findall(README)

        self.assertEqual(len(shown), 1)
        self.assertIn(shown[0], _CPP_BLOCK.findall(complete)[0])

    def test_worker_program_runs_as_it_says(self) -> None:
        wanted = spans("pushpull run MANIFEST --set")
        self.assertTrue(wanted, "README and manual have no such command any more")
        (self.folder / "build/my_worker").symlink_to(WORKER)

        for command in wanted:
            with self.subTest(command=command):
                named = command.replace("MANIFEST", "runtime/examples/fashion-mnist.yaml")
                ended = self.shell(f"build/release/{named} --report r.json")

                self.assertEqual(ended.wait(30), 0, ended.output)
                report = json.loads((self.folder / "r.json").read_text())
                self.assertEqual(report["steps"], 100)
                self.assertLess(report["losses"][-1]["loss"], 1e-6)  # it pulls w towards 3

    def test_roles_of_block_for_several_hosts_train_together(self) -> None:
        texts = [b.text for b in blocks() if b.is_run and b.text.startswith(FOR_SEVERAL_HOSTS)]
        self.assertEqual(len(texts), 1)
        addresses = LocalAddresses()
        parts = [(part["host"], addresses.command(part["host"], part["text"]))
                 for part in _PART.finditer(texts[0])]

        roles, workers, questions = [], [], []
        for host, command in parts:
            if host == "anywhere":
                questions.append(command)
            elif "/pushpull-train " in command:
                workers.append(self.shell(command))
            else:
                roles.append(self.shell(command))
                roles[-1].wait_for_line("listening")
        ends = [worker.wait(TRAINING_SECONDS) for worker in workers]
        printed = "\n".join(program.output for program in roles + workers)

        self.assertEqual((len(roles), len(workers), len(questions)), (3, 2, 1), parts)
        self.assertEqual(ends, [0, 0], printed)
        self.assertRegex(printed, r"epoch 3/3 .*accuracy 0\.8")
        for command in questions + [addresses.within(span) for span in spans("curl ")]:
            with self.subTest(command=command):
                ended = self.shell(command)
                self.assertEqual(ended.wait(20), 0, ended.output)
                self.assertRegex(ended.output, "fashion-mnist|pushpull_step")
        # "Then stop the coordinator with Ctrl-C; the servers end with it."
        os.kill(roles[0].pid, signal.SIGINT)
        self.assertEqual(roles[0].wait(15), 130, roles[0].output)
        for server in roles[1:]:
            server.wait(15)
        self.wait_until_gone(5)


if __name__ == "__main__":
    unittest.main()
