// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/link_meter.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::DoubleNear;
using ::testing::SizeIs;
using namespace std::chrono_literals;

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kHour = 3'600'000 * kMillisecond;
constexpr ServerId kServer{3};

TEST(BusyTimeTest, WhatOverlapsCountsOnce) {
  BusyTime busy;
  busy.Add(10 * kMillisecond, 20 * kMillisecond);
  busy.Add(15 * kMillisecond, 30 * kMillisecond);
  busy.Add(12 * kMillisecond, 18 * kMillisecond);
  busy.Add(40 * kMillisecond, 45 * kMillisecond);

  EXPECT_THAT(busy.seconds(), DoubleNear(0.025, 1e-9));
}

TEST(BusyTimeTest, EmptyAndEndlessIntervalsDoNotCount) {
  BusyTime busy;
  busy.Add(20, 10);
  busy.Add(0, 2 * kHour);
  EXPECT_EQ(busy.seconds(), 0);
}

TEST(BusyTimeTest, ClockOfAnotherProcessIsTakenUp) {
  BusyTime busy;
  busy.Add(10 * kHour, 10 * kHour + kMillisecond);
  busy.Add(kMillisecond, 2 * kMillisecond);
  EXPECT_THAT(busy.seconds(), DoubleNear(0.002, 1e-9));
}

// A push that is sent at 10 ms, is 3 ms on its way, waits 1 ms, takes 2 ms to add and 4 ms to
// apply, is replicated for 5 ms and answered at 60 ms; its value takes 7 ms. `offset`: the server's
// clock minus the worker's.
PublishedTiming SampleTiming(int64_t offset) {
  return {.push_sent_at = kHour + 10 * kMillisecond,
          .received_at = kHour + offset + 13 * kMillisecond,
          .server_queue_ns = kMillisecond,
          .sum_ns = 2 * kMillisecond,
          .wait_ns = 20 * kMillisecond,
          .optimize_ns = 4 * kMillisecond,
          .replicate_ns = 5 * kMillisecond,
          .published_at = kHour + offset + 60 * kMillisecond};
}

TEST(LinkMeterTest, LinkAndServerHaveTheirParts) {
  for (const Duration offset : {0ms, 500ms, -500ms}) {
    LinkMeter meter;
    meter.OnAnswer(kServer,
                   SteadyTime(1h) + 67ms,
                   SampleTiming(std::chrono::nanoseconds(offset).count()),
                   offset,
                   1000);

    const StepCosts costs = meter.costs();

    ASSERT_THAT(costs.links, SizeIs(1));
    EXPECT_EQ(costs.links[0].server, kServer);
    EXPECT_EQ(costs.links[0].bytes, 1000U);
    EXPECT_THAT(costs.links[0].link_seconds, DoubleNear(0.010, 1e-9));
    EXPECT_THAT(costs.links[0].server_seconds, DoubleNear(0.007, 1e-9));
  }
}

TEST(LinkMeterTest, ChunksUnderWayTogetherCountOnce) {
  LinkMeter meter;
  for (int i = 0; i < 5; ++i)
    meter.OnAnswer(kServer, SteadyTime(1h) + 67ms, SampleTiming(0), 0ms, 1000);

  EXPECT_EQ(meter.costs().links[0].bytes, 5000U);
  EXPECT_THAT(meter.costs().links[0].link_seconds, DoubleNear(0.010, 1e-9));
  // Each is added and applied by itself.
  EXPECT_THAT(meter.costs().links[0].server_seconds, DoubleNear(0.031, 1e-9));
}

TEST(LinkMeterTest, NonsenseOfAPeerCostsNothing) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  LinkMeter meter;
  for (const int64_t time : {kMost, -kMost}) {
    meter.OnAnswer(kServer,
                   SteadyTime(1h),
                   {.push_sent_at = -time,
                    .received_at = time,
                    .server_queue_ns = time,
                    .sum_ns = time,
                    .optimize_ns = -time,
                    .replicate_ns = -time,
                    .published_at = time},
                   0ms,
                   1000);
  }

  EXPECT_EQ(meter.costs().links[0].link_seconds, 0);
  EXPECT_EQ(meter.costs().links[0].server_seconds, 0);
}

TEST(LinkMeterTest, OwnPartIsWhatIsNeitherOnTheWayNorInAServer) {
  LinkMeter meter;
  SyncObservation step{.number = Step{1}, .sync = 60ms, .phases = {}, .step = 200ms};
  for (size_t i = 0; i < kSyncPhaseCount; ++i) step.phases[i] = 5ms;
  meter.OnStep({.number = Step{0}, .sync = 60ms, .phases = {}, .step = std::nullopt});

  meter.OnStep(step);
  meter.OnStep(step);

  const StepCosts costs = meter.costs();
  EXPECT_EQ(costs.steps, 2U);
  EXPECT_THAT(costs.step_seconds, DoubleNear(0.4, 1e-9));
  // All phases but reduce, encode and apply are others'.
  EXPECT_THAT(costs.own_seconds, DoubleNear(0.32, 1e-9));
  EXPECT_THAT(costs.wait_seconds, DoubleNear(0.01, 1e-9));
}

}  // namespace
}  // namespace pushpull
