# SPDX-License-Identifier: Apache-2.0
"""`pushpull plan` on the shipped topologies, on broken ones, and on machines that a test makes up."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

import job

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOPOLOGIES = ROOT / "runtime/examples/topologies"


class PlanTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pushpull-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Programs of this machine, but not its nvidia-smi: one that a test writes, or none.
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        (self.programs / "timeout").symlink_to("/usr/bin/timeout")
        self.environment = {**os.environ, "PATH": str(self.programs)}

    def plan(self, *words: object) -> subprocess.CompletedProcess:
        return job.run_command("plan", *words, environment=self.environment)

    def strategies(self, example: str, *words: object) -> dict:
        done = self.plan(TOPOLOGIES / f"{example}.yaml", "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {each["name"]: each for each in json.loads(done.stdout)["strategies"]}

    def topology(self, text: str) -> pathlib.Path:
        file = self.folder / "topology.yaml"
        file.write_text("apiVersion: pushpull.dev/v1alpha1\nkind: Topology\n" + text)
        return file

    def write(self, file: str, text: str) -> None:
        path = self.folder / "sys" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def add_gpu(self, slot: int) -> None:
        bridge = f"devices/pci0000:00/0000:00:0{slot}.0"
        for folder, code in ((bridge, "0x060400"), (f"{bridge}/0000:0{slot}:00.0", "0x030200")):
            self.write(f"{folder}/class", code)
            self.write(f"{folder}/max_link_speed", "16.0 GT/s PCIe")
            self.write(f"{folder}/current_link_width", "16")

    def detect(self, *words: object) -> subprocess.CompletedProcess:
        (self.folder / "sys").mkdir(exist_ok=True)
        return self.plan("--detect", "--sysfs", self.folder / "sys", *words)

    def test_four_gpus_on_pcie_take_what_the_textbook_says(self) -> None:
        found = self.strategies("pcie-4", "--bytes", "160M")

        for name, milliseconds in (("root", 60), ("host", 80), ("split", 15)):
            self.assertAlmostEqual(found[name]["seconds"], milliseconds / 1e3, places=9)
        self.assertAlmostEqual(found["split"]["bytes_per_link"]["pcie_gpu"], 240e6)

    def test_eight_v100_print_both_figures_of_two_rings(self) -> None:
        done = self.plan(TOPOLOGIES / "v100-8.yaml", "--bytes", "160M")

        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 x 160 MB / (3 x 18 GB/s) = 5.9 ms", done.stdout)
        self.assertIn("2 x 160 MB / (3 x 18 GB/s) x 7/8 = 5.2 ms", done.stdout)
        self.assertIn("GPU 0 -> 3 -> 2 -> 1 -> 5 -> 6 -> 7 -> 4 -> 0", done.stdout)

    def test_time_over_servers_is_proportional_to_m_over_n(self) -> None:
        for workers, servers in ((8, 1), (8, 2), (8, 4), (4, 1)):
            file = self.topology("machine: {nics: [{bandwidth: 100Gb/s}]}\n"
                                 f"cluster: {{workers: {workers}, servers: {servers}}}\n")
            done = self.plan(file, "--bytes", "160M", "--json")
            found = {each["name"]: each for each in json.loads(done.stdout)["strategies"]}

            self.assertAlmostEqual(found["servers"]["seconds"], 2 * workers / servers * 160e6 / 12.5e9, places=9)

    def test_manual_shows_what_is_printed(self) -> None:
        manual = (ROOT / "docs/planning.md").read_text(encoding="utf-8")
        shown = re.findall(r"```sh\nbuild/release/pushpull plan (.*)\n```\n\n```text\n((?:.*\n)*?)```", manual)
        self.assertEqual(len(shown), 2)

        for words, text in shown:
            with self.subTest(words):
                first, *others = shlex.split(words)
                printed = self.plan(ROOT / first, *others).stdout.splitlines()

                for line in text.splitlines():
                    self.assertIn(line, [*printed, "..."])

    def test_every_example_plans_and_bytes_count(self) -> None:
        for file in sorted(TOPOLOGIES.iterdir()):
            with self.subTest(file.name):
                few = self.strategies(file.stem, "--bytes", "1M")
                many = self.strategies(file.stem, "--bytes", "100M")

                self.assertEqual(set(few), set(many))
                for name, each in few.items():
                    self.assertLess(each["seconds"], many[name]["seconds"])

    def test_compute_time_says_where_distribution_pays(self) -> None:
        done = self.plan(TOPOLOGIES / "pcie-4.yaml", "--compute-seconds", "0.1", "--batch", "32", "--json")
        found = json.loads(done.stdout)["break_even"]

        self.assertEqual(found["in_turn"]["from_workers"], 2)
        self.assertAlmostEqual(found["in_turn"]["step_seconds"], 0.1 / 4 + 0.015, places=9)
        self.assertEqual(found["in_turn"]["from_batch"], 7)  # 15 ms / (3.125 ms x 3/4) = 6.4
        text = self.plan(TOPOLOGIES / "pcie-4.yaml", "--compute-seconds", "0.1", "--batch", "32").stdout
        self.assertIn("pays from 2 workers on", text)

    def test_recommended_fields_make_a_valid_manifest(self) -> None:
        for file in sorted(TOPOLOGIES.iterdir()):
            with self.subTest(file.name):
                fields = json.loads(self.plan(file, "--json").stdout)["recommended"]["fields"]
                manifest = self.folder / "manifest.yaml"
                manifest.write_text("apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: x}\n"
                                    "spec: {command: [x]}\n")
                settings = [word for path, value in fields.items()
                            for word in ("--set", f"{path}={json.dumps(value).strip(chr(34))}")]
                done = job.run_command("validate", manifest, *settings)

                self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_problem_of_a_topology_is_named(self) -> None:
        file = self.topology("machine: {gpus: 2, pcie: {bandwith: 16GB/s}}\ncluster: {workers: 0}\n")

        refused = self.plan(file)

        self.assertEqual(refused.returncode, 2)
        self.assertEqual(refused.stdout, "")
        self.assertIn(f"{file}: machine.pcie.bandwith: is not a known field; did you mean bandwidth?", refused.stderr)
        self.assertIn(f"{file}: cluster.workers: must be between 1 and 4096, is 0", refused.stderr)

    def test_wrong_usage_has_one_line_and_a_code(self) -> None:
        example = TOPOLOGIES / "pcie-4.yaml"
        for words, code, told in (((), 2, "either a file with a topology or --detect"),
                                  ((example, "--detect"), 2, "either a file with a topology or --detect"),
                                  ((self.folder / "gone.yaml",), 3, "gone.yaml"),
                                  ((example, "--bytes", "0"), 2, "--bytes"),
                                  ((example, "--bytes", "many"), 2, "many"),
                                  ((example, "--batch", "32"), 2, "one needs the other"),
                                  ((example, "--compute-seconds", "-1", "--batch", "32"), 2, "--compute-seconds"),
                                  ((example, "--compute-seconds", "1", "--batch", "-3"), 2, "--batch")):
            with self.subTest(words):
                refused = self.plan(*words)

                self.assertEqual(refused.returncode, code, refused.stderr)
                self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
                self.assertIn(told, refused.stderr)

    def test_detected_machine_is_a_file_and_a_plan(self) -> None:
        for slot in (1, 2):
            self.add_gpu(slot)
        (self.programs / "nvidia-smi").write_text(
            '#!/bin/sh\ncase "$1" in\ntopo) printf "\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV4\\nGPU1\\tNV4\\t X \\n" ;;\n'
            'nvlink) printf "\\t Link 0: 25 GB/s\\n" ;;\nesac\n')
        (self.programs / "nvidia-smi").chmod(0o755)

        done = self.detect()

        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# GPU 0: 0000:01:00.0, NUMA node 0, PCIe 16 GT/s x16", done.stdout)
        self.assertIn("ring ", done.stdout)
        # What was found reads back as a file.
        file = self.folder / "found.yaml"
        file.write_text(json.loads(self.detect("--json").stdout)["yaml"])
        found = {each["name"]: each for each in json.loads(self.plan(file, "--json").stdout)["strategies"]}
        self.assertAlmostEqual(found["ring"]["seconds"], 160e6 / 100e9, places=9)

    def test_single_worker_is_a_file_to_complete(self) -> None:
        self.write("class/net/eth0/speed", "100000")
        self.write("class/net/eth0/device/vendor", "0x15b3")

        refused = self.detect()

        self.assertEqual(refused.returncode, 1)
        self.assertIn("bandwidth: 12.5GB/s", refused.stdout)
        self.assertIn("at least two workers", refused.stderr)

    def test_where_nothing_is_found_it_says_what_to_write(self) -> None:
        refused = self.detect()

        self.assertEqual(refused.returncode, 1)
        self.assertIn("# no GPU below", refused.stdout)
        self.assertIn("write the topology by hand", refused.stderr)
        self.assertIn("docs/planning.md", refused.stderr)


if __name__ == "__main__":
    unittest.main()
