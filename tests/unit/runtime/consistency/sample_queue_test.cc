// SPDX-License-Identifier: Apache-2.0
//
// The queue of a data set: what a step takes, how it is divided, what comes back, and what a value
// that is not a queue does.
#include "runtime/consistency/sample_queue.h"

#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<WorkerId> Workers(std::initializer_list<uint32_t> indices) {
  std::vector<WorkerId> workers;
  for (const uint32_t index : indices) workers.push_back(WorkerId{index});
  return workers;
}

SampleQueue QueueOf(const SampleSource& source, const std::vector<WorkerId>& members) {
  SampleQueue queue(source);
  queue.SetMembers(members);
  return queue;
}

TEST(SampleQueueTest, DividesAStepAmongItsMembersInTheirOrder) {
  const auto members = Workers({0, 2, 5});
  const SampleQueue queue =
      QueueOf({.num_samples = 100, .batch = 8, .is_global_batch = true}, members);

  const StepSamples first = queue.ShareOf(WorkerId{0}, Step{0});
  const StepSamples second = queue.ShareOf(WorkerId{2}, Step{0});
  const StepSamples third = queue.ShareOf(WorkerId{5}, Step{0});
  const StepSamples nobody = queue.ShareOf(WorkerId{1}, Step{0});

  EXPECT_THAT(first.ranges, ElementsAre(SampleRange{0, 2}));
  EXPECT_THAT(second.ranges, ElementsAre(SampleRange{2, 3}));
  EXPECT_THAT(third.ranges, ElementsAre(SampleRange{5, 3}));
  EXPECT_THAT(nobody.ranges, IsEmpty());
  EXPECT_EQ(third.members, members);
}

TEST(SampleQueueTest, EachWorkerHasABatchOfItsOwnUnlessItIsGlobal) {
  SampleQueue queue = QueueOf({.num_samples = 100, .batch = 8}, Workers({0, 1}));

  queue.Advance(Workers({0, 1}), Workers({0, 1, 2}));

  EXPECT_THAT(queue.ShareOf(WorkerId{2}, Step{1}).ranges, ElementsAre(SampleRange{32, 8}));
}

TEST(SampleQueueTest, ABatchThatIsSetCountsForAllMembersTogether) {
  SampleQueue queue = QueueOf({.num_samples = 100, .batch = 8}, Workers({0, 1}));
  EXPECT_EQ(queue.batch(), 16u);

  queue.Advance(Workers({0}), Workers({0, 1}));
  queue.SetGlobalBatch(10);
  const auto decoded = SampleQueue::Decode(queue.Encode());

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch(), 10u);
  // What came back of the larger step first.
  EXPECT_THAT(decoded->ShareOf(WorkerId{0}, Step{1}).ranges, ElementsAre(SampleRange{8, 5}));
  EXPECT_THAT(decoded->ShareOf(WorkerId{1}, Step{1}).ranges, ElementsAre(SampleRange{13, 5}));
}

TEST(SampleQueueTest, WhatAMemberDidNotFinishIsHandedOutFirst) {
  SampleQueue queue =
      QueueOf({.num_samples = 100, .batch = 10, .is_global_batch = true}, Workers({0, 1}));

  queue.Advance(Workers({1}), Workers({1}));

  EXPECT_THAT(queue.ShareOf(WorkerId{1}, Step{1}).ranges,
              ElementsAre(SampleRange{0, 5}, SampleRange{10, 5}));
}

TEST(SampleQueueTest, MembersThatKeepTheirSamplesGoOnWithThem) {
  SampleQueue queue = QueueOf({.num_samples = 5, .batch = 4}, Workers({0, 1}));
  const auto first = queue.ShareOf(WorkerId{0}, Step{0}).ranges;
  const auto second = queue.ShareOf(WorkerId{1}, Step{0}).ranges;

  queue.Advance({}, Workers({0, 1}));

  EXPECT_EQ(queue.ShareOf(WorkerId{0}, Step{1}).ranges, first);
  EXPECT_EQ(queue.ShareOf(WorkerId{1}, Step{1}).ranges, second);
  EXPECT_EQ(queue.epoch(), 0u);
}

TEST(SampleQueueTest, AnEpochIsOverWhenAllOfItsSamplesHaveCounted) {
  SampleQueue queue = QueueOf(
      {.num_samples = 10, .epochs = 2, .batch = 10, .is_global_batch = true}, Workers({0, 1}));

  queue.Advance(Workers({0}), Workers({0}));
  const StepSamples rest = queue.ShareOf(WorkerId{0}, Step{1});
  queue.Advance(Workers({0}), Workers({0}));
  const StepSamples next = queue.ShareOf(WorkerId{0}, Step{2});

  EXPECT_EQ(rest.epoch, 0u);
  EXPECT_EQ(rest.position, 5u);
  EXPECT_EQ(rest.total, 5u);
  EXPECT_EQ(rest.batch, 10u);
  EXPECT_THAT(rest.ranges, ElementsAre(SampleRange{5, 5}));
  EXPECT_EQ(next.epoch, 1u);
  EXPECT_EQ(next.position, 0u);
  EXPECT_THAT(next.ranges, ElementsAre(SampleRange{0, 10}));
}

