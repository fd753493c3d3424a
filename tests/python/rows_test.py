# SPDX-License-Identifier: Apache-2.0
"""Row-sparse tensors as a user has them: real processes, `pushpull run`, NumPy and the torch of the system.

Run by the Python of an environment that has the wheel and torch; `./dev python` makes one (__main__.py beside this).
"""
import unittest

from package_test import END_OF_JOB, HERE, JobTest


class RowsTest(JobTest):
    SCENARIOS = HERE / "rows_scenarios.py"

    def test_rows_train_like_a_dense_tensor(self) -> None:
        for kind in ("sgd", "adagrad"):
            with self.subTest(kind=kind):
                self.run_scenario("trains_like_a_dense_tensor", kind)

    def test_rows_begin_as_told_and_are_evicted(self) -> None:
        self.run_scenario("rows_begin_and_are_evicted")

    def test_a_worker_without_samples_pushes_no_rows(self) -> None:
        self.run_scenario("rows_without_samples")

    def test_other_threads_run_while_one_waits(self) -> None:
        self.run_scenario("other_threads_run_in_waits")

    def test_wrong_rows_are_named(self) -> None:
        self.run_scenario("wrong_rows_are_named", workers=1)

    def test_settings_that_do_not_fit_are_named(self) -> None:
        for setting in ("sum", "scale", "max"):
            with self.subTest(setting=setting):
                self.run_scenario("settings_that_do_not_fit", setting, workers=1, ends_with=END_OF_JOB)
        self.run_scenario("settings_that_do_not_fit", "mode", workers=1, ends_with=END_OF_JOB,
                          settings=("spec.sync.mode=Async",))


if __name__ == "__main__":
    unittest.main()
