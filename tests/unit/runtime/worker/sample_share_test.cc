// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sample_share.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr WorkerId kSharer{1};
constexpr SampleSource kShared{
    .num_samples = 100, .epochs = 2, .batch = 8, .is_global_batch = false};
constexpr uint64_t kStepsAhead = 3;

StepSamples SamplesAt(const SampleShare& share, Step next, uint64_t steps_ahead) {
  const absl::StatusOr<StepSamples> samples = share.At(next, steps_ahead);
  EXPECT_TRUE(samples.ok()) << samples.status();
  return samples.ok() ? *samples : StepSamples{};
}

void ExpectSameStep(const StepSamples& predicted, const StepSamples& actual) {
  EXPECT_EQ(predicted.step, actual.step);
  EXPECT_EQ(predicted.epoch, actual.epoch);
  EXPECT_EQ(predicted.ranges, actual.ranges);
  EXPECT_EQ(predicted.is_over, actual.is_over);
}

// What the servers answer to a commit.
void ReceiveQueue(const SampleQueue& queue, SampleShare& share) {
  const std::vector<std::byte> bytes = queue.Encode();
  std::memcpy(share.value().data(), bytes.data(), bytes.size());
}

TEST(SampleShare, DividedStepsAheadAreThoseThatCome) {
  SampleQueue queue(kShared);
  queue.SetMembers({WorkerId{0}, kSharer, WorkerId{2}});
  SampleShare share(kSharer, kShared);
  ReceiveQueue(queue, share);
  std::vector<StepSamples> predicted;

  for (uint64_t step = 0; !queue.is_finished(); ++step) {
    predicted.push_back(SamplesAt(share, Step{step}, kStepsAhead));
    if (step >= kStepsAhead)
      ExpectSameStep(predicted[step - kStepsAhead], SamplesAt(share, Step{step}, 0));
    queue.AdvanceAll();
    ReceiveQueue(queue, share);
  }

  EXPECT_TRUE(predicted.back().is_over);
  EXPECT_TRUE(predicted.back().ranges.empty());
}

TEST(SampleShare, OwnStepsAheadAreThoseThatCome) {
  SampleShare share(kSharer, kShared, 2);
  const StepSamples predicted = SamplesAt(share, Step{0}, kStepsAhead);

  for (uint64_t step = 0; step < kStepsAhead; ++step) share.Commit(false);

  ExpectSameStep(predicted, SamplesAt(share, Step{0}, 0));
  EXPECT_EQ(predicted.step, Step{kStepsAhead});
  EXPECT_EQ(predicted.count, 8U);
}

}  // namespace
}  // namespace pushpull
