// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::StartsWith;
using namespace std::chrono_literals;

constexpr SteadyTime kNow = SteadyTime(1h);

Stall Waiting(uint64_t step, std::vector<WorkerId> missing, double seconds = 11) {
  return {.step = Step{step}, .tensor = "w", .missing = std::move(missing), .seconds = seconds};
}

TEST(StallWatchTest, OneLineNamesAllMissingWorkers) {
  StallWatch watch(10s);
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnServer(kB, Waiting(4, {WorkerId{0}, WorkerId{2}}, 12.3));

  EXPECT_EQ(watch.Take(kNow)->text,
            "step 4 waits for worker-0, worker-2: no gradient of tensor \"w\" for 12.3 s");
  EXPECT_FALSE(watch.Take(kNow).has_value());
}

TEST(StallWatchTest, ARepeatedStallIsReportedOnce) {
  StallWatch watch(10s);
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}, 10));
  ASSERT_TRUE(watch.Take(kNow)->has_begun);

  watch.OnServer(kA, Waiting(4, {WorkerId{2}}, 11));

  EXPECT_FALSE(watch.Take(kNow).has_value());
}

TEST(StallWatchTest, TheEndOfAStallIsReported) {
  StallWatch watch(10s);
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnServer(kB, Waiting(4, {WorkerId{2}}));
  watch.Take(kNow);

  watch.OnServer(kA, std::nullopt);
  EXPECT_FALSE(watch.Take(kNow).has_value());
  watch.Remove(kB);

  const auto news = watch.Take(kNow);
  ASSERT_TRUE(news.has_value());
  EXPECT_FALSE(news->has_begun);
  EXPECT_EQ(news->text, "step 4 goes on");
  EXPECT_FALSE(watch.Current(kNow).has_value());
}

TEST(StallWatchTest, TheLowestStepIsTheOneThatTheOthersWaitFor) {
  StallWatch watch(10s);
  watch.OnServer(kA, Waiting(5, {WorkerId{1}}, 20));
  watch.OnServer(kB, Waiting(4, {WorkerId{2}}, 10));

  EXPECT_EQ(watch.Current(kNow)->step, Step{4});
  EXPECT_THAT(watch.Current(kNow)->missing, ElementsAre(WorkerId{2}));
}

TEST(StallWatchTest, WhoWaitsAndWhatTheMissingDoIsNamed) {
  StallWatch watch(10s);
  Stall stall = Waiting(4, {WorkerId{2}}, 12.3);
  stall.waiting = {WorkerId{0}, WorkerId{1}};
  watch.OnServer(kA, stall);
  // Some of the gradients of worker 1 are in place, not all.
  watch.OnServer(kB, Waiting(4, {WorkerId{1}}));
  watch.OnWorker(kNow, WorkerId{0}, {.phase = WorkerPhase::kWaiting, .seconds = 1});
  watch.OnWorker(
      kNow,
      WorkerId{2},
      {.phase = WorkerPhase::kComputing, .seconds = 13.5, .step = Step{4}, .subject = "b"});

  EXPECT_EQ(watch.Take(kNow)->text,
            "step 4 waits for worker-1, worker-2: no gradient of tensor \"w\" for 12.3 s; "
            "worker-2: computing for 13.5 s, step 4, last pushed tensor \"b\"; worker-0 waits");
}

TEST(StallWatchTest, WorkerThatHasGoneIsNotDescribed) {
  StallWatch watch(10s);
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnWorker(kNow, WorkerId{2}, {.phase = WorkerPhase::kComputing, .seconds = 13.5});
  watch.Remove(WorkerId{2});

  EXPECT_EQ(watch.Current(kNow)->detail, "");
}

TEST(StallWatchTest, AWorkerWithoutHeartbeatsIsCalledSilent) {
  StallWatch watch(10s);
  watch.OnServer(kA, Waiting(4, {WorkerId{2}}));
  watch.OnWorker(kNow, WorkerId{2}, {.phase = WorkerPhase::kComputing, .seconds = 1});

  EXPECT_EQ(watch.Current(kNow + 4s)->detail,
            "worker-2: computing for 1.0 s, step 0, but silent for 4.0 s: stopped?");
}

