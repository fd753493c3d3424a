// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sync_meter.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace std::chrono_literals;

SteadyTime At(Duration since_start) {
  return SteadyTime(1h) + since_start;
}

int64_t Nanoseconds(SteadyTime time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

Duration PhaseOf(const PhaseTimes& phases, SyncPhase phase) {
  return phases[static_cast<size_t>(phase)];
}

// A push from 0 to 100 ms whose phases take 1, 2, 3 ms, ... in the order of SyncPhase, with 2 ms of
// `queue` before the worker's thread turned to it. The server's clock is `offset` ahead.
struct SamplePush {
  explicit SamplePush(Duration offset) {
    server.push_sent_at = Nanoseconds(At(6ms));
    server.received_at = Nanoseconds(At(10ms) + offset);
    server.server_queue_ns = 5'000'000;
    server.wait_ns = 6'000'000;
    server.sum_ns = 7'000'000;
    server.optimize_ns = 8'000'000;
    server.replicate_ns = 9'000'000;
    server.published_at = Nanoseconds(At(45ms) + offset);
  }

  PushTimes worker{.ready = At(0ms),
                   .taken_up = At(2ms),
                   .reduce = 1ms,
                   .encode = 2ms,
                   .queued = At(5ms),
                   .received = At(55ms),
                   .applied = At(66ms)};
  PublishedTiming server;
};

TEST(PhasesOfTest, PhaseIsTheTimeBetweenItsTwoReadings) {
  const SamplePush push(0ms);

  const PhaseTimes phases = PhasesOf(push.worker, push.server, 0ms);

  EXPECT_THAT(phases, ElementsAre(1ms, 2ms, 3ms, 4ms, 5ms, 6ms, 7ms, 8ms, 9ms, 10ms, 11ms));
}

TEST(PhasesOfTest, ServerClockMayBeAheadOrBehind) {
  const PhaseTimes same_clock = PhasesOf(SamplePush(0ms).worker, SamplePush(0ms).server, 0ms);
  for (const Duration offset : {Duration(7s), Duration(-7s)}) {
    const SamplePush push(offset);

    EXPECT_EQ(PhasesOf(push.worker, push.server, offset), same_clock);
  }
}

TEST(PhasesOfTest, PhasesWithoutGapsAddUpToTheTotal) {
  const SamplePush push(0ms);

  const PhaseTimes phases = PhasesOf(push.worker, push.server, 0ms);

  EXPECT_EQ(std::accumulate(phases.begin(), phases.end(), Duration(0)),
            push.worker.applied - push.worker.ready);
}

TEST(PhasesOfTest, UncoveredTimeBelongsToNoPhase) {
  SamplePush push(0ms);
  const PhaseTimes before = PhasesOf(push.worker, push.server, 0ms);
  // The thread had something else to do between taking the push up and queueing it.
  for (SteadyTime* time : {&push.worker.queued, &push.worker.received, &push.worker.applied})
    *time += 20ms;
  for (int64_t* time :
       {&push.server.push_sent_at, &push.server.received_at, &push.server.published_at})
    *time += 20'000'000;

  EXPECT_EQ(PhasesOf(push.worker, push.server, 0ms), before);
}

class SyncMeterTest : public ::testing::Test {
 protected:
  std::vector<SyncObservation> seen_;
  SyncMeter meter_{2, [this](const SyncObservation& seen) { seen_.push_back(seen); }};
};

PhaseTimes PhasesWithWire(Duration wire) {
  PhaseTimes phases{};
  phases[static_cast<size_t>(SyncPhase::kWire)] = wire;
  return phases;
}

TEST_F(SyncMeterTest, StepLastsFromFirstGradientToLastParameter) {
  meter_.OnPush(Step{4}, At(10ms));
  meter_.OnPush(Step{4}, At(15ms));
  meter_.OnApplied(Step{4}, At(30ms), PhasesWithWire(1ms));
  EXPECT_THAT(seen_, IsEmpty());

  meter_.OnApplied(Step{4}, At(50ms), PhasesWithWire(2ms));

  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_EQ(seen_[0].sync, Duration(40ms));
  EXPECT_EQ(seen_[0].number, Step{4});
}

TEST_F(SyncMeterTest, PhasesAreThoseOfTheLastChunk) {
  meter_.OnPush(Step{0}, At(0ms));
  meter_.OnApplied(Step{0}, At(20ms), PhasesWithWire(9ms));
  meter_.OnApplied(Step{0}, At(30ms), PhasesWithWire(3ms));

  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_EQ(PhaseOf(seen_[0].phases, SyncPhase::kWire), Duration(3ms));
}

TEST_F(SyncMeterTest, StepTimeIsFromEndToEnd) {
  for (const uint64_t step : {0U, 1U, 2U}) {
    const Duration begin = step * 100ms;
    meter_.OnPush(Step{step}, At(begin + 60ms));
    meter_.OnApplied(Step{step}, At(begin + 70ms), {});
    meter_.OnApplied(Step{step}, At(begin + 80ms + step * 1ms), {});
  }

  ASSERT_THAT(seen_, SizeIs(3));
  EXPECT_EQ(seen_[0].step, std::nullopt);
  EXPECT_EQ(seen_[1].step, Duration(101ms));
  EXPECT_EQ(seen_[2].step, Duration(101ms));
}

TEST_F(SyncMeterTest, AnswersOfOtherStepsDoNotCount) {
  meter_.OnPush(Step{0}, At(0ms));
  meter_.OnApplied(Step{0}, At(10ms), {});
  meter_.OnPush(Step{1}, At(20ms));

  meter_.OnApplied(Step{0}, At(25ms), {});
  meter_.OnApplied(Step{1}, At(30ms), {});
  EXPECT_THAT(seen_, IsEmpty());
  meter_.OnApplied(Step{1}, At(40ms), {});

  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_EQ(seen_[0].sync, Duration(20ms));
}

}  // namespace
}  // namespace pushpull
