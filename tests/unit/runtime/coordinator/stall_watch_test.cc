// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

Stall Waiting(uint64_t step, std::vector<WorkerId> missing, double seconds = 11) {
  return {.step = Step{step}, .tensor = "w", .missing = std::move(missing), .seconds = seconds};
}

TEST(StallWatchTest, OneLineNamesAllMissingWorkers) {
  StallWatch watch;
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnServer(kB, Waiting(4, {WorkerId{0}, WorkerId{2}}, 12.3));

  EXPECT_EQ(watch.Take()->text,
            "step 4 waits for worker-0, worker-2: no gradient of tensor \"w\" for 12.3 s");
  EXPECT_FALSE(watch.Take().has_value());
}

TEST(StallWatchTest, ARepeatedStallIsReportedOnce) {
  StallWatch watch;
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}, 10));
  ASSERT_TRUE(watch.Take()->has_begun);

  watch.OnServer(kA, Waiting(4, {WorkerId{2}}, 11));

  EXPECT_FALSE(watch.Take().has_value());
}

TEST(StallWatchTest, TheEndOfAStallIsReported) {
  StallWatch watch;
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnServer(kB, Waiting(4, {WorkerId{2}}));
  watch.Take();

  watch.OnServer(kA, std::nullopt);
  EXPECT_FALSE(watch.Take().has_value());
  watch.Remove(kB);

  const auto news = watch.Take();
  ASSERT_TRUE(news.has_value());
  EXPECT_FALSE(news->has_begun);
  EXPECT_EQ(news->text, "step 4 goes on");
  EXPECT_FALSE(watch.Current().has_value());
}

TEST(StallWatchTest, TheLowestStepIsTheOneThatTheOthersWaitFor) {
  StallWatch watch;
  watch.OnServer(kA, Waiting(5, {WorkerId{1}}, 20));
  watch.OnServer(kB, Waiting(4, {WorkerId{2}}, 10));

  EXPECT_EQ(watch.Current()->step, Step{4});
  EXPECT_THAT(watch.Current()->missing, ElementsAre(WorkerId{2}));
}

TEST(StallWatchTest, WhoWaitsAndWhatTheMissingDoIsNamed) {
  StallWatch watch;
  Stall stall = Waiting(4, {WorkerId{2}}, 12.3);
  stall.waiting = {WorkerId{0}, WorkerId{1}};
  watch.OnServer(kA, stall);
  // Some of the gradients of worker 1 are in place, not all.
  watch.OnServer(kB, Waiting(4, {WorkerId{1}}));
  watch.OnWorker(WorkerId{0}, {.phase = WorkerPhase::kWaiting, .seconds = 1});
  watch.OnWorker(
      WorkerId{2},
      {.phase = WorkerPhase::kComputing, .seconds = 13.5, .step = Step{4}, .subject = "b"});

  EXPECT_EQ(watch.Take()->text,
            "step 4 waits for worker-1, worker-2: no gradient of tensor \"w\" for 12.3 s; "
            "worker-2: computing for 13.5 s, step 4, last pushed tensor \"b\"; worker-0 waits");
}

TEST(StallWatchTest, WorkerThatHasGoneIsNotDescribed) {
  StallWatch watch;
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnWorker(WorkerId{2}, {.phase = WorkerPhase::kComputing, .seconds = 13.5});
  watch.Remove(WorkerId{2});

  EXPECT_EQ(watch.Current()->detail, "");
}

}  // namespace
}  // namespace pushpull
