# SPDX-License-Identifier: Apache-2.0
"""A trainer without its data, or with damaged data: the job ends with 3 and says what was expected."""
import gzip
import json
import pathlib
import struct
import unittest

import job

MANIFEST = pathlib.Path(__file__).resolve().parents[3] / "runtime/examples/fashion-mnist.yaml"
NO_DATA_SECONDS = 30.0
IMAGES = 3
IMAGE_BYTES = 28 * 28
LABELS_MAGIC = 0x00000801
IMAGES_MAGIC = 0x00000803


class DataSetTest(job.JobTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.data = self.folder / "data"

    def write_data_set(self) -> None:
        """A whole one, of three images."""
        self.data.mkdir()
        labels = struct.pack(">II", LABELS_MAGIC, IMAGES) + bytes(IMAGES)
        images = (struct.pack(">IIII", IMAGES_MAGIC, IMAGES, 28, 28)
                  + bytes(IMAGES * IMAGE_BYTES))
        for split in ("train", "t10k"):
            (self.data / f"{split}-labels-idx1-ubyte").write_bytes(labels)
            (self.data / f"{split}-images-idx3-ubyte").write_bytes(images)

    def run_example(self) -> job.LocalJob:
        """The example's manifest with the trainer told to read our folder."""
        text = MANIFEST.read_text(encoding="utf-8")
        command = '["pushpull-train", "--model", "mlp", "--epochs", "3"]'
        self.assertIn(command, text)
        own = json.dumps([*json.loads(command), "--batch", "1", "--data", str(self.data)])
        manifest = self.folder / "fashion-mnist.yaml"
        manifest.write_text(text.replace(command, own), encoding="utf-8")
        workdir, report = self.folder / "workdir", self.folder / "report.json"
        launcher = self.start(job.PUSHPULL, "run", manifest, "--workdir", workdir, "--report",
                              report, "--progress", "none")
        return job.LocalJob(launcher, workdir, report)

    def assert_is_refused(self, *texts: str) -> None:
        started = self.run_example()

        code = started.launcher.wait(NO_DATA_SECONDS)

        printed = started.launcher.output
        self.assertEqual(code, 3, printed)
        lines = [line for line in printed.splitlines() if "pushpull-train: " in line]
        self.assertTrue(lines, printed)
        for text in texts:
            self.assertIn(text, lines[0])
        self.assertIn("the job fails without a restart", printed)
        self.assertEqual(started.report()["restarts"], 0)
        self.assertEqual(started.report()["phase"], "Failed")
        self.wait_until_gone(5)

    def test_whole_data_set_is_taken(self) -> None:
        self.write_data_set()
        started = self.run_example()

        self.assertEqual(started.launcher.wait(NO_DATA_SECONDS), 0, started.launcher.output)

    def test_missing_folder_is_named_with_what_to_install(self) -> None:
        self.assert_is_refused(str(self.data), "not found", "dataset-fashion-mnist")

    def test_missing_file_is_named(self) -> None:
        self.write_data_set()
        (self.data / "t10k-images-idx3-ubyte").unlink()

        self.assert_is_refused(f"{self.data}/t10k-images-idx3-ubyte: not found")

    def test_wrong_magic_is_named_with_expected_one(self) -> None:
        self.write_data_set()
        images = self.data / "train-images-idx3-ubyte"
        images.write_bytes(b"\x89PNG" + images.read_bytes()[4:])

        self.assert_is_refused(f"{images}: ", "0x89504e47", "expected 0x00000803")

    def test_short_file_is_named_with_expected_size(self) -> None:
        self.write_data_set()
        images = self.data / "train-images-idx3-ubyte"
        images.write_bytes(images.read_bytes()[:-1])

        self.assert_is_refused(f"{images}: has {IMAGES * IMAGE_BYTES - 1} values",
                               f"expected {IMAGES * IMAGE_BYTES}")

    def test_compressed_file_that_is_cut_off_is_named(self) -> None:
        self.write_data_set()
        plain = self.data / "train-images-idx3-ubyte"
        packed = self.data / "train-images-idx3-ubyte.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes())[:-4])
        plain.unlink()

        self.assert_is_refused(f"{packed}: ")


if __name__ == "__main__":
    unittest.main()
