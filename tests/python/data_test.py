# SPDX-License-Identifier: Apache-2.0
"""Data sets that workers divide with pushpull.torch. Run as torch_test.py is."""
import collections
import json
import shutil
import unittest

from package_test import HERE, JobTest


ASYNC = ("spec.sync.mode=Async",)
BOUNDED = ("spec.sync.mode=Bounded", "spec.sync.staleness=2")


class DataTest(JobTest):
    SCENARIOS = HERE / "data_scenarios.py"

    def take_seen(self) -> list[list[tuple[int, int]]]:
        """What each process of the last job has seen."""
        files = list(self.folder.glob("seen-*"))
        seen = [[tuple(pair) for pair in json.loads(file.read_text())] for file in files]
        for file in files:
            file.unlink()
        return seen

    def assert_each_once(self, samples: int, epochs: int, processes: int = 2) -> list[list[tuple[int, int]]]:
        seen = self.take_seen()
        counts = collections.Counter(pair for pairs in seen for pair in pairs)
        wanted = {(epoch, sample) for epoch in range(epochs) for sample in range(samples)}

        self.assertEqual(len(seen), processes)
        self.assertEqual(sorted(wanted - counts.keys())[:5], [], "missing")
        self.assertEqual([(pair, count) for pair, count in counts.items() if count != 1 or pair not in wanted][:5], [])
        return seen

    def read(self, samples: int, **choices: object) -> list[list[tuple[int, int]]]:
        self.run_scenario("reads", samples, json.dumps(choices))
        return self.assert_each_once(samples, 2)

    def test_each_sample_is_seen_once(self) -> None:
        report = self.run_scenario("reads", 1000, "{}")

        self.assert_each_once(1000, 2)
        self.assertEqual(report["steps"], 16)
        self.assertEqual(report["final"]["batches"], 8)

    def test_each_sample_is_seen_once_with_processes(self) -> None:
        report = self.run_scenario("reads", 1000, json.dumps({"num_workers": 2}))

        self.assert_each_once(1000, 2)
        self.assertEqual(report["final"]["begun"], 2)  # once an epoch: every prediction was right

    def test_each_sample_is_seen_once_in_micro_batches(self) -> None:
        for num_workers in (0, 2):
            with self.subTest(num_workers=num_workers):
                self.read(1000, accumulate=2, batch_size=24, num_workers=num_workers)

    def test_last_step_may_have_fewer_samples_than_workers(self) -> None:
        for num_workers in (0, 2):
            with self.subTest(num_workers=num_workers):
                self.read(129, num_workers=num_workers, persistent_workers=num_workers > 0)

    def test_order_is_another_in_each_epoch(self) -> None:
        seen = self.read(1000)

        orders = [[sample for epoch, sample in pairs if epoch == wanted] for pairs in seen for wanted in (0, 1)]
        self.assertEqual(len({tuple(order[:20]) for order in orders}), 4)
        self.assertNotIn(sorted(orders[0]), orders)

    def test_order_is_that_of_the_data_if_told(self) -> None:
        for pairs in self.read(1000, shuffle=False):
            self.assertEqual(pairs, sorted(pairs))

    def test_plain_loader_takes_the_sampler(self) -> None:
        for accumulate in (1, 3):
            with self.subTest(accumulate=accumulate):
                self.run_scenario("reads_with_a_sampler", 1000, accumulate)
                self.assert_each_once(1000, 2)

    def test_distributed_optimizer_takes_the_mean_of_all(self) -> None:
        for num_workers, accumulate in ((0, 1), (2, 2)):
            with self.subTest(num_workers=num_workers, accumulate=accumulate):
                report = self.run_scenario("optimizes", num_workers, accumulate)
                self.assert_each_once(1000, 2)
                self.assertEqual(report["steps"], 2 * -(-1000 // (128 * accumulate)))

    def test_resizes_lose_and_repeat_nothing(self) -> None:
        self.run_scenario("resizes", 0)

        self.assert_each_once(8000, 2, processes=3)

    def test_resizes_lose_and_repeat_nothing_with_processes(self) -> None:
        self.run_scenario("resizes", 2)

        self.assert_each_once(8000, 2, processes=3)

    def test_successor_continues_within_the_epoch(self) -> None:
        self.run_scenario("is_replaced", 0)

        self.assert_each_once(3000, 3, processes=3)

    def test_successor_with_processes_continues_too(self) -> None:
        self.run_scenario("is_replaced", 2)

        self.assert_each_once(3000, 3, processes=3)

    def test_iteration_that_is_left_continues(self) -> None:
        self.run_scenario("is_left_early")

        self.assert_each_once(1000, 2)

    def test_samplers_are_drawn_alike_in_all_workers(self) -> None:
        for num_workers in (0, 2):
            with self.subTest(num_workers=num_workers):
                self.run_scenario("reads_drawn", "sampler", num_workers)
                seen = [pair for pairs in self.take_seen() for pair in pairs]
                self.assertEqual(sorted(seen), [(epoch, sample) for epoch in range(2) for sample in range(100, 200)])

    def test_weighted_samples_are_those_of_one_draw(self) -> None:
        self.run_scenario("reads_drawn", "weighted", 0)

        seen = [pair for pairs in self.take_seen() for pair in pairs]
        heavy = sum(sample % 2 for _, sample in seen)
        self.assertEqual(len(seen), 400)
        self.assertTrue(250 < heavy < 350, heavy)  # three in four, of the same draw in every run

    def test_sampler_that_differs_between_workers_is_refused(self) -> None:
        self.run_scenario("draws_otherwise")

    def test_batches_of_a_batch_sampler_stay_whole(self) -> None:
        self.run_scenario("reads_drawn", "batch_sampler", 0)

        self.assert_each_once(sum(2 + i % 3 for i in range(41)), 2)

    def test_last_step_gives_nobody_a_single_sample(self) -> None:
        for drop_last, sizes in ((False, [[16, 16, 2] * 2, [16, 16] * 2]), (True, [[16, 16] * 2] * 2)):
            with self.subTest(drop_last=drop_last):
                self.run_scenario("has_a_small_last_step", drop_last)
                self.assertEqual([json.loads((self.folder / f"sizes-{worker}").read_text()) for worker in range(2)], sizes)

    def test_endless_loop_has_an_error_after_the_last_epoch(self) -> None:
        self.run_scenario("cycles", 10)

    def test_released_worker_ends_in_an_endless_loop(self) -> None:
        self.run_scenario("is_released_from_an_endless_loop")

        self.assertTrue((self.folder / "released").exists())

    def resume(self, *arguments: object, ends_with: int = 0, settings: tuple[str, ...] = (),
               **choices: object) -> list[tuple[int, int]]:
        """Goes on after the last run; what it has seen."""
        self.run_scenario("is_resumed", *arguments, json.dumps(choices), ends_with=ends_with,
                          settings=("spec.checkpoint.claim=models", *settings))
        return sorted(pair for pairs in self.take_seen() for pair in pairs)

    def test_resumed_job_trains_the_epochs_that_were_added(self) -> None:
        self.resume(160, 2, 0)

        self.assertEqual(self.resume(160, 4, 0), [(epoch, sample) for epoch in (2, 3) for sample in range(160)])

    def test_next_epochs_have_the_size_of_a_changed_data_set(self) -> None:
        for count in (100, 200):
            with self.subTest(count=count):
                self.resume(160, 1, 0)
                self.assertEqual(self.resume(count, 3, 0), [(epoch, sample) for epoch in (1, 2) for sample in range(count)])
                shutil.rmtree(self.folder / ".pushpull")

    def test_job_is_resumed_in_another_mode(self) -> None:
        for first, second in (((), ASYNC), (ASYNC, ())):
            with self.subTest(first=first, second=second):
                self.resume(160, 1, 0, settings=first)
                self.assertEqual(self.resume(100, 2, 0, settings=second), [(1, sample) for sample in range(100)])
                shutil.rmtree(self.folder / ".pushpull")

    def test_changes_that_a_resumed_job_cannot_take_are_named(self) -> None:
        self.resume(160, 3, 14)

        self.resume(100, 3, 0, ends_with=3)
        self.assertRegex((self.folder / "refused").read_text(), "epoch 1 of the job has 160 samples.* 100.*restoreFrom")
        self.resume(160, 3, 0, ends_with=3, drop_last=True)
        self.assertRegex((self.folder / "refused").read_text(), "drop_last=False")

    def test_spawned_processes_have_no_part_in_the_job(self) -> None:
        self.run_scenario("spawns_processes", workers=1)

        self.assert_each_once(32, 1, processes=1)

    def test_program_that_a_spawned_process_imports_is_refused(self) -> None:
        report = self.run_scenario("spawns_a_process_that_runs_the_program", workers=1, fails=True)

        self.assertEqual((report["steps"], report["restarts"]), (4, 0))
        log = "".join(each.read_text() for each in self.folder.glob(".pushpull/*/logs/worker-0*"))
        self.assertIn('if __name__ == "__main__":', log)

    def test_worker_killed_in_a_gated_step_counts_samples_once(self) -> None:
        report = self.run_scenario("fails_in_a_gated_step", settings=("spec.sync.gated=true",))

        counted = [pair for file in self.folder.glob("counted-*") for pair in file.read_text().split()]
        self.assertEqual(sorted(counted), sorted(f"{epoch}:{sample}" for epoch in range(2) for sample in range(2000)))
        self.assertEqual(report["uneven_steps"], 0)

    def test_async_workers_share_each_epoch(self) -> None:
        for settings in (ASYNC, BOUNDED):
            for num_workers in (0, 2):
                with self.subTest(settings=settings, num_workers=num_workers):
                    self.run_scenario("reads", 1000, json.dumps({"num_workers": num_workers, "batch_size": 16}), workers=3,
                                      settings=settings)

                    self.assert_each_once(1000, 2, processes=3)

    def test_async_worker_that_joins_shares_the_epoch(self) -> None:
        self.run_scenario("resizes", 0, settings=ASYNC)

        seen = self.assert_each_once(8000, 2, processes=3)
        self.assertGreater(min(len(pairs) for pairs in seen), 100)

    def test_samples_of_a_dead_async_worker_are_trained(self) -> None:
        for settings in (ASYNC, BOUNDED):
            with self.subTest(settings=settings):
                report = self.run_scenario("dies_in_a_step", settings=settings)

                counted = [pair for file in self.folder.glob("counted-*") for pair in file.read_text().split()]
                self.assertEqual(sorted(counted), sorted(f"{epoch}:{sample}" for epoch in range(2) for sample in range(1000)))
                self.assertEqual(report["restarts"], 1)
                for file in self.folder.glob("*ed*"):
                    if file.is_file():
                        file.unlink()

    def test_backup_workers_make_no_steps_in_vain(self) -> None:
        report = self.run_scenario("reads", 1000, "{}", workers=3, settings=("spec.sync.backupWorkers=1",))

        seen = {pair for pairs in self.take_seen() for pair in pairs}
        self.assertEqual(seen, {(epoch, sample) for epoch in range(2) for sample in range(1000)})
        needed = 2 * -(-1000 // 128)  # of two contributors each
        self.assertGreaterEqual(report["steps"], needed)
        self.assertLessEqual(report["steps"], needed + 2 * 6)  # what is left is divided again until nothing is

    def test_wrong_use_is_named(self) -> None:
        self.run_scenario("wrong_use_is_named", workers=1, ends_with=3)


if __name__ == "__main__":
    unittest.main()
