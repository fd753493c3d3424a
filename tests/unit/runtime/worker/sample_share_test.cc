// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sample_share.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/consistency/sample_leases.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr WorkerId kSharer{1};
constexpr SampleSource kShared{
    .num_samples = 100, .epochs = 2, .batch = 8, .is_global_batch = false};
constexpr uint64_t kStepsAhead = 3;
constexpr Consistency kSync{};
constexpr Consistency kAsync{.mode = SyncMode::kAsync};
constexpr Consistency kBounded{.mode = SyncMode::kBounded, .staleness = 1};

StepSamples SamplesAt(const SampleShare& share,
                      Step next,
                      uint64_t steps_ahead,
                      const Consistency& mode = kSync) {
  const absl::StatusOr<StepSamples> samples = share.At(mode, next, steps_ahead);
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
template <typename Queue>
void ReceiveQueue(const Queue& queue, SampleShare& share) {
  const std::vector<std::byte> bytes = queue.Encode();
  std::memcpy(share.value().data(), bytes.data(), bytes.size());
}

TEST(SampleShare, DividedStepsAheadAreThoseThatCome) {
  SampleQueue queue(kShared);
  queue.SetMembers({WorkerId{0}, kSharer, WorkerId{2}});
  SampleShare share(kSharer, kShared);
  ReceiveQueue(queue, share);
  std::vector<StepSamples> predicted;

  for (uint64_t step = 0; queue.epoch() <= kShared.epochs; ++step) {
    predicted.push_back(SamplesAt(share, Step{step}, kStepsAhead));
    if (step >= kStepsAhead)
      ExpectSameStep(predicted[step - kStepsAhead], SamplesAt(share, Step{step}, 0));
    queue.AdvanceAll();
    ReceiveQueue(queue, share);
  }

  EXPECT_TRUE(predicted.back().is_over);
  EXPECT_TRUE(predicted.back().ranges.empty());
}

// A job restored from a checkpoint, whose program has other arguments than the one that began it.
class SampleShareOfARestoredJob : public ::testing::Test {
 protected:
  // After `steps` steps of one worker.
  static absl::StatusOr<StepSamples> FirstSamples(uint64_t steps, const SampleSource& program) {
    SampleQueue queue(kShared);
    queue.SetMembers({kSharer});
    for (uint64_t i = 0; i < steps; ++i) queue.AdvanceAll();
    SampleShare share(kSharer, program);
    ReceiveQueue(queue, share);
    return share.At(kSync, queue.step(), 0);
  }

  static constexpr uint64_t kStepsPerEpoch = 13;
  SampleSource program_ = kShared;
};

TEST_F(SampleShareOfARestoredJob, HasTheEpochsOfItsProgram) {
  const auto over = FirstSamples(2 * kStepsPerEpoch, program_);
  program_.epochs = 3;
  const auto more = FirstSamples(2 * kStepsPerEpoch, program_);

  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_TRUE(over->is_over);
  EXPECT_EQ(over->count, 0U);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_FALSE(more->is_over);
  EXPECT_EQ(more->epoch, 2U);
  EXPECT_EQ(more->count, 8U);
}

TEST_F(SampleShareOfARestoredJob, TakesAnotherSizeBetweenTwoEpochs) {
  program_.num_samples = 5;

  const auto samples = FirstSamples(kStepsPerEpoch, program_);

  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->count, 5U);
}

TEST_F(SampleShareOfARestoredJob, NamesBothSizesWithinAnEpoch) {
  program_.num_samples = 90;

  const auto samples = FirstSamples(kStepsPerEpoch + 1, program_);

  EXPECT_EQ(samples.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(samples.status().message()), HasSubstr("epoch 1 of the job has 100"));
  EXPECT_THAT(std::string(samples.status().message()), HasSubstr("this program's data set 90"));
}

TEST(SampleShare, KnowsThatTheJobHasAnotherBatch) {
  SampleSource other = kShared;
  other.batch = 16;
  SampleShare same(kSharer, kShared);
  SampleShare changed(kSharer, other);
  other.is_global_batch = true;
  SampleShare global(kSharer, other);
  for (SampleShare* share : {&same, &changed, &global}) ReceiveQueue(SampleQueue(kShared), *share);

  EXPECT_EQ(same.OtherBatch(), std::nullopt);
  EXPECT_EQ(changed.OtherBatch(), 8U);
  EXPECT_EQ(global.OtherBatch(), std::nullopt);
}

TEST_F(SampleShareOfARestoredJob, NamesAnotherDropLast) {
  program_.drops_last = true;

  const auto samples = FirstSamples(1, program_);

  EXPECT_THAT(std::string(samples.status().message()), HasSubstr("drop_last=False"));
}