TEST(StallWatchTest, AShortWaitIsNoStallButWhoeverWaitsIsTold) {
  StallWatch watch(10s);
  Stall wait = Waiting(4, {WorkerId{2}}, 1.5);
  wait.waiting = {WorkerId{0}, WorkerId{1}};
  watch.OnServer(kA, wait);

  EXPECT_FALSE(watch.Current(kNow).has_value());
  EXPECT_FALSE(watch.Take(kNow).has_value());
  const StepWaits told{
      .missing = {WorkerId{2}}, .what = "no gradient of tensor \"w\"", .step = Step{4}};
  EXPECT_THAT(watch.TakeWaits(kNow), ElementsAre(Pair(WorkerId{0}, told), Pair(WorkerId{1}, told)));
  EXPECT_THAT(watch.TakeWaits(kNow), IsEmpty());
}

TEST(StallWatchTest, WhoWaitsNoLongerIsToldOnce) {
  StallWatch watch(10s);
  Stall wait = Waiting(4, {WorkerId{2}}, 1.5);
  wait.waiting = {WorkerId{0}};
  watch.OnServer(kA, wait);
  watch.TakeWaits(kNow);

  watch.OnServer(kA, std::nullopt);

  EXPECT_THAT(watch.TakeWaits(kNow), ElementsAre(Pair(WorkerId{0}, StepWaits())));
  EXPECT_THAT(watch.TakeWaits(kNow), IsEmpty());
}

WorkerActivity InBarrier(double seconds, uint64_t step = 5) {
  return {.phase = WorkerPhase::kInCollective,
          .seconds = seconds,
          .step = Step{step},
          .subject = "barrier"};
}

TEST(StallWatchTest, ACollectiveWaitsForThoseThatHaveNotCalledIt) {
  StallWatch watch(10s);
  watch.OnWorker(kNow, WorkerId{0}, InBarrier(11));
  watch.OnWorker(
      kNow, WorkerId{1}, {.phase = WorkerPhase::kComputing, .seconds = 12, .step = Step{5}});
  watch.OnWorker(kNow, WorkerId{2}, InBarrier(2));
  watch.OnWorker(kNow, WorkerId{3}, {.phase = WorkerPhase::kJoining, .seconds = 3});
  watch.OnWorker(kNow, WorkerId{4}, {.phase = WorkerPhase::kLeaving, .seconds = 9});

  EXPECT_EQ(watch.Take(kNow)->text,
            "step 5 waits for worker-1: not in the others' barrier for 11.0 s; "
            "worker-1: computing for 12.0 s, step 5; worker-0, worker-2 wait");
}

TEST(StallWatchTest, AWorkerThatStopsInACollectiveIsMissing) {
  StallWatch watch(10s);
  watch.OnWorker(kNow, WorkerId{1}, InBarrier(1));
  watch.OnWorker(kNow + 11s, WorkerId{0}, InBarrier(11));

  EXPECT_THAT(watch.Current(kNow + 11s)->missing, ElementsAre(WorkerId{1}));
}

TEST(StallWatchTest, ACollectiveOfAllWaitsForNobody) {
  StallWatch watch(10s);
  watch.OnWorker(kNow, WorkerId{0}, InBarrier(11));
  watch.OnWorker(kNow, WorkerId{1}, InBarrier(12));

  EXPECT_FALSE(watch.Current(kNow).has_value());
}

TEST(StallWatchTest, AMessageWaitsForItsOtherEndOnly) {
  StallWatch watch(10s);
  WorkerActivity receives = InBarrier(11);
  receives.subject = "message";
  receives.peer = WorkerId{2};
  watch.OnWorker(kNow, WorkerId{0}, receives);
  watch.OnWorker(kNow, WorkerId{1}, {.phase = WorkerPhase::kComputing, .seconds = 12});
  WorkerActivity sends = receives;
  sends.seconds = 10.5;
  sends.peer = WorkerId{0};
  watch.OnWorker(kNow, WorkerId{2}, sends);

  EXPECT_THAT(watch.Current(kNow)->missing, ElementsAre(WorkerId{2}));
  EXPECT_THAT(watch.Current(kNow)->waiting, ElementsAre(WorkerId{0}));
}

TEST(StallWatchTest, AStepWithoutServersWaitsForThoseThatCompute) {
  StallWatch watch(10s);
  watch.OnWorker(
      kNow, WorkerId{0}, {.phase = WorkerPhase::kWaiting, .seconds = 11, .step = Step{5}});
  watch.OnWorker(
      kNow, WorkerId{1}, {.phase = WorkerPhase::kComputing, .seconds = 12, .step = Step{5}});

  EXPECT_THAT(watch.Take(kNow)->text,
              StartsWith("step 5 waits for worker-1: not all gradients are pushed for 11.0 s"));
}

}  // namespace
}  // namespace pushpull
