// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/workers_scale.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

constexpr int64_t kNew = 1;
constexpr int64_t kChanged = 2;

TrainingJobObject JobOf(int replicas) {
  TrainingJobObject job;
  job.job.spec.workers = {.replicas = replicas, .min_replicas = 2, .max_replicas = 8};
  job.status.workers.replicas = 3;
  return job;
}

// Of which every field but the number is as it should be.
TrainingJobWorkers WorkersOf(int replicas, std::optional<int> agreed) {
  return {.size = {.replicas = replicas, .min_replicas = 2, .max_replicas = 8},
          .status = {.replicas = 3,
                     .selector = "pushpull.dev/job=j,app.kubernetes.io/component=worker",
                     .agreed_replicas = agreed}};
}

TEST(WorkersScaleTest, AJobGetsOneWithItsNumberAndLimits) {
  const ScaleStep step = NextScaleStep("j", JobOf(4), nullptr, 0);

  EXPECT_EQ(step, ScaleStep(CreateWorkersScale{{4, 2, 8}}));
}

TEST(WorkersScaleTest, AJobThatHasEndedGetsNone) {
  TrainingJobObject job = JobOf(4);
  job.status.completion_time = WallTime();

  EXPECT_EQ(NextScaleStep("j", job, nullptr, 0), ScaleStep());
}

TEST(WorkersScaleTest, WhoseNumberWasChangedGivesItToTheOther) {
  const TrainingJobWorkers scaled = WorkersOf(6, 4);
  const TrainingJobWorkers as_before = WorkersOf(4, 4);

  EXPECT_EQ(NextScaleStep("j", JobOf(4), &scaled, kChanged), ScaleStep(SetJobWorkers{6}));
  EXPECT_EQ(NextScaleStep("j", JobOf(5), &as_before, kChanged),
            ScaleStep(SetWorkersSize{{5, 2, 8}}));
}

TEST(WorkersScaleTest, OfTwoChangesTheJobsIsTaken) {
  const TrainingJobWorkers scaled = WorkersOf(6, 4);

  EXPECT_EQ(NextScaleStep("j", JobOf(5), &scaled, kChanged), ScaleStep(SetWorkersSize{{5, 2, 8}}));
}

TEST(WorkersScaleTest, WhatBothSayIsRememberedThenNothingFollows) {
  const TrainingJobWorkers equal = WorkersOf(6, 4);
  const TrainingJobWorkers settled = WorkersOf(6, 6);

  EXPECT_EQ(NextScaleStep("j", JobOf(6), &equal, kChanged),
            ScaleStep(SetScaleStatus{WorkersOf(6, 6).status}));
  EXPECT_EQ(NextScaleStep("j", JobOf(6), &settled, kChanged), ScaleStep());
}

TEST(WorkersScaleTest, OneThatWasScaledBeforeItsFirstStatusIsHeard) {
  const TrainingJobWorkers scaled = WorkersOf(6, std::nullopt);
  const TrainingJobWorkers fresh = WorkersOf(4, std::nullopt);

  EXPECT_EQ(NextScaleStep("j", JobOf(4), &scaled, kChanged), ScaleStep(SetJobWorkers{6}));
  // The job was changed before the operator came to write that status.
  EXPECT_EQ(NextScaleStep("j", JobOf(5), &fresh, kNew), ScaleStep(SetWorkersSize{{5, 2, 8}}));
}

TEST(WorkersScaleTest, LimitsThatSomebodyElseWroteAreCorrected) {
  TrainingJobWorkers odd = WorkersOf(4, 4);
  odd.size.max_replicas = 4096;

  EXPECT_EQ(NextScaleStep("j", JobOf(4), &odd, kChanged), ScaleStep(SetWorkersSize{{4, 2, 8}}));
}

TEST(WorkersScaleTest, AStepKeepsAWorkerBesideItsBackups) {
  TrainingJobObject job = JobOf(4);
  job.job.spec.sync.backup_workers = 3;

  EXPECT_EQ(WorkersSizeOf(job.job.spec).min_replicas, 4);

  job.job.spec.sync.mode = pushpull::SyncMode::kAsync;

  EXPECT_EQ(WorkersSizeOf(job.job.spec).min_replicas, 2);
}

TEST(WorkersScaleTest, ANumberThatCameTooLateIsTakenBack) {
  TrainingJobObject job = JobOf(4);
  job.status.completion_time = WallTime();
  const TrainingJobWorkers scaled = WorkersOf(6, 4);

  EXPECT_EQ(NextScaleStep("j", job, &scaled, kChanged), ScaleStep(SetWorkersSize{{4, 2, 8}}));

  TrainingJobWorkers settled = WorkersOf(4, 4);
  settled.status.is_finished = true;
  EXPECT_EQ(NextScaleStep("j", job, &settled, kChanged), ScaleStep());
}

}  // namespace
}  // namespace pushpull_operator