// Workers that start together with data sets of their own.
TEST(SampleShare, SizeOfAFirstStepIsThatOfTheFirstWorker) {
  SampleSource other = kShared;
  other.num_samples = 99;
  SampleShare share(kSharer, other);
  SampleQueue queue(kShared);
  queue.SetMembers({WorkerId{0}, kSharer});
  ReceiveQueue(queue, share);

  const auto samples = share.At(kSync, Step{0}, 0);

  EXPECT_THAT(std::string(samples.status().message()), HasSubstr("has 100 samples"));
}

TEST(SampleShare, CommitCarriesTheSizeOfTheDataSet) {
  SampleShare share(kSharer, kShared);

  EXPECT_EQ(share.Commit({}).learning_rate, 100);
  EXPECT_EQ(share.Commit({.must_leave = true}).samples, 0);
}

TEST(SampleShare, ACommitWithoutEndKeepsTheSamples) {
  SampleShare share(kSharer, kShared);

  EXPECT_EQ(share.Commit({.are_done = false}).samples, static_cast<double>(SampleReport::kKeeps));
  EXPECT_FALSE(share.was_released());
}

SampleLeases LeasesOf(const std::vector<WorkerId>& workers) {
  SampleLeases leases{SampleQueue(kShared)};
  leases.Admit(workers);
  return leases;
}

TEST(SampleShare, LeasedStepsAheadAreThoseThatCome) {
  SampleShare share(kSharer, kShared);
  SampleLeases leases = LeasesOf({WorkerId{0}, kSharer});
  ReceiveQueue(leases, share);
  const StepSamples predicted = SamplesAt(share, Step{0}, kStepsAhead, kAsync);
  const StepSamples beyond = SamplesAt(share, Step{0}, 100, kAsync);

  for (uint64_t step = 0; step < kStepsAhead; ++step)
    leases.Commit(kSharer, SampleReport::kDone, {.num_samples = 100});
  ReceiveQueue(leases, share);

  ExpectSameStep(predicted, SamplesAt(share, Step{kStepsAhead}, 0, kAsync));
  EXPECT_EQ(predicted.count, 8U);
  EXPECT_EQ(beyond.epoch, 1U);
  EXPECT_EQ(beyond.count, 0U);
}

TEST(SampleShare, WithoutSamplesThereIsNoStepInAsync) {
  SampleShare joiner(kSharer, kShared);
  ReceiveQueue(LeasesOf({WorkerId{0}}), joiner);

  EXPECT_FALSE(SamplesAt(joiner, Step{3}, 0, kAsync).has_step);
  EXPECT_TRUE(SamplesAt(joiner, Step{3}, 0, kBounded).has_step);
  EXPECT_TRUE(SamplesAt(SampleShare(kSharer, kShared), Step{3}, 0, kSync).has_step);
}

TEST(SampleShare, AJobThatContinuesInAsyncAsksForALease) {
  SampleShare share(kSharer, kShared);
  SampleQueue queue(kShared);
  queue.SetMembers({kSharer});
  ReceiveQueue(queue, share);

  EXPECT_EQ(SamplesAt(share, Step{0}, 0, kAsync).count, 0U);
  EXPECT_FALSE(SamplesAt(share, Step{0}, 0, kAsync).is_over);
}

TEST(SampleShare, TakesAnotherSizeWhereNothingOfTheEpochHasCounted) {
  SampleSource other = kShared;
  other.num_samples = 60;
  SampleShare share(kSharer, other);
  SampleLeases leases = LeasesOf({kSharer, WorkerId{2}});
  ReceiveQueue(leases, share);
  EXPECT_EQ(SamplesAt(share, Step{0}, 0, kAsync).count, 0U);

  const PushOptions ask = share.Commit({});
  leases.Commit(kSharer, ReportOf(ask.samples), {.num_samples = ask.learning_rate});
  ReceiveQueue(leases, share);

  EXPECT_EQ(leases.source().num_samples, 60U);
  EXPECT_EQ(SamplesAt(share, Step{1}, 0, kAsync).count, 8U);
  leases.Commit(WorkerId{2}, SampleReport::kDone, {.num_samples = 60});
  SampleShare late(kSharer, kShared);
  ReceiveQueue(leases, late);
  EXPECT_THAT(std::string(late.At(kAsync, Step{2}, 0).status().message()),
              HasSubstr("has 60 samples"));
}

TEST(SampleShare, SaysThatTooManyWorkersShareTheData) {
  std::vector<WorkerId> workers;
  for (uint32_t i = 0; i < SampleLeases::kWorkersMax; ++i) workers.push_back(WorkerId{i + 10});
  SampleShare share(kSharer, kShared);
  ReceiveQueue(LeasesOf(workers), share);

  const auto samples = share.At(kAsync, Step{0}, 0);

  EXPECT_EQ(samples.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(samples.status().message()), HasSubstr("at most 160 workers"));
}

}  // namespace
}  // namespace pushpull