// Of 66 samples in steps of 32 two are left, which one process would have together.
TEST(SampleQueueTest, ASmallLastStepGivesNobodyASingleSample) {
  for (const uint64_t left : {2, 3, 5, 7}) {
    SCOPED_TRACE(left);
    SampleQueue queue = QueueOf({.num_samples = 64 + left, .batch = 16}, Workers({0, 1, 2, 3}));

    queue.AdvanceAll();

    uint64_t total = 0;
    for (uint32_t worker = 0; worker < 4; ++worker) {
      const uint64_t count = queue.ShareOf(WorkerId{worker}, Step{1}).count;
      EXPECT_NE(count, 1u);
      total += count;
    }
    EXPECT_EQ(total, left);
  }
}

TEST(SampleQueueTest, WhatASmallStepGaveToFewWorkersComesBackWhole) {
  SampleQueue queue = QueueOf({.num_samples = 66, .batch = 16}, Workers({0, 1}));
  queue.AdvanceAll();
  queue.AdvanceAll();

  queue.Advance(Workers({1}), Workers({1}));

  EXPECT_THAT(queue.ShareOf(WorkerId{1}, Step{3}).ranges, ElementsAre(SampleRange{64, 2}));
}

TEST(SampleQueueTest, ASmallStepGoesToThosePreferred) {
  SampleQueue queue = QueueOf({.num_samples = 51, .batch = 16}, Workers({0, 1, 2}));
  queue.PreferInSmallStep(Workers({1, 2}));  // a full step
  EXPECT_EQ(queue.ShareOf(WorkerId{0}, Step{0}).count, 16u);

  queue.AdvanceAll();
  queue.PreferInSmallStep(Workers({1, 2, 9}));
  queue.PreferInSmallStep(Workers({9}));

  EXPECT_EQ(queue.ShareOf(WorkerId{0}, Step{1}).count, 0u);
  EXPECT_EQ(queue.ShareOf(WorkerId{1}, Step{1}).count, 3u);
}

TEST(SampleQueueTest, WhereAFullStepHasSingleSamplesASmallOneHasThemToo) {
  SampleQueue queue = QueueOf({.num_samples = 6, .batch = 1}, Workers({0, 1, 2, 3}));

  queue.AdvanceAll();

  EXPECT_THAT(queue.ShareOf(WorkerId{0}, Step{1}).ranges, ElementsAre(SampleRange{4, 1}));
  EXPECT_THAT(queue.ShareOf(WorkerId{1}, Step{1}).ranges, ElementsAre(SampleRange{5, 1}));
}

TEST(SampleQueueTest, AnEpochEndsBeforeAStepThatIsNotFullIfTold) {
  SampleQueue queue =
      QueueOf({.num_samples = 66, .batch = 16, .drops_last = true}, Workers({0, 1}));

  queue.AdvanceAll();
  EXPECT_EQ(queue.epoch(), 0u);
  queue.AdvanceAll();
  queue = *SampleQueue::Decode(queue.Encode());

  EXPECT_EQ(queue.epoch(), 1u);
  EXPECT_TRUE(queue.source().drops_last);
  EXPECT_THAT(queue.ShareOf(WorkerId{1}, Step{2}).ranges, ElementsAre(SampleRange{16, 16}));
}

TEST(SampleQueueTest, AnEpochOfLessThanAFullStepHasOneNevertheless) {
  SampleQueue queue = QueueOf({.num_samples = 9, .batch = 8, .drops_last = true}, Workers({0, 1}));

  EXPECT_EQ(queue.ShareOf(WorkerId{0}, Step{0}).total, 9u);
  queue.AdvanceAll();

  EXPECT_EQ(queue.epoch(), 1u);
}

TEST(SampleQueueTest, AnotherSizeCountsFromTheNextEpochOn) {
  SampleQueue queue = QueueOf({.num_samples = 20, .batch = 10}, Workers({0}));
  queue.AdvanceAll();

  queue.SetNumSamples(8);
  EXPECT_THAT(queue.ShareOf(WorkerId{0}, Step{1}).ranges, ElementsAre(SampleRange{10, 10}));
  queue.AdvanceAll();
  EXPECT_EQ(queue.epoch(), 1u);
  queue.SetNumSamples(8);

  EXPECT_THAT(queue.ShareOf(WorkerId{0}, Step{2}).ranges, ElementsAre(SampleRange{0, 8}));
  queue.AdvanceAll();
  EXPECT_EQ(queue.epoch(), 2u);
}

