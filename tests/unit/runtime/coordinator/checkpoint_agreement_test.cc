// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Two servers with a chunk each.
class CheckpointAgreementTest : public testing::Test {
 protected:
  CheckpointAgreementTest()
      : saves_({.folder = "/ckpt",
                .every = std::chrono::minutes(10),
                .attempt_timeout = std::chrono::minutes(30),
                .first_attempt = 100}) {
    saves_.SetCapturers(job_, {kA, kB});
    saves_.Start(job_.now);
  }

  static Captured Files(uint64_t attempt, Step step, std::vector<uint64_t> chunks) {
    Captured captured{.attempt = attempt};
    captured.files.push_back({.name = "f" + std::to_string(chunks.front())});
    for (const uint64_t chunk : chunks)
      captured.files.front().chunks.push_back({.chunk = ChunkId{chunk}, .version = step});
    return captured;
  }
  static Captured Past(uint64_t attempt, Step highest) {
    return {.attempt = attempt,
            .status = absl::AbortedError("past"),
            .highest_version = highest,
            .files = {}};
  }
  // A save of which every chunk is in a file.
  CheckpointChange CaptureAll() {
    const Capture order = *saves_.Request(job_).capture;
    saves_.OnCaptured(job_, kA, Files(order.attempt, order.step, {0}));
    return saves_.OnCaptured(job_, kB, Files(order.attempt, order.step, {1}));
  }

  CheckpointAgreement::Job JobAfter(Duration later) const {
    CheckpointAgreement::Job job = job_;
    job.now += later;
    return job;
  }

  CheckpointAgreement::Job job_{
      .now = SteadyTime(std::chrono::hours(1)), .highest_version = Step{20}, .num_chunks = 2};
  CheckpointAgreement saves_;
};

TEST_F(CheckpointAgreementTest, AFolderThatCannotBeWrittenIsToldAtOnce) {
  const auto first = saves_.OnTick(job_);
  const auto meanwhile = saves_.OnTick(job_);
  const auto told = saves_.OnProbed(job_, absl::PermissionDeniedError("open /c/j: no permission"));
  const auto early = saves_.OnTick(JobAfter(std::chrono::seconds(29)));
  const auto second = saves_.OnTick(JobAfter(std::chrono::seconds(30)));

  ASSERT_TRUE(first.probe.has_value());
  EXPECT_EQ(first.probe->folder, "/ckpt");
  EXPECT_FALSE(meanwhile.probe.has_value());
  EXPECT_TRUE(told.is_problem);
  EXPECT_THAT(told.said, HasSubstr("/c/j: no permission"));
  EXPECT_FALSE(early.probe.has_value());
  EXPECT_TRUE(second.probe.has_value());
  EXPECT_EQ(saves_.status().problem, "open /c/j: no permission");
}

TEST_F(CheckpointAgreementTest, AFolderThatCanBeWrittenIsProbedNoMore) {
  saves_.OnTick(job_);
  saves_.OnProbed(job_, absl::PermissionDeniedError("no permission"));
  saves_.OnTick(JobAfter(std::chrono::seconds(30)));
  saves_.OnProbed(job_, absl::OkStatus());

  EXPECT_EQ(saves_.status().problem, "");
  EXPECT_FALSE(saves_.OnTick(JobAfter(std::chrono::seconds(60))).probe.has_value());
}

TEST_F(CheckpointAgreementTest, ARequestCapturesAStepThatNoChunkHasReached) {
  const CheckpointChange change = saves_.Request(job_);

  ASSERT_TRUE(change.capture.has_value());
  EXPECT_GT(change.capture->step, Step{20});
  EXPECT_EQ(change.capture->attempt, 100U);
  EXPECT_EQ(change.capture->folder, "/ckpt");
  EXPECT_EQ(saves_.status().requested, 1U);
}

