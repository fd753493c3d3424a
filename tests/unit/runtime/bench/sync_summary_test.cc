// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/sync_summary.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

SyncMeasurements FiveSteps() {
  SyncMeasurements measured;
  for (const double seconds : {0.2, 0.1, 0.9, 0.3, 0.2})
    measured.steps.push_back({.seconds = seconds, .cpu_seconds = 2 * seconds});
  measured.bursts = {{4e9, 0.4}, {8e9, 0.2}, {5e9, 0.25}};
  measured.wire_bytes = 5 * 400'000'000ULL;
  measured.chunks = 100;
  measured.is_verified = true;
  return measured;
}

TEST(QuantileOfTest, IsTheNearestRank) {
  EXPECT_EQ(QuantileOf({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0.99), 4);
  EXPECT_EQ(QuantileOf({7}, 0), 7);
  EXPECT_EQ(QuantileOf({}, 0.5), 0);
}

TEST(SummarizeTest, StepsAreTheirMedianAndItsSpread) {
  const SyncSummary summary = Summarize({.bytes = 100'000'000}, FiveSteps());

  EXPECT_DOUBLE_EQ(summary.p50_seconds, 0.2);
  EXPECT_DOUBLE_EQ(summary.p99_seconds, 0.9);
  EXPECT_DOUBLE_EQ(summary.mad_seconds, 0.1);
  EXPECT_DOUBLE_EQ(summary.goodput_bytes_per_second, 5e8);
  EXPECT_DOUBLE_EQ(summary.messages_per_second, 2 * 2 * 100 / 0.2);
}

TEST(SummarizeTest, TheWireIsComparedWithTheMedianLink) {
  const SyncSummary summary = Summarize({.bytes = 100'000'000}, FiveSteps());

  EXPECT_DOUBLE_EQ(summary.wire_bytes_per_step, 4e8);
  EXPECT_DOUBLE_EQ(summary.link_bytes_per_second, 5e9);
  EXPECT_DOUBLE_EQ(summary.wire_over_link, 4e8 / 0.2 / 5e9);
  EXPECT_DOUBLE_EQ(summary.link_cpu_seconds_per_gigabyte, 0.25);
  EXPECT_DOUBLE_EQ(summary.cpu_seconds_per_gigabyte, 0.4 / 0.4);
  EXPECT_DOUBLE_EQ(summary.cpu_over_link, 1 / 0.25);
}

TEST(SummarizeTest, TheCpuTimeOfEveryStepIsListedInOrder) {
  EXPECT_EQ(Summarize({}, FiveSteps()).step_cpu_seconds,
            (std::vector<double>{0.4, 0.2, 1.8, 0.6, 0.4}));
}

TEST(SummarizeTest, SharedMemoryCountsGradients) {
  const SyncSummary summary = Summarize({.bytes = 100'000'000, .channel = "shm"}, FiveSteps());

  EXPECT_DOUBLE_EQ(summary.cpu_seconds_per_gigabyte, 0.4 / 0.2);
}

TEST(SummarizeTest, WithoutMeasurementsEverythingIsZero) {
  const SyncSummary summary = Summarize({}, {});

  EXPECT_EQ(summary.wire_over_link, 0);
  EXPECT_EQ(summary.cpu_over_link, 0);
  EXPECT_EQ(summary.round_trip_seconds, 0);
}

}  // namespace
}  // namespace pushpull
