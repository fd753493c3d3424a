// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/trace_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const TraceCollector::Workers kTwoWorkers = {{WorkerId{0}, Incarnation{10}},
                                             {WorkerId{1}, Incarnation{11}}};
const SteadyTime kTraceStart{std::chrono::hours(1)};

TraceReport Part(uint64_t number, size_t pushes, bool is_last = true) {
  TraceReport report{.number = number, .is_last = is_last};
  report.pushes.resize(pushes);
  return report;
}

class TraceCollectorTest : public testing::Test {
 protected:
  uint64_t Start(const TraceCollector::Workers& workers = kTwoWorkers) {
    const absl::StatusOr<TraceSteps> order =
        traces.Start({.steps = 20, .seconds = 60}, workers, kTraceStart);
    EXPECT_TRUE(order.ok()) << order.status();
    return order->number;
  }

  TraceCollector traces{Term{3}};
};

TEST_F(TraceCollectorTest, ATraceIsOverWhenAllWorkersHaveReported) {
  const uint64_t number = Start();
  traces.OnReport(WorkerId{0}, Part(number, 5));

  absl::StatusOr<TraceParts> parts = traces.Take(number, 0);
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(parts->reports, SizeIs(1));
  EXPECT_THAT(parts->missing, ElementsAre(WorkerId{1}));
  EXPECT_FALSE(parts->is_over);

  traces.OnReport(WorkerId{1}, Part(number, 6, false));
  traces.OnReport(WorkerId{1}, Part(number, 7));
  parts = traces.Take(number, parts->next);
  EXPECT_THAT(parts->reports, SizeIs(2));
  EXPECT_EQ(parts->reports[1].worker, WorkerId{1});
  EXPECT_TRUE(parts->is_over);
}

TEST_F(TraceCollectorTest, SeveralWorkersRecordSpareSteps) {
  const TraceRequest request{.steps = 20, .seconds = 60};

  const absl::StatusOr<TraceSteps> two = traces.Start(request, kTwoWorkers, kTraceStart);
  const absl::StatusOr<TraceSteps> one =
      traces.Start(request, {{WorkerId{0}, Incarnation{10}}}, kTraceStart);

  EXPECT_EQ(two->steps, 20 + TraceCollector::kSpareSteps);
  EXPECT_EQ(one->steps, 20);
}

TEST_F(TraceCollectorTest, APartIsThereAgainUntilTheNextIsAskedFor) {
  const uint64_t number = Start();
  traces.OnReport(WorkerId{0}, Part(number, 5));

  const uint64_t next = traces.Take(number, 0)->next;

  EXPECT_THAT(traces.Take(number, 0)->reports, SizeIs(1));
  EXPECT_THAT(traces.Take(number, next)->reports, IsEmpty());
  EXPECT_THAT(traces.Take(number, 0)->reports, IsEmpty());
}

TEST_F(TraceCollectorTest, AnAnswerHasLimitedSize) {
  const uint64_t number = Start();
  for (int i = 0; i < 3; ++i) traces.OnReport(WorkerId{0}, Part(number, 3000, i == 2));
  traces.OnReport(WorkerId{1}, Part(number, 1));

  uint64_t from = 0;
  for (int i = 0; i < 2; ++i) {
    const TraceParts parts = *traces.Take(number, from);
    EXPECT_THAT(parts.reports, SizeIs(1));
    EXPECT_FALSE(parts.is_over);
    from = parts.next;
  }
  const TraceParts last = *traces.Take(number, from);
  EXPECT_THAT(last.reports, SizeIs(2));
  EXPECT_TRUE(last.is_over);
}

TEST_F(TraceCollectorTest, AWorkerThatIsGoneOrReplacedIsNotWaitedFor) {
  const uint64_t number = Start();
  traces.OnReport(WorkerId{0}, Part(number, 5));

  traces.KeepOnly({{WorkerId{0}, Incarnation{10}}, {WorkerId{1}, Incarnation{12}}});

  EXPECT_TRUE(traces.Take(number, 0)->is_over);
}

TEST_F(TraceCollectorTest, AnotherTraceEndsTheFirst) {
  const uint64_t first = Start();
  const uint64_t second = Start();

  traces.OnReport(WorkerId{0}, Part(first, 5));

  EXPECT_TRUE(absl::IsNotFound(traces.Take(first, 0).status()));
  EXPECT_THAT(traces.Take(second, 0)->reports, IsEmpty());
}

TEST_F(TraceCollectorTest, AnotherCoordinatorDoesNotKnowTheTrace) {
  const uint64_t number = Start();
  TraceCollector next{Term{4}};
  ASSERT_TRUE(next.Start({.steps = 1, .seconds = 1}, kTwoWorkers, kTraceStart).ok());

  EXPECT_TRUE(absl::IsNotFound(next.Take(number, 0).status()));
}

TEST_F(TraceCollectorTest, AWorkerHasNoMoreRoomThanItsShare) {
  const uint64_t number = Start();

  for (size_t i = 0; i < 20; ++i) traces.OnReport(WorkerId{0}, Part(number, 4096, false));

  size_t pushes = 0;
  uint64_t left_out = 0;
  for (uint64_t from = 0;;) {
    const TraceParts parts = *traces.Take(number, from);
    if (parts.reports.empty()) break;
    for (const TraceReport& report : parts.reports) {
      pushes += report.pushes.size();
      left_out += report.left_out;
    }
    from = parts.next;
  }
  EXPECT_EQ(pushes, 12 * 4096);  // of 50,000
  EXPECT_EQ(left_out, 4096);     // after which nothing of it is taken
}

TEST_F(TraceCollectorTest, WhatNobodyFetchesIsForgotten) {
  const uint64_t number = Start();
  const SteadyTime end = kTraceStart + std::chrono::seconds(60) + TraceCollector::kKept;

  traces.OnTick(end - Duration{1});
  EXPECT_TRUE(traces.Take(number, 0).ok());
  traces.OnTick(end);
  EXPECT_TRUE(absl::IsNotFound(traces.Take(number, 0).status()));
}

TEST_F(TraceCollectorTest, OutOfRangeRequestsAreRejected) {
  const auto code = [&](TraceRequest request, const TraceCollector::Workers& workers) {
    return traces.Start(request, workers, kTraceStart).status().code();
  };
  EXPECT_EQ(code({.steps = 0, .seconds = 1}, kTwoWorkers), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.steps = 1001, .seconds = 1}, kTwoWorkers), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.steps = 1, .seconds = 601}, kTwoWorkers), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.steps = 1, .seconds = 1}, {}), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pushpull