TEST_F(CheckpointAgreementTest, TheManifestIsWrittenWhenEveryChunkIsInAFile) {
  const Capture order = *saves_.Request(job_).capture;

  const auto first = saves_.OnCaptured(job_, kA, Files(order.attempt, order.step, {0}));
  const auto second = saves_.OnCaptured(job_, kB, Files(order.attempt, order.step, {1}));

  EXPECT_FALSE(first.manifest.has_value());
  ASSERT_TRUE(second.manifest.has_value());
  EXPECT_EQ(second.manifest->manifest.step, order.step);
  EXPECT_EQ(second.manifest->files.size(), 2U);
  EXPECT_EQ(second.end->attempt, order.attempt);
}

TEST_F(CheckpointAgreementTest, AWrittenManifestIsACheckpoint) {
  const uint64_t attempt = CaptureAll().manifest->attempt;

  job_.now += std::chrono::seconds(3);
  saves_.OnManifest(job_, attempt, absl::OkStatus());

  EXPECT_EQ(saves_.status().saved, 1U);
  EXPECT_EQ(saves_.status().succeeded, 1U);
  EXPECT_EQ(saves_.status().seconds, 3);
  EXPECT_TRUE(saves_.is_idle());
}

TEST_F(CheckpointAgreementTest, AStepThatAChunkHasPassedGivesWayToAHigherOne) {
  const Capture order = *saves_.Request(job_).capture;

  const auto refused = saves_.OnCaptured(job_, kB, Past(order.attempt, Step{50}));
  const auto next = saves_.OnCleared(job_, order.attempt);

  EXPECT_EQ(refused.end->attempt, order.attempt);
  EXPECT_EQ(refused.clearing->step, order.step);
  ASSERT_TRUE(next.capture.has_value());
  EXPECT_GT(next.capture->step, Step{50});
  EXPECT_NE(next.capture->attempt, order.attempt);
  EXPECT_EQ(saves_.status().failures, 0U);
}

TEST_F(CheckpointAgreementTest, EveryRefusalLeavesTheNextStepMoreRoom) {
  Capture order = *saves_.Request(job_).capture;
  std::vector<uint64_t> rooms;

  for (int i = 0; i < 4; ++i) {
    const Step highest{order.step.value() + 10};
    saves_.OnCaptured(job_, kB, Past(order.attempt, highest));
    order = *saves_.OnCleared(job_, order.attempt).capture;
    rooms.push_back(order.step.value() - highest.value());
  }

  EXPECT_THAT(rooms, testing::ElementsAre(2, 4, 8, 16));
}

TEST_F(CheckpointAgreementTest, NoStepAtAllGivesTheSaveUp) {
  saves_.Request(job_);

  for (int i = 0; i < 100 && saves_.capture(); ++i) {
    const Capture order = *saves_.capture();
    saves_.OnCaptured(job_, kB, Past(order.attempt, Step{order.step.value() + 1}));
    saves_.OnCleared(job_, order.attempt);
  }

  EXPECT_TRUE(saves_.is_idle());
  EXPECT_EQ(saves_.status().failures, 1U);
}

TEST_F(CheckpointAgreementTest, AServerThatCannotWriteEndsTheSaveAndIsNamed) {
  const Capture order = *saves_.Request(job_).capture;

  const auto change = saves_.OnCaptured(job_,
                                        kB,
                                        {.attempt = order.attempt,
                                         .status = absl::ResourceExhaustedError("no space left"),
                                         .files = {}});
  saves_.OnCleared(job_, order.attempt);

  EXPECT_TRUE(change.is_problem);
  EXPECT_THAT(change.said, HasSubstr("server-1: no space left"));
  EXPECT_TRUE(saves_.is_idle());
  EXPECT_EQ(saves_.status().failures, 1U);
  EXPECT_EQ(saves_.status().finished, 1U);
  EXPECT_EQ(saves_.status().succeeded, 0U);
}

TEST_F(CheckpointAgreementTest, AChunkThatNobodyCapturedCostsATry) {
  const Capture order = *saves_.Request(job_).capture;
  saves_.OnCaptured(job_, kA, Files(order.attempt, order.step, {0}));

  const auto change = saves_.OnCaptured(job_, kB, {.attempt = order.attempt, .files = {}});
  const auto next = saves_.OnCleared(job_, order.attempt);

  EXPECT_FALSE(change.manifest.has_value());
  EXPECT_TRUE(next.capture.has_value());
}

