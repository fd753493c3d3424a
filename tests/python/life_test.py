# SPDX-License-Identifier: Apache-2.0
"""Programs whose workers join late, are released, come back, resume and end. Run as torch_test.py is."""
import json
import shutil
import unittest
from typing import Any

from life_scenarios import DECAY, LR
from package_test import HERE, JobTest

REPOSITORY = HERE.parent.parent
SAVES = ("spec.checkpoint.claim=models",)
GATED = ("spec.sync.gated=true",)
BACKUP = ("spec.sync.backupWorkers=1",)
ALL_REDUCE = ("spec.sync.mode=AllReduce",)
ASYNC = ("spec.sync.mode=Async",)


class LifeTest(JobTest):
    SCENARIOS = HERE / "life_scenarios.py"

    def take(self, name: str = "end") -> list[dict[str, Any]]:
        """What the workers of the last job have written, by index."""
        files = sorted(self.folder.glob(f"{name}-*"))
        found = [json.loads(file.read_text()) for file in files]
        for file in files:
            file.unlink()
        return found

    def begin_anew(self) -> None:
        shutil.rmtree(self.folder / ".pushpull", ignore_errors=True)
        for file in self.folder.glob("began-*"):
            file.unlink()

    def train(self, disturbance: str, place: str = "servers", settings: tuple[str, ...] = SAVES, epochs: int = 4,
              **choices: Any) -> list[dict[str, Any]]:
        self.run_scenario("trains", place, epochs, disturbance, settings=settings, **choices)
        return self.take()

    def train_alone(self, disturbance: str, mode: tuple[str, ...], more: tuple[str, ...] = (), epochs: int = 4,
                    **choices: Any) -> list[dict[str, Any]]:
        """Likewise in a mode that may have no collectives: each worker validates by itself."""
        self.run_scenario("trains", "servers", epochs, disturbance, "alone", servers=0 if mode == ALL_REDUCE else 2,
                          settings=(*mode, *more), **choices)
        return self.take()

    def assert_kept(self, end: dict[str, Any], epochs: int = 4) -> None:
        """Every step of the job is in the program's state, each epoch was validated once, and the schedule is that of the job's step."""
        self.assertEqual(end["steps"], end["job_steps"])
        self.assertAlmostEqual(end["lr"], LR * DECAY ** end["job_steps"], delta=1e-9)
        self.assertEqual(len(end["values"]), epochs)
        self.assertEqual(end["best"], min(end["values"]))
        self.assertEqual(end["epochs"][-1], epochs - 1)

    def test_resumed_job_is_as_one_without_a_pause(self) -> None:
        for place in ("servers", "workers"):
            with self.subTest(place=place):
                self.begin_anew()
                whole = self.train("none", place)
                self.begin_anew()
                self.train("stop", place)
                resumed = self.train("stop", place)

                for before, after in zip(whole, resumed):
                    self.assert_kept(after)
                    self.assertEqual((after["first"], after["epochs"]), (17, [2, 3]))
                    self.assertEqual({**after, "first": 0, "epochs": [0, 1, 2, 3]}, before)

    def test_lost_worker_returns_with_the_others_state(self) -> None:
        for place in ("servers", "workers"):
            for disturbance in ("kill", "evict"):
                with self.subTest(place=place, disturbance=disturbance):
                    self.begin_anew()
                    (self.folder / "back").unlink(missing_ok=True)
                    ends = self.train(disturbance, place, ("spec.restart.initialDelaySeconds=1",), epochs=60, fails=True)
                    self.take("released")

                    self.assertEqual(len(ends), 2)
                    for end in ends:
                        self.assert_kept(end, 60)
                        self.assertEqual((end["values"], end["weight"], end["drawn"]),
                                         (ends[0]["values"], ends[0]["weight"], ends[0]["drawn"]))

    def test_state_is_resumed_in_every_mode(self) -> None:
        for mode in (GATED, ALL_REDUCE, ASYNC):
            with self.subTest(mode=mode):
                self.begin_anew()
                whole = self.train_alone("none", mode, SAVES)
                self.begin_anew()
                stopped = self.train_alone("stop", mode, SAVES)
                resumed = self.train_alone("stop", mode, SAVES)

                for before, pause, after in zip(whole, stopped, resumed):
                    self.assertEqual((len(after["values"]), after["epochs"][-1]), (4, 3))
                    self.assertGreater(after["steps"], pause["steps"])
                    self.assertAlmostEqual(after["lr"], LR * DECAY ** after["steps"], delta=1e-9)
                    if mode in (GATED, ALL_REDUCE):
                        self.assertEqual({**after, "first": 0, "epochs": [0, 1, 2, 3]}, before)

    def test_lost_worker_gets_the_state_of_each_mode(self) -> None:
        for mode, workers in ((GATED, 2), (ALL_REDUCE, 2), (BACKUP, 3)):
            with self.subTest(mode=mode):
                self.begin_anew()
                (self.folder / "back").unlink(missing_ok=True)
                ends = self.train_alone("kill", mode, ("spec.restart.initialDelaySeconds=1",), 60, workers=workers, fails=True)

                self.assertEqual(len(ends), workers)
                for end in ends:
                    self.assert_kept(end, 60)
                    self.assertEqual((end["weight"], end["drawn"]), (ends[0]["weight"], ends[0]["drawn"]))

    def test_schedule_in_state_keeps_its_last_rate(self) -> None:
        self.run_scenario("outlives_its_schedule", workers=1)

        rates = self.take()[0]["rates"]
        self.assertEqual(len(rates), 12)
        self.assertEqual(rates[4:], rates[3:4] * 8)

    def test_state_that_comes_too_late_for_its_step_is_refused(self) -> None:
        for mode in (GATED, ALL_REDUCE):
            with self.subTest(mode=mode):
                self.run_scenario("changes_state_late", settings=mode, servers=0 if mode == ALL_REDUCE else 2, ends_with=3)

    def test_workers_join_and_are_released_in_order(self) -> None:
        for place in ("servers", "workers"):
            with self.subTest(place=place):
                self.begin_anew()
                (self.folder / "four").unlink(missing_ok=True)
                ends = self.train("scale", place, (), epochs=60)

                self.assertEqual(len(ends), 1)
                self.assert_kept(ends[0], 60)
                self.assertEqual(len(self.take("released")), 3)

    def test_epochs_of_numpy_remain_those_of_the_job(self) -> None:
        self.run_scenario("counts_epochs_of_numpy", 9, settings=SAVES)
        self.take()
        self.run_scenario("counts_epochs_of_numpy", 9, settings=SAVES)

        for end in self.take():
            self.assertEqual([epoch for epoch, _ in end["seen"]], [0, 1, 2])
            self.assertEqual((end["seen"][0], end["seen"][2]), ([0, 48], [2, 48]))

    def test_epochs_that_are_over_are_refused_by_name(self) -> None:
        for body, words in (("reads", 'reading parameter "weight"'), ("saves", 'reading parameter "weight"'), ("calls", "all_reduce"),
                            ("divides", "ZeroDivisionError")):
            with self.subTest(body=body):
                self.begin_anew()
                self.run_scenario("loops_over_a_range", body, settings=SAVES)
                report = self.run_scenario("loops_over_a_range", body, settings=SAVES, ends_with=1, fails=True)

                self.assertIn(words, json.dumps(report).replace('\\"', '"'))
                self.assertIn("loader.epochs()", json.dumps(report))

    def test_schedule_for_each_epoch_is_right_in_a_range(self) -> None:
        self.run_scenario("loops_over_a_range", "nothing", settings=SAVES)
        self.run_scenario("loops_over_a_range", "nothing", settings=SAVES)

        for end in self.take():
            self.assertEqual({(epoch, rate) for epoch, rate in end["rates"]}, {(epoch, LR * 0.5 ** epoch) for epoch in (2, 3, 4)})

    def test_job_with_nothing_left_ends_in_order(self) -> None:
        self.run_scenario("loops_over_a_range", "nothing", settings=SAVES)
        self.run_scenario("loops_over_a_range", "nothing", settings=SAVES)
        for body in ("reads", "calls"):
            with self.subTest(body=body):
                self.run_scenario("loops_over_a_range", body, settings=SAVES)

                log = next(iter(self.folder.glob(".pushpull/*/logs/worker-0*"))).read_text()
                self.assertIn("nothing is left to do: the job has trained its 5 epochs", log)

    def test_schedule_that_begins_anew_is_refused_by_name(self) -> None:
        for kind in ("batch", "epoch"):
            with self.subTest(kind=kind):
                self.begin_anew()
                self.run_scenario("keeps_no_schedule", kind, settings=SAVES)
                self.run_scenario("keeps_no_schedule", kind, settings=(*SAVES, "spec.restart.backoffLimit=0"), ends_with=1, fails=True)

                logs = "".join(log.read_text() for log in self.folder.glob(".pushpull/*/logs/worker-*"))
                self.assertIn("ExponentialLR has made", logs)
        self.begin_anew()
        self.run_scenario("keeps_no_schedule", "made", settings=SAVES)
        self.run_scenario("keeps_no_schedule", "made", settings=SAVES)

    def test_state_is_set_in_the_objects_of_the_program(self) -> None:
        self.run_scenario("keeps_every_kind", settings=SAVES)
        before = self.take()[0]
        self.run_scenario("keeps_every_kind", settings=SAVES)

        after = self.take()[0]
        self.assertEqual((before["count"], before["notes"], before["name"]), (3, [0, 1, 2], "abbb"))
        self.assertEqual((after["count"], after["notes"], after["name"]), (6, [0, 1, 2, 3, 4, 5], "abbbbbb"))
        self.assertEqual((after["table"]["5"], after["array"], after["tensor"]), (5, [6, 6], [6, 6]))
        self.assertNotEqual(before["drawn"], after["drawn"])

    def test_what_has_no_state_is_named(self) -> None:
        self.run_scenario("is_no_state", workers=1, ends_with=3)

    def test_epoch_without_a_step_is_named(self) -> None:
        self.run_scenario("makes_no_step", workers=1, ends_with=3)

    def test_last_line_of_a_program_leaves_the_job(self) -> None:
        for code in ("none", "0"):
            with self.subTest(code=code):
                self.begin_anew()
                report = self.run_scenario("ends_with", code, settings=SAVES)

                self.assertEqual(report["steps"], 10)
                self.assertEqual(report["checkpoint"]["step"], 10)

    def test_program_that_fails_does_not_leave_the_job(self) -> None:
        for code in ("1", "error"):
            with self.subTest(code=code):
                self.begin_anew()
                self.run_scenario("ends_with", code, settings=("spec.restart.backoffLimit=0",), ends_with=1, fails=True)

    def test_early_call_of_a_joiner_is_refused(self) -> None:
        self.run_scenario("calls_before_it_begins")

        self.assertTrue((self.folder / "refused").exists())


    def test_documented_program_is_resumed(self) -> None:
        text = (REPOSITORY / "docs/resuming.md").read_text()
        program = self.folder / "program.py"
        program.write_text(text.split("```python\n")[1].split("```")[0].replace("EPOCHS, PATIENCE = 20", "EPOCHS, PATIENCE = int(sys.argv[2])")
                           .replace("import math\n", "import math\nimport sys\n"))
        self.SCENARIOS = program
        self.assertLessEqual(len(text.split("```python\n")[1].split("```")[0].splitlines()), 60)

        best = [self.run_scenario("documented", epochs, settings=SAVES)["final"]["best"] for epochs in (4, 7)]

        self.assertLess(best[1], best[0])
        logs = [log.read_text() for log in self.folder.glob(".pushpull/documented/logs/worker-*")]
        for log in logs:  # what stands after epoch 3's loop runs again
            self.assertRegex(log, "(?s)epoch 3.*epoch 4.*epoch 6")
            self.assertNotIn("epoch 2", log)
        self.assertEqual(len(logs), 2)


if __name__ == "__main__":
    unittest.main()
