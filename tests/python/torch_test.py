# SPDX-License-Identifier: Apache-2.0
"""pushpull.torch as a user has it: real processes, `pushpull run`, the torch of the system.

Run by the Python of an environment that has the wheel, mypy and torch; `./dev python` makes one (__main__.py beside this).
"""
import json
import multiprocessing
import sys
import unittest
from typing import Any

import ddp_cases
import torch
import torch_scenarios
from package_test import END_OF_JOB, HERE, RUN_SECONDS, JobTest, run
from training_cases import TrainingCases


ANY_CONTENT: dict[str, Any] = {"weights_only": False} if torch.__version__ >= "2" else {}


class TorchTest(TrainingCases, JobTest):
    SCENARIOS = HERE / "torch_scenarios.py"

    def test_adam_trains_as_one_process(self) -> None:
        self.train("adam")

    def test_sgd_with_clipping_accumulates_as_one_process(self) -> None:
        self.train("sgd", clip=0.05, micro=2)

    def test_passes_are_in_a_trace(self) -> None:
        self.run_scenario("is_traced")

        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        begins: dict[tuple[int, str], list[float]] = {}
        for event in events:
            if event["ph"] == "X" and event["cat"] == "program":
                begins.setdefault((event["pid"], event["name"]), []).append(event["ts"])
        workers = {process for process, _ in begins}
        self.assertEqual(len(workers), 2)
        for worker in workers:
            self.assertEqual({name for process, name in begins if process == worker}, {"load", "forward", "backward"})
            forward = sorted(begins[worker, "forward"])
            # The trace may begin between the two passes of a step.
            backward = [begin for begin in sorted(begins[worker, "backward"]) if begin > forward[0]]
            self.assertGreater(len(backward), 5)
            self.assertTrue(all(first < second for first, second in zip(forward, backward)))
            self.assertTrue(all(second < next_first for next_first, second in zip(forward[1:], backward)))

    def test_state_moves_between_jobs_and_torch(self) -> None:
        """torch, a job with 2 servers, one with 3 servers, torch: as one training in torch."""
        for kind in ("sgd", "adagrad", "adam", "adamw"):
            with self.subTest(kind=kind):
                expected = torch_scenarios.continue_alone(kind, 0, 40, self.folder)
                torch_scenarios.continue_alone(kind, 0, 10, self.folder)
                self.run_scenario("continues", kind, 10, 20, servers=2)
                losses = [self.losses_of(worker) for worker in range(2)]
                self.run_scenario("continues", kind, 20, 30, servers=3)
                last = torch_scenarios.continue_alone(kind, 30, 40, self.folder)
                for worker in range(2):
                    losses[worker] += self.losses_of(worker) + last[worker]

                worst = max(abs(a - b) / b for worker in range(2) for a, b in zip(losses[worker], expected[worker][10:]))
                print(f"{kind}: losses of 30 steps after the first save differ by at most {worst:.1e}")
                self.assertLess(worst, 1e-6)

    def losses_of(self, worker: int) -> list[float]:
        losses: list[float] = json.loads((self.folder / f"losses-{worker}").read_text())
        return losses

    def test_shared_unused_frozen_and_averaged_tensors(self) -> None:
        self.run_scenario("shared_unused_and_averaged")

        first, second = (json.loads((self.folder / f"model-{worker}").read_text()) for worker in range(2))
        self.assertEqual(first, second)

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile came with torch 2")
    def test_compiled_model_trains(self) -> None:
        self.run_scenario("compiles")

    def survive(self, where: str) -> None:
        report = self.run_scenario("survives", where)

        first, second = (json.loads((self.folder / f"model-{worker}").read_text()) for worker in range(2))
        self.assertEqual(report["steps"], 200)
        self.assertEqual(first, second)

    def test_killed_worker_and_resizes_are_survived(self) -> None:
        self.survive("servers")

    def test_they_are_with_the_optimizer_on_workers(self) -> None:
        self.survive("workers")

    def test_optimizers_on_workers_are_in_checkpoints(self) -> None:
        self.run_scenario("goes_on", 40)
        expected = self.states()
        checkpoint = 'spec.checkpoint={"claim": "c", "everySeconds": 3600}'
        self.run_scenario("goes_on", 20, settings=(checkpoint,))
        self.run_scenario("goes_on", 40, 30, settings=(checkpoint,), fails=True)

        for state in self.states():
            self.assertEqual(state["begin"], 20, "when both workers are killed, the job starts again from the checkpoint")
            for name, value in expected[0]["model"].items():
                self.assertTrue(torch.equal(state["model"][name], value), name)
            for index, kept in expected[0]["optimizer"]["state"].items():
                for key, value in kept.items():
                    self.assertTrue(torch.equal(state["optimizer"]["state"][index][key], value), f"{key} of parameter {index}")

    def test_parameters_that_differ_are_named(self) -> None:
        for first in (1, 13):  # the second of them is seen in the last step alone, the 16th
            self.run_scenario("changes_a_row_alone", first, ends_with=3)

    def test_workers_that_make_different_steps_are_told(self) -> None:
        self.run_scenario("leaves_a_step_out", ends_with=END_OF_JOB)

    def states(self) -> list[dict[str, Any]]:
        return [torch.load(self.folder / f"state-{worker}", **ANY_CONTENT) for worker in range(2)]

    def test_tensors_are_used_where_they_are(self) -> None:
        self.run_scenario("tensors_are_arrays")

    def test_bfloat16_models_train_with_float32_master_values(self) -> None:
        for kind, clip in (("sgd", 0.0), ("adamw", 0.5)):
            with self.subTest(kind=kind):
                final = self.run_scenario("trains_in_bfloat16", kind, clip)["final"]

                print(f"{kind}: losses differ by at most {final['difference']:.1e} from float32 master values in one process")
                self.assertLess(final["difference"], 0.02)
                self.assertLess(final["last"], final["first"])

    def test_autocast_and_codecs(self) -> None:
        self.run_scenario("autocasts")

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "GradScaler is for CUDA alone before torch 2.3")
    def test_steps_that_overflow_change_nothing(self) -> None:
        self.run_scenario("scales_losses")

        first, second = (json.loads((self.folder / f"model-{worker}").read_text()) for worker in range(2))
        self.assertEqual(first, second)

    def test_wrong_use_is_named(self) -> None:
        self.run_scenario("wrong_use_is_named", workers=1, ends_with=3)

    def compare_with_ddp(self, kind: str, clip: float, micro: int) -> None:
        self.run_scenario("curve", kind, clip, micro)
        spawn = multiprocessing.get_context("spawn")
        answers = spawn.Queue()
        store = str(self.folder / f"rendezvous-{kind}-{clip}-{micro}")  # torch 2 leaves the file, and the next group would read it
        ranks = [spawn.Process(target=torch_scenarios.ddp_rank, args=(rank, store, kind, clip, micro, answers))
                 for rank in range(2)]
        for rank in ranks:
            rank.start()
            self.addCleanup(rank.kill)
        expected = dict(answers.get(timeout=60) for _ in ranks)
        for rank in ranks:
            rank.join(30)

        for worker in range(2):
            curve = json.loads((self.folder / f"curve-{worker}").read_text())
            worst = max(abs(a - b) / b for a, b in zip(curve, expected[worker]))
            print(f"{kind}, clip {clip}, micro-batches {micro}, worker {worker}: loss of 100 steps differs by at most {worst:.1e}")
            self.assertLess(worst, 1e-4)

    def test_loss_curves_are_those_of_ddp(self) -> None:
        for kind in ("sgd", "adam", "adamw"):
            for clip, micro in ((0, 1), (0.5, 1), (0, 2)):
                with self.subTest(kind=kind, clip=clip, micro=micro):
                    self.compare_with_ddp(kind, clip, micro)

    def test_optimizers_on_workers_are_as_with_ddp(self) -> None:
        names = [name for name, case in ddp_cases.CASES.items() if case.is_possible()]
        spawn = multiprocessing.get_context("spawn")
        answers = spawn.Queue()
        ranks = [spawn.Process(target=ddp_cases.run_group, args=(rank, str(self.folder / "rendezvous"), names, answers)) for rank in range(2)]
        for rank in ranks:
            rank.start()
            self.addCleanup(rank.kill)
        expected = dict(answers.get(timeout=RUN_SECONDS) for _ in ranks)
        for rank in ranks:
            rank.join(30)
        for name in names:
            with self.subTest(name=name):
                self.run_scenario("curve_on_workers", name, servers=1)

                curves = [json.loads((self.folder / f"curve-{worker}").read_text()) for worker in range(2)]
                self.assertEqual([len(each) for each in curves], [len(expected[worker][name]) for worker in range(2)])
                worst = max(abs(a - b) / max(abs(b), 1e-3) for worker in range(2) for a, b in zip(curves[worker], expected[worker][name]))
                print(f"{name}, on workers: losses differ by at most {worst:.1e}", flush=True)
                self.assertLess(worst, 1e-4)

    def test_types_are_checked(self) -> None:
        package = run(sys.executable, "-m", "mypy", "--strict", "-p", "pushpull", cwd=self.folder)

        self.assertEqual(package.returncode, 0, package.stdout)


if __name__ == "__main__":
    unittest.main()