TEST_F(CheckpointAgreementTest, WhatALostServerHadReportedStillCounts) {
  const Capture order = *saves_.Request(job_).capture;
  saves_.OnCaptured(job_, kA, Files(order.attempt, order.step, {0}));
  const auto lost = saves_.SetCapturers(job_, {kB});

  const auto change = saves_.OnCaptured(job_, kB, Files(order.attempt, order.step, {1}));

  EXPECT_FALSE(lost.manifest.has_value());
  EXPECT_TRUE(change.manifest.has_value());
}

TEST_F(CheckpointAgreementTest, LossOfAPartEndsTheAttempt) {
  const Capture order = *saves_.Request(job_).capture;
  saves_.OnCaptured(job_, kA, Files(order.attempt, order.step, {0}));

  const auto lost = saves_.OnPartLost();
  const auto next = saves_.OnCleared(job_, order.attempt);
  const auto late = saves_.OnCaptured(job_, kB, Files(order.attempt, order.step, {1}));

  EXPECT_TRUE(lost.end.has_value());
  EXPECT_TRUE(lost.clearing.has_value());
  ASSERT_TRUE(next.capture.has_value());
  EXPECT_GT(next.capture->attempt, order.attempt);
  EXPECT_FALSE(late.manifest.has_value());
}

TEST_F(CheckpointAgreementTest, WordsOnAnotherAttemptChangeNothing) {
  const Capture order = *saves_.Request(job_).capture;

  const auto old = saves_.OnCaptured(job_, kA, Files(order.attempt - 1, order.step, {0, 1}));
  const auto early = saves_.OnManifest(job_, order.attempt, absl::OkStatus());
  const auto cleared = saves_.OnCleared(job_, order.attempt);

  EXPECT_FALSE(old.manifest.has_value());
  EXPECT_THAT(early.said, IsEmpty());
  EXPECT_FALSE(cleared.capture.has_value());
  EXPECT_EQ(saves_.status().saved, 0U);
}

TEST_F(CheckpointAgreementTest, SavesAreDueAgainAndAgain) {
  const auto early = saves_.OnTick(JobAfter(std::chrono::minutes(9)));
  job_.now += std::chrono::minutes(10);
  const auto due = saves_.OnTick(job_);

  EXPECT_FALSE(early.capture.has_value());
  EXPECT_TRUE(due.capture.has_value());
}

TEST_F(CheckpointAgreementTest, AStepThatIsNeverReachedEndsAtTheDeadline) {
  saves_.Request(job_);

  job_.now += std::chrono::minutes(30);
  const auto change = saves_.OnTick(job_);

  EXPECT_TRUE(change.is_problem);
  EXPECT_THAT(change.said, HasSubstr("within 1800 s: nothing from server-0, server-1"));
}

TEST_F(CheckpointAgreementTest, RequestsDuringASaveShareTheNextOne) {
  const CheckpointChange first = CaptureAll();

  saves_.Request(job_);
  saves_.Request(job_);
  const uint64_t number = saves_.status().requested;
  const auto next = saves_.OnManifest(job_, first.manifest->attempt, absl::OkStatus());

  EXPECT_EQ(number, 2U);
  EXPECT_TRUE(next.capture.has_value());
}

TEST_F(CheckpointAgreementTest, TheEndOfTheJobIsSavedAtExactlyItsLastStep) {
  job_.is_over = true;

  const auto change = saves_.EndJob(job_);

  ASSERT_TRUE(change.capture.has_value());
  EXPECT_EQ(change.capture->step, Step{20});
  EXPECT_TRUE(change.capture->is_last);
}

TEST_F(CheckpointAgreementTest, ASaveThatWaitsForMoreStepsIsTurnedToTheLastOne) {
  const Capture order = *saves_.Request(job_).capture;
  job_.is_over = true;

  const auto ended = saves_.EndJob(job_);
  const auto next = saves_.OnCleared(job_, order.attempt);

  EXPECT_EQ(ended.end->attempt, order.attempt);
  ASSERT_TRUE(next.capture.has_value());
  EXPECT_EQ(next.capture->step, Step{20});
  EXPECT_EQ(saves_.status().requested, 1U);
}

