# SPDX-License-Identifier: Apache-2.0
"""`pushpull checkpoint list`, `verify`, `show` and `export` on the checkpoints of tests/data: what they
print and write, and how they end.
"""
import json
import pathlib
import shutil
import unittest

import job

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "data/checkpoints/v1"
SECONDS = 20
NEWEST = "step-000000000043"
DATA_FILE = "server-00000-lane-00-0000000000000007.chunks"


class CheckpointTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.dir = self.folder / "checkpoints"
        shutil.copytree(GOLDEN, self.dir)

    def checkpoint(self, *arguments: object) -> tuple[int, str]:
        command = self.start(job.PUSHPULL, "checkpoint", *arguments)
        return command.wait(SECONDS), command.output

    def flip(self, path: pathlib.Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    def test_list_shows_newest_first_and_what_is_no_checkpoint(self) -> None:
        (self.dir / "step-000000000050").mkdir()

        code, text = self.checkpoint("list", self.dir)
        json_code, listed = self.checkpoint("list", self.dir, "--json")

        self.assertEqual((code, json_code), (0, 0), text)
        self.assertRegex(text, r"(?s)43 +complete.*42 +complete.*50 +incomplete")
        checkpoints = json.loads(listed)["checkpoints"]
        self.assertEqual([(c["step"], c["state"]) for c in checkpoints],
                         [(43, "complete"), (42, "complete"), (50, "incomplete")])
        self.assertEqual(checkpoints[0]["mode"], "Async")
        self.assertEqual(checkpoints[0]["chunks"], 6)

    def test_verify_of_whole_checkpoints_ends_well(self) -> None:
        (self.dir / "step-000000000050").mkdir()

        for folder in (self.dir, f"{self.dir}/", self.dir / NEWEST):
            code, text = self.checkpoint("verify", folder)

            self.assertEqual(code, 0, text)
            self.assertIn(f"{NEWEST}: valid: of job sample, 6 chunks", text)

    def test_verify_names_file_and_offset_of_a_flipped_bit(self) -> None:
        damaged = self.dir / NEWEST / DATA_FILE
        self.flip(damaged, 400)

        code, text = self.checkpoint("verify", self.dir)
        json_code, verified = self.checkpoint("verify", self.dir / NEWEST, "--json")

        self.assertEqual((code, json_code), (1, 1), text)
        self.assertIn(f"{damaged} at byte 317: wrong checksum of the optimizer's state", text)
        report = json.loads(verified)
        self.assertFalse(report["valid"])
        problem, = report["checkpoints"][0]["problems"]
        self.assertEqual((problem["file"], problem["offset"]), (str(damaged), 317))

    def test_show_describes_the_newest_one(self) -> None:
        code, text = self.checkpoint("show", self.dir)
        json_code, shown = self.checkpoint("show", self.dir / "step-000000000042", "--json")

        self.assertEqual((code, json_code), (0, 0), text)
        self.assertRegex(text, rf"{NEWEST}: step \d+ of job sample, mode Async")
        self.assertRegex(text, r"layer\.weight +\[3, 5\] +float32 +42 +adam\(learning_rate=0\.001")
        described = json.loads(shown)
        self.assertEqual((described["step"], described["position"], len(described["tensors"])), (42, None, 7))
        self.assertEqual(described["tensors"][1],
                         {"name": "layer.bias", "shape": [5], "dtype": "float32", "role": "value", "row_sparse": False,
                          "optimizer": "sgd(learning_rate=0.1, momentum=0.9)", "updates": 41})

    def test_export_writes_all_tensors_or_nothing(self) -> None:
        out = self.folder / "out"

        code, text = self.checkpoint("export", self.dir, "--format", "safetensors", "-o", out)
        values = self.tensors_of(out)
        with_state_code, _ = self.checkpoint("export", self.dir, "-o", out, "--with-optimizer")
        before = out.read_bytes()
        self.flip(self.dir / NEWEST / DATA_FILE, 200)
        damaged_code, why = self.checkpoint("export", self.dir, "-o", out)
        refused_code, advice = self.checkpoint("export", self.dir, "-o", out, "--format", "pt")

        self.assertEqual((code, with_state_code), (0, 0), text)
        self.assertEqual(values, ["layer.weight", "layer.bias", "scale", "empty", "count", "rates", "decayed"])
        self.assertIn("optimizer.layer.weight.exp_avg", self.tensors_of(out))
        self.assertEqual(damaged_code, 1, why)
        self.assertIn(f"{DATA_FILE} at byte", why)
        self.assertEqual(out.read_bytes(), before)
        self.assertEqual(refused_code, 2, advice)
        self.assertIn("python3 -m pushpull.torch.export", advice)

    def tensors_of(self, path: pathlib.Path) -> list[str]:
        content = path.read_bytes()
        header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
        return [name for name in header if name != "__metadata__"]

    def test_damaged_manifest_is_listed_and_fails_verify(self) -> None:
        self.flip(self.dir / NEWEST / "MANIFEST", 100)

        listed_code, listed = self.checkpoint("list", self.dir)
        code, text = self.checkpoint("verify", self.dir)

        self.assertEqual((listed_code, code), (0, 1), text)
        self.assertRegex(listed, r"43 +damaged +\S+MANIFEST at byte 64: ")
        self.assertRegex(text, r"MANIFEST at byte 64: wrong checksum of section")

    def test_folder_without_checkpoints(self) -> None:
        empty = self.folder / "empty"
        empty.mkdir()

        self.assertEqual(self.checkpoint("list", empty)[0], 0)
        self.assertEqual(self.checkpoint("verify", empty)[0], 3)
        for action in ("list", "verify"):
            code, text = self.checkpoint(action, self.folder / "nowhere")
            self.assertEqual(code, 3, text)
            self.assertIn("nowhere", text)

    def test_wrong_usage(self) -> None:
        for arguments in ((), ("verify",), ("list", self.dir, "more"), ("burn", self.dir)):
            self.assertEqual(self.checkpoint(*arguments)[0], 2, arguments)


if __name__ == "__main__":
    unittest.main()
