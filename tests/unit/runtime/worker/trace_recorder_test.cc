// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/trace_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const SteadyTime kTraceStart{std::chrono::hours(1)};

class TraceRecorderTest : public testing::Test {
 protected:
  TraceRecorderTest() {
    PlacedTensor bias{.first_chunk = ChunkId{4}};
    bias.spec.name = "bias";
    PlacedTensor weight{.first_chunk = ChunkId{0}};
    weight.spec.name = "w";
    trace.SetTensors({bias, weight});
  }

  void Start(uint32_t steps = 2,
             uint32_t pushes_max = 100'000,
             std::optional<Step> first = Step{5}) {
    trace.Start(
        {.number = 9, .steps = steps, .pushes_max = pushes_max, .within = std::chrono::seconds(60)},
        first,
        kTraceStart);
  }
  // A step with one push of each of these chunks.
  void Push(uint64_t step, const std::vector<uint64_t>& chunks) {
    for (const uint64_t chunk : chunks) {
      trace.OnAnswered({.server = ServerId{1},
                        .chunk = ChunkId{chunk},
                        .step = Step{step},
                        .offset = std::chrono::nanoseconds(77)},
                       {},
                       {});
    }
  }
  std::vector<uint64_t> StepsOf(const std::vector<TraceReport>& reports) {
    std::vector<uint64_t> steps;
    for (const TraceReport& report : reports)
      for (const TracedPush& push : report.pushes) steps.push_back(push.step.value());
    return steps;
  }

  TraceRecorder trace{WorkerId{3}};
};

TEST_F(TraceRecorderTest, TheStepsThatBeginAfterTheOrderAreRecorded) {
  Start(2);
  for (const uint64_t step : {4, 5, 6, 7}) {
    Push(step, {0});
    trace.OnSynchronized(Step{step});
  }

  const std::vector<TraceReport> reports = trace.TakeIfOver(kTraceStart);

  EXPECT_THAT(StepsOf(reports), ElementsAre(5, 6));
  EXPECT_EQ(reports[0].number, 9);
  EXPECT_TRUE(reports[0].is_last);
  EXPECT_FALSE(trace.is_on());
  EXPECT_THAT(trace.TakeIfOver(kTraceStart + std::chrono::hours(1)), IsEmpty());
}

TEST_F(TraceRecorderTest, AWorkerThatHasNotBegunRecordsItsFirstSteps) {
  Start(1, 100, std::nullopt);
  for (const uint64_t step : {500, 501}) {
    Push(step, {0});
    trace.OnSynchronized(Step{step});
  }

  EXPECT_THAT(StepsOf(trace.TakeIfOver(kTraceStart)), ElementsAre(500));
}

TEST_F(TraceRecorderTest, ATraceIsNotOverBeforeItsLastStepIs) {
  Start(2);
  Push(5, {0});
  trace.OnSynchronized(Step{5});
  Push(6, {0});
  EXPECT_THAT(trace.TakeIfOver(kTraceStart), IsEmpty());

  trace.OnSynchronized(Step{6});

  EXPECT_THAT(trace.TakeIfOver(kTraceStart), SizeIs(1));
}

TEST_F(TraceRecorderTest, APushOfSomeTensorsEndsATraceTwoStepsLater) {
  Start(1);
  Push(5, {0});
  Push(6, {0});
  EXPECT_THAT(trace.TakeIfOver(kTraceStart), IsEmpty());

  Push(7, {0});

  EXPECT_THAT(StepsOf(trace.TakeIfOver(kTraceStart)), ElementsAre(5));
}

TEST_F(TraceRecorderTest, WhatThereIsIsReportedAtTheDeadline) {
  Start(20);
  Push(5, {0});
  EXPECT_THAT(trace.TakeIfOver(kTraceStart + std::chrono::seconds(59)), IsEmpty());

  EXPECT_THAT(StepsOf(trace.TakeIfOver(kTraceStart + std::chrono::seconds(60))), ElementsAre(5));
}

TEST_F(TraceRecorderTest, AWorkerThatLeavesReportsWhatThereIs) {
  Start(20);
  Push(5, {0});

  trace.End();

  EXPECT_THAT(StepsOf(trace.TakeIfOver(kTraceStart)), ElementsAre(5));
}

TEST_F(TraceRecorderTest, PushesBeyondTheRoomAreCounted) {
  Start(1, 3);
  Push(5, {0, 1, 2, 3, 4});
  trace.AddSpan({.name = "forward"});
  trace.OnSynchronized(Step{5});

  const std::vector<TraceReport> reports = trace.TakeIfOver(kTraceStart);

  EXPECT_THAT(StepsOf(reports), SizeIs(3));
  EXPECT_EQ(reports.back().left_out, 3);
}

TEST_F(TraceRecorderTest, AReportNamesTheTensorsAndClocksOfItsPushes) {
  Start(1);
  Push(5, {5});
  trace.OnSynchronized(Step{5});

  const TraceReport report = trace.TakeIfOver(kTraceStart).at(0);

  EXPECT_THAT(report.tensors, ElementsAre(TracedTensor{"bias", ChunkId{4}}));
  EXPECT_THAT(report.clocks, ElementsAre(TracedClock{ServerId{1}, 77}));
  EXPECT_EQ(report.worker, WorkerId{3});
}

TEST_F(TraceRecorderTest, LongTracesTravelInParts) {
  Start(1);
  Push(5, std::vector<uint64_t>(TraceReport::kPushesMax + 1, 0));
  trace.OnSynchronized(Step{5});

  const std::vector<TraceReport> reports = trace.TakeIfOver(kTraceStart);

  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_FALSE(reports[0].is_last);
  EXPECT_THAT(reports[1].pushes, SizeIs(1));
  EXPECT_TRUE(reports[1].is_last);
}

TEST_F(TraceRecorderTest, SpansAreRecordedWhileATraceIsOn) {
  trace.AddSpan({.name = "before"});
  Start(1);
  trace.AddSpan({.name = "forward", .begin = 1, .end = 2});
  trace.End();

  EXPECT_THAT(trace.TakeIfOver(kTraceStart).at(0).spans, ElementsAre(TracedSpan{"forward", 1, 2}));
}

}  // namespace
}  // namespace pushpull