TEST_F(CheckpointAgreementTest, AnEndThatIsSavedAlreadyIsNotSavedAgain) {
  const auto written = CaptureAll();
  saves_.OnManifest(job_, written.manifest->attempt, absl::OkStatus());
  job_.highest_version = written.manifest->manifest.step;
  job_.is_over = true;

  const auto change = saves_.EndJob(job_);

  EXPECT_FALSE(change.capture.has_value());
}

TEST_F(CheckpointAgreementTest, AFailedJobEndsItsSave) {
  const Capture order = *saves_.Request(job_).capture;

  const auto change = saves_.GiveUp();
  const auto later = saves_.OnTick(JobAfter(std::chrono::hours(2)));

  EXPECT_EQ(change.end->attempt, order.attempt);
  EXPECT_EQ(saves_.status().finished, 1U);
  EXPECT_FALSE(later.capture.has_value());
}

// ---- workers that keep something back ----

constexpr WorkerId kWilma{0};
constexpr WorkerId kXaver{1};

TEST_F(CheckpointAgreementTest, TheManifestWaitsForEveryWorkersWholePush) {
  saves_.SetWorkers(job_, {kWilma, kXaver});
  EXPECT_FALSE(CaptureAll().manifest.has_value());
  const uint64_t attempt = saves_.capture()->attempt;

  const auto first = saves_.OnWhole(job_, kWilma, {.attempt = attempt, .files = {}});
  const auto stale = saves_.OnWhole(job_, kXaver, {.attempt = attempt - 1, .files = {}});
  const auto second = saves_.OnWhole(job_, kXaver, {.attempt = attempt, .files = {}});

  EXPECT_FALSE(first.manifest.has_value());
  EXPECT_FALSE(stale.manifest.has_value());
  EXPECT_TRUE(second.manifest.has_value());
  EXPECT_TRUE(second.end.has_value());
}

TEST_F(CheckpointAgreementTest, AWorkerThatHasPassedTheStepEndsTheAttempt) {
  saves_.SetWorkers(job_, {kWilma, kXaver});
  const Capture order = *saves_.Request(job_).capture;

  const auto refused = saves_.OnWhole(job_, kXaver, Past(order.attempt, Step{60}));
  ASSERT_TRUE(refused.clearing.has_value());
  const auto next = saves_.OnCleared(job_, order.attempt);

  ASSERT_TRUE(next.capture.has_value());
  EXPECT_GT(next.capture->step, Step{60});
}

TEST_F(CheckpointAgreementTest, WhoHasGoneIsNotWaitedFor) {
  saves_.SetWorkers(job_, {kWilma, kXaver});
  EXPECT_FALSE(CaptureAll().manifest.has_value());
  saves_.OnWhole(job_, kWilma, {.attempt = saves_.capture()->attempt, .files = {}});

  EXPECT_TRUE(saves_.SetWorkers(job_, {kWilma}).manifest.has_value());
}

TEST_F(CheckpointAgreementTest, AttemptsThatWaitForAWorkerNameIt) {
  saves_.SetWorkers(job_, {kWilma, kXaver});
  CaptureAll();
  saves_.OnWhole(job_, kWilma, {.attempt = saves_.capture()->attempt, .files = {}});

  const auto change = saves_.OnTick(JobAfter(std::chrono::minutes(31)));

  EXPECT_THAT(change.said, HasSubstr("nothing from worker-1"));
}

TEST_F(CheckpointAgreementTest, AtTheEndOfTheJobNobodyIsWaitedFor) {
  saves_.SetWorkers(job_, {kWilma});
  job_.is_over = true;
  const Capture order = *saves_.EndJob(job_).capture;
  saves_.OnCaptured(job_, kA, Files(order.attempt, order.step, {0}));
  EXPECT_FALSE(saves_.OnWhole(job_, kWilma, Past(order.attempt, Step{60})).clearing.has_value());
  const auto last = saves_.OnCaptured(job_, kB, Files(order.attempt, order.step, {1}));

  EXPECT_TRUE(last.manifest.has_value());
}

}  // namespace
}  // namespace pushpull