TEST(SampleQueueTest, NoSizeAtAllIsIgnored) {
  SampleQueue queue = QueueOf({.num_samples = 20, .batch = 10}, Workers({0}));

  for (const double size : {0.0, -3.0, 0.5, 1e300}) queue.SetNumSamples(size);

  EXPECT_EQ(queue.source().num_samples, 20u);
}

TEST(SampleQueueTest, AShareBelongsToOneStepOnly) {
  const SampleQueue queue = QueueOf({.num_samples = 10, .batch = 2}, Workers({0}));

  EXPECT_THAT(queue.ShareOf(WorkerId{0}, Step{1}).ranges, IsEmpty());
}

TEST(SampleQueueTest, WithoutMembersTheQueueDoesNotAdvance) {
  SampleQueue queue =
      QueueOf({.num_samples = 10, .batch = 4, .is_global_batch = true}, Workers({}));

  queue.Advance(Workers({3}), Workers({0}));

  EXPECT_THAT(queue.ShareOf(WorkerId{0}, Step{1}).ranges, ElementsAre(SampleRange{0, 4}));
}

// How often each sample of each epoch was counted.
using Counts = std::map<std::pair<uint64_t, uint64_t>, int>;

void Count(const SampleQueue& queue, WorkerId worker, Counts& counts) {
  for (const SampleRange& range : queue.ShareOf(worker, queue.step()).ranges) {
    for (uint64_t i = 0; i < range.count; ++i) ++counts[{queue.epoch(), range.first + i}];
  }
}

// Each of six workers with even odds.
std::vector<WorkerId> SomeWorkers(std::mt19937& random) {
  std::vector<WorkerId> workers;
  for (uint32_t i = 0; i < 6; ++i) {
    if (random() % 2 == 0) workers.push_back(WorkerId{i});
  }
  return workers;
}

// Whoever joins, leaves or dies: in each epoch each sample counts once, or at most once if a last
// step may be dropped.
TEST(SampleQueueTest, EverySampleOfAnEpochCountsOnceWhateverTheMembersDo) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const SampleSource source{.num_samples = 1 + random() % 300,
                              .epochs = 1 + random() % 3,
                              .batch = 1 + random() % 40,
                              .is_global_batch = random() % 2 == 0,
                              .drops_last = random() % 4 == 0};
    SampleQueue queue = QueueOf(source, SomeWorkers(random));
    Counts counts;

    for (int step = 0; step < 10000 && queue.epoch() < source.epochs; ++step) {
      if (random() % 8 == 0) queue.SetGlobalBatch(1 + random() % 60);
      const std::vector<WorkerId> counted = SomeWorkers(random);
      for (const WorkerId worker : counted) Count(queue, worker, counts);
      queue.Advance(counted, SomeWorkers(random));
      queue = *SampleQueue::Decode(queue.Encode());
    }

    ASSERT_EQ(queue.epoch(), source.epochs);
    ASSERT_EQ(queue.dropped(), 0u);
    ASSERT_TRUE(source.drops_last || counts.size() == source.num_samples * source.epochs);
    for (const auto& [sample, times] : counts) ASSERT_EQ(times, 1) << sample.second;
  }
}

TEST(SampleQueueTest, RunsBeyondTheBoundAreCountedAsDropped) {
  std::vector<WorkerId> all;
  for (uint32_t i = 0; i < SampleQueue::kWorkersMax; ++i) all.push_back(WorkerId{i});
  SampleQueue queue = QueueOf({.num_samples = 100000, .batch = 2}, all);
  std::vector<WorkerId> every_second;
  for (uint32_t i = 0; i < SampleQueue::kWorkersMax; i += 2) every_second.push_back(WorkerId{i});

  queue.Advance(every_second, every_second);

  EXPECT_EQ(queue.dropped(), (SampleQueue::kWorkersMax / 2 - SampleQueue::kReturnedMax) * 2);
  EXPECT_TRUE(SampleQueue::Decode(queue.Encode()).ok());
}

TEST(SampleQueueTest, RejectsBytesThatAreNotAQueue) {
  const std::vector<std::byte> zeros(SampleQueue::kBytes);
  std::vector<std::byte> newer = SampleQueue({.num_samples = 3}).Encode();
  newer[4] = std::byte{9};
  std::vector<std::byte> cut = SampleQueue({.num_samples = 3}).Encode();
  cut.pop_back();

  EXPECT_THAT(SampleQueue::Decode(zeros).status().message(), HasSubstr("not a sample queue"));
  EXPECT_THAT(SampleQueue::Decode(newer).status().message(), HasSubstr("format 9"));
  EXPECT_FALSE(SampleQueue::Decode(cut).ok());
}

}  // namespace
}  // namespace pushpull
