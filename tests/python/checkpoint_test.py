# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of real jobs, read without the job: in NumPy, torch, as safetensors, and by another job."""
import io
import json
import pathlib
import pickle
import shutil
import struct
import sys
import unittest
from typing import Any

import checkpoint_scenarios as scenarios
import numpy
import pushpull
import pushpull.torch as pp
import torch
from package_test import HERE, PUSHPULL, JobTest, run
from pushpull import _program_state
from torch import nn

try:
    import safetensors.numpy
except ImportError:
    safetensors = None

ANY_CONTENT: dict[str, Any] = {"weights_only": False} if torch.__version__ >= "2" else {}
WEIGHTS_ONLY: dict[str, Any] = {"weights_only": True} if torch.__version__ >= "2" else {}


def read_safetensors(path: pathlib.Path) -> dict[str, numpy.ndarray]:
    """By its format: length of the header, header, elements."""
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__")
    elements, end, found = content[8 + length:], 0, {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert first == end, (name, first, end)
        dtype = {"F32": numpy.float32, "F16": numpy.float16, "U64": numpy.uint64}[entry["dtype"]]
        found[name], end = numpy.frombuffer(elements[first:last], dtype).reshape(entry["shape"]), last
    assert end == len(elements), (end, len(elements))
    return found


class CheckpointTest(JobTest):
    SCENARIOS = HERE / "checkpoint_scenarios.py"

    def train(self, kind: str, place: str, servers: int = 2, epochs: int = 1) -> dict[str, Any]:
        """Runs a job that saves at its end; what it has saved itself."""
        shutil.rmtree(self.folder / ".pushpull", ignore_errors=True)
        self.run_scenario("train", kind, place, epochs, servers=servers, settings=('spec.checkpoint={"claim": "models"}',))
        expected: dict[str, Any] = torch.load(self.folder / "expected")
        return expected

    def models(self, job: str = "train") -> pathlib.Path:
        return next(self.folder.glob(f".pushpull/{job}/claims/models"))

    def model(self) -> nn.Module:
        return scenarios.model_of(seed=99)

    def assert_same_optimizers(self, optimizer: torch.optim.Optimizer, expected: dict[str, Any]) -> None:
        state = optimizer.state_dict()["state"]
        self.assertEqual(state.keys(), expected["state"].keys())
        for index, kept in expected["state"].items():
            for key, value in kept.items():
                if isinstance(value, torch.Tensor):
                    self.assertTrue(torch.equal(state[index][key], value), f"{index} {key}")

    def test_a_plain_model_trains_on_as_the_job_would_have(self) -> None:
        for kind, place, servers in (("adamw", "servers", 1), ("adamw", "workers", 2), ("sgd", "servers", 3), ("sgd", "workers", 1),
                                     ("adagrad", "servers", 2), ("plain", "workers", 3), ("plain", "servers", 2)):
            with self.subTest(kind=kind, place=place, servers=servers):
                expected = self.train(kind, place, servers)
                model = self.model()
                optimizer = scenarios.OPTIMIZERS[kind]([each for each in model.parameters() if each.requires_grad])

                step = pp.load_checkpoint(self.models(), model, optimizer)

                self.assertEqual(step, expected["step"])
                for name, value in model.state_dict().items():
                    if place == "workers" or name not in ("4.bias", "3.num_batches_tracked"):
                        self.assertTrue(torch.equal(value, expected["model"][name]), name)
                self.assert_same_optimizers(optimizer, expected["optimizer"])
                self.assert_trains_on(kind, model, optimizer, expected)

    def assert_trains_on(self, kind: str, model: nn.Module, optimizer: torch.optim.Optimizer, expected: dict[str, Any]) -> None:
        """As one that has loaded what the job's program saved itself."""
        own = self.model()
        own.load_state_dict({**expected["model"], "4.bias": model.state_dict()["4.bias"]})
        own_optimizer = scenarios.OPTIMIZERS[kind]([each for each in own.parameters() if each.requires_grad])
        own_optimizer.load_state_dict(expected["optimizer"])
        for x, y in [scenarios.samples()[:16], scenarios.samples()[16:40]]:
            for each, its_optimizer in ((model, optimizer), (own, own_optimizer)):
                its_optimizer.zero_grad()
                nn.functional.cross_entropy(each(x), y).backward()
                its_optimizer.step()
        for name, value in own.named_parameters():
            self.assertTrue(torch.equal(value, dict(model.named_parameters())[name]), name)

    def test_halves_rows_and_histories_are_loaded(self) -> None:
        for kind, place in (("bfloat16", "servers"), ("bfloat16", "workers"), ("lbfgs", "workers"), ("embedding", "servers")):
            with self.subTest(kind=kind, place=place):
                shutil.rmtree(self.folder / ".pushpull", ignore_errors=True)
                self.run_scenario("train_other", kind, place, settings=('spec.checkpoint={"claim": "models"}',))
                expected = torch.load(self.folder / "expected", **ANY_CONTENT)
                model, optimizer, batch = scenarios.other_of(kind, seed=9)

                pp.load_checkpoint(self.models("train-other"), model, optimizer)

                for name, value in model.state_dict().items():
                    self.assertTrue(torch.equal(value, expected["model"][name]), name)
                own, own_optimizer, _ = scenarios.other_of(kind, seed=9)
                own.load_state_dict(expected["model"])
                if expected["optimizer"] is None:
                    self.assertEqual([int(each["step"]) for each in optimizer.state_dict()["state"].values()], [5])
                else:
                    own_optimizer.load_state_dict(expected["optimizer"])
                scenarios.step_other(model, optimizer, batch)
                scenarios.step_other(own, own_optimizer, batch)
                if expected["optimizer"] is not None:
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(model.parameters(), own.parameters())))

    def test_what_differs_is_named_and_nothing_changes(self) -> None:
        self.train("adamw", "servers")
        other, larger, smaller = scenarios.model_of(1, width=32), scenarios.model_of(1, has_head=True), self.model()[:4]
        before = other[0].weight.detach().clone()

        with self.assertRaisesRegex(ValueError, r'"2.weight" has shape \(64, 5000\), in the model \(32, 5000\)'):
            pp.load_checkpoint(self.models(), other)
        with self.assertRaisesRegex(ValueError, 'lacks "head.weight" of the model'):
            pp.load_checkpoint(self.models(), larger)
        with self.assertRaisesRegex(ValueError, 'has "4.weight", which the model lacks'):
            pp.load_checkpoint(self.models(), smaller)
        model = self.model()
        with self.assertRaisesRegex(ValueError, '"0.weight" has the state of ADAMW'):
            pp.load_checkpoint(self.models(), model, torch.optim.SGD(model[0].parameters(), lr=1))
        self.assertTrue(torch.equal(before, other[0].weight))

    def test_values_and_state_are_numpy_arrays(self) -> None:
        for place in ("servers", "workers"):
            with self.subTest(place=place):
                expected = self.train("adamw", place)

                checkpoint = pushpull.load_checkpoint(self.models())

                self.assertEqual(checkpoint.step, expected["step"])
                self.assertEqual((checkpoint.job, checkpoint.mode), ("default/train", "Sync"))
                assert checkpoint.position is not None
                self.assertEqual(checkpoint.position, (1, 0, scenarios.SAMPLES, scenarios.BATCH, False))
                frozen = {"4.bias"} if place == "servers" else set()
                self.assertEqual({*checkpoint.names} | frozen, {*expected["model"]} - {"3.num_batches_tracked"})
                numpy.testing.assert_array_equal(checkpoint["2.weight"], expected["model"]["2.weight"].numpy())
                state = checkpoint.optimizer_state("2.weight")
                kept = expected["optimizer"]["state"][2]
                self.assertEqual((state.names, state.updates), (("exp_avg", "exp_avg_sq"), int(kept["step"])))
                for row, name in zip(state.rows, state.names):
                    numpy.testing.assert_array_equal(row, kept[name].numpy())

    def test_rows_halves_and_scalars_are_read(self) -> None:
        for servers in (1, 3):
            self.run_scenario("rows", servers=servers, settings=('spec.checkpoint={"claim": "models"}',))

            checkpoint = pushpull.load_checkpoint(self.models("rows") / "default" / "rows")

            keys, values = checkpoint["emb"]
            self.assertEqual(keys.tolist(), list(range(20)))
            self.assertEqual(values[0].tolist(), [0, 1, 2])
            self.assertLess(float(values[3][0]), 9.0)
            state = checkpoint.optimizer_state("emb")
            self.assertEqual((state.rows.shape, state.names, state.updates), ((20, 1, 3), ("sum",), 4))
            self.assertEqual(state.rows[[3, 7, 0], 0, 0].tolist(), [4, 4, 0])
            self.assertEqual((checkpoint["half"].dtype, checkpoint["half"].shape), (numpy.float16, (7,)))
            self.assertEqual(checkpoint["scalar"].shape, ())
            self.assertEqual(float(checkpoint["scalar"]), 5)

    def test_a_checkpoint_of_somebody_else_calls_nothing(self) -> None:
        content = io.BytesIO(pickle.dumps({"step": 1, "tensors": pathlib.Path("/")}))

        with self.assertRaisesRegex(pushpull.PushPullError, "object of class pathlib.*is not read from a checkpoint"):
            _program_state._Unpickler(content).load()

    def test_another_job_begins_with_the_rows(self) -> None:
        self.run_scenario("rows", settings=('spec.checkpoint={"claim": "models"}',))
        checkpoint = pushpull.load_checkpoint(self.models("rows"))
        for name, values in (("emb", checkpoint["emb"][1]), ("half", checkpoint["half"])):
            numpy.save(self.folder / f"{name}.npy", values)

        self.run_scenario("rows_begin", servers=3, workers=1, settings=(
            f'spec.checkpoint={{"claim": "models", "restoreFrom": "{checkpoint.folder}", "restore": "Values"}}',))

        begun = pushpull.load_checkpoint(self.models("rows-begin"))
        self.assertEqual(begun.optimizer_state("emb").updates, 2)

    def test_damage_is_named(self) -> None:
        self.run_scenario("rows", servers=2, settings=('spec.checkpoint={"claim": "models"}',))
        folder = pathlib.Path(pushpull.load_checkpoint(self.models("rows")).folder)
        data = max(folder.glob("*.chunks"), key=lambda path: path.stat().st_size)
        content = bytearray(data.read_bytes())
        content[300:] = bytes(len(content) - 300)
        data.write_bytes(content)

        with self.assertRaisesRegex(pushpull.PushPullError, f"{data.name} at byte") as raised:
            for name in (checkpoint := pushpull.load_checkpoint(folder)):
                checkpoint.optimizer_state(name)
                self.assertIsNotNone(checkpoint[name])
        self.assertEqual(raised.exception.code, "DATA_LOSS")
        (folder / "MANIFEST").unlink()
        with self.assertRaisesRegex(pushpull.PushPullError, "no manifest|no checkpoint|no complete"):
            pushpull.load_checkpoint(self.models("rows"))

    def test_exported_files_have_the_same_values(self) -> None:
        expected = self.train("adamw", "servers")["model"]
        out = self.folder / "out"

        done = run(PUSHPULL, "checkpoint", "export", self.models(), "-o", out, "--with-optimizer")
        shown = run(PUSHPULL, "checkpoint", "show", self.models(), "--json")
        text = run(PUSHPULL, "checkpoint", "show", self.models())
        with_torch = run(sys.executable, "-m", "pushpull.torch.export", self.models(), "-o", f"{out}.pt", "--with-optimizer")

        self.assertEqual((done.returncode, with_torch.returncode), (0, 0), done.stdout + with_torch.stdout)
        for read in [read_safetensors] + ([safetensors.numpy.load_file] if safetensors else []):
            tensors = read(out)
            for name in ("0.weight", "2.weight", "3.running_var"):
                numpy.testing.assert_array_equal(tensors[name], expected[name].numpy())
            self.assertEqual(tensors["optimizer.2.weight.exp_avg"].shape, (64, 5000))
            self.assertEqual(int(tensors["optimizer.2.weight.step"]), 6)
        pickled = torch.load(f"{out}.pt", **WEIGHTS_ONLY)
        self.assertTrue(torch.equal(pickled["model"]["2.weight"], expected["2.weight"]))
        self.assertEqual((pickled["step"], pickled["optimizer"]["2.weight"]["step"]), (6, 6))
        described = json.loads(shown.stdout)
        self.assertEqual((described["step"], described["position"]["epoch"], described["position"]["position"]), (6, 1, 0))
        weight = next(each for each in described["tensors"] if each["name"] == "2.weight")
        self.assertEqual((weight["shape"], weight["dtype"], weight["updates"]), ([64, 5000], "float32", 6))
        self.assertRegex(text.stdout, r"2\.weight +\[64, 5000\] +float32 +6 +adamw")

    def test_another_job_begins_with_the_values(self) -> None:
        for first_place in ("servers", "workers"):
            self.train("adamw", first_place)
            found = pushpull.load_checkpoint(self.models()).folder
            for place in ("servers", "workers"):
                with self.subTest(place=place, first_place=first_place):
                    report = self.run_scenario(
                        "begins_with_values", place, first_place, servers=3,
                        settings=(f'spec.checkpoint={{"claim": "models", "restoreFrom": "{found}", "restore": "Values"}}',))

                    self.assertEqual(report["steps"], 6)
                    self.assertIsNone(report["checkpoint"]["restored_step"])


if __name__ == "__main__":
    unittest.main()
