// SPDX-License-Identifier: Apache-2.0
//
// The leases of a data set: how it is handed out without common steps, what comes back, and what a
// value that has none does.
#include "runtime/consistency/sample_leases.h"

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr WorkerId kFast{0};
constexpr WorkerId kSlow{1};
constexpr WorkerId kJoiner{2};

SampleLeases LeasesOf(const SampleSource& source, const std::vector<WorkerId>& workers) {
  SampleLeases leases{SampleQueue(source)};
  leases.Admit(workers);
  return leases;
}

std::vector<SampleRange> LeaseOf(const SampleLeases& leases, WorkerId worker, uint64_t ahead = 0) {
  return leases.ShareOf(worker, Step{0}, ahead).ranges;
}

void HaveDone(SampleLeases& leases, WorkerId worker) {
  leases.Commit(worker,
                SampleReport::kDone,
                {.num_samples = static_cast<double>(leases.source().num_samples)});
}

TEST(SampleLeasesTest, AnEpochIsDividedEvenlyInWholeBatches) {
  const SampleLeases leases = LeasesOf({.num_samples = 70, .batch = 10}, {kFast, kSlow});

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
  EXPECT_THAT(LeaseOf(leases, kFast, 2), ElementsAre(SampleRange{20, 10}));
  EXPECT_THAT(LeaseOf(leases, kSlow), ElementsAre(SampleRange{30, 10}));
  EXPECT_EQ(leases.ShareOf(kFast, Step{4}, 3).epoch, 1U);
  EXPECT_EQ(leases.batch(), 20U);
}

TEST(SampleLeasesTest, AJoinerTakesHalfOfTheLongestPlan) {
  SampleLeases leases = LeasesOf({.num_samples = 100, .batch = 10}, {kFast});

  HaveDone(leases, kSlow);

  EXPECT_THAT(LeaseOf(leases, kSlow), ElementsAre(SampleRange{50, 10}));
  EXPECT_THAT(LeaseOf(leases, kFast, 4), ElementsAre(SampleRange{40, 10}));
  EXPECT_THAT(LeaseOf(leases, kFast, 5), IsEmpty());
}

TEST(SampleLeasesTest, TheBatchInWorkStaysWithItsWorker) {
  SampleLeases leases = LeasesOf({.num_samples = 20, .batch = 10}, {kFast, kSlow});

  HaveDone(leases, kJoiner);

  EXPECT_TRUE(leases.IsWaiting(kJoiner, Step{}));
  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
}

TEST(SampleLeasesTest, AnEpochBeginsWhenTheOneBeforeIsFinished) {
  SampleLeases leases = LeasesOf({.num_samples = 20, .batch = 10}, {kFast, kSlow});

  HaveDone(leases, kFast);
  EXPECT_TRUE(leases.IsWaiting(kFast, Step{}));
  EXPECT_EQ(leases.ShareOf(kFast, Step{1}, 0).position, 10U);
  leases.Commit(kSlow, SampleReport::kDone, {.num_samples = 40});

  EXPECT_EQ(leases.epoch(), 1U);
  EXPECT_EQ(leases.source().num_samples, 40U);
  EXPECT_THAT(LeaseOf(leases, kSlow), ElementsAre(SampleRange{20, 10}));
}

// Else one that wants no more epochs would wait for those that do.
TEST(SampleLeasesTest, AWorkerThatWaitsAsksAgainInTheNextEpoch) {
  SampleLeases leases = LeasesOf({.num_samples = 10, .batch = 10}, {kFast});
  leases.Commit(kSlow, SampleReport::kAsks, {.num_samples = 10});
  EXPECT_TRUE(leases.IsWaiting(kSlow, Step{3}));

  leases.Commit(kFast, SampleReport::kDone, {.num_samples = 10, .version = Step{5}});

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
  EXPECT_FALSE(leases.IsWaiting(kSlow, Step{4}));
  EXPECT_TRUE(leases.IsWaiting(kSlow, Step{5}));
}

TEST(SampleLeasesTest, ALeaseThatItsWorkerDoesNotKnowOfIsNotDone) {
  SampleLeases leases = LeasesOf({.num_samples = 20, .batch = 10}, {kFast, kSlow});
  leases.Commit(kJoiner, SampleReport::kAsks, {.num_samples = 20});
  leases.Retain([](WorkerId worker) { return worker != kSlow; });
  EXPECT_THAT(LeaseOf(leases, kJoiner), ElementsAre(SampleRange{10, 10}));

  leases.Commit(kJoiner, SampleReport::kAsks, {.num_samples = 20});
  EXPECT_THAT(LeaseOf(leases, kJoiner), ElementsAre(SampleRange{10, 10}));
  leases.Commit(kJoiner, SampleReport::kLeavesWithout, {.num_samples = 20});
  HaveDone(leases, kFast);

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{10, 10}));
  EXPECT_EQ(leases.epoch(), 0U);
}

TEST(SampleLeasesTest, TheLeaseOfAWorkerThatIsGoneGoesToOneThatWaits) {
  SampleLeases leases = LeasesOf({.num_samples = 20, .batch = 10}, {kFast, kSlow});
  HaveDone(leases, kFast);

  EXPECT_TRUE(leases.Retain([](WorkerId worker) { return worker == kFast; }));
  EXPECT_FALSE(leases.Retain([](WorkerId worker) { return worker == kFast; }));

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{10, 10}));
  EXPECT_EQ(leases.epoch(), 0U);
}

TEST(SampleLeasesTest, AWorkerThatLeavesHasDoneItsBatchOnly) {
  SampleLeases leases = LeasesOf({.num_samples = 40, .batch = 10}, {kFast, kSlow});

  leases.Commit(kFast, SampleReport::kLeaves, {.num_samples = 40});
  HaveDone(leases, kSlow);
  HaveDone(leases, kSlow);

  EXPECT_THAT(LeaseOf(leases, kFast), IsEmpty());
  EXPECT_THAT(LeaseOf(leases, kSlow), ElementsAre(SampleRange{10, 10}));
}

TEST(SampleLeasesTest, AWorkerMayGoOnWithItsBatch) {
  SampleLeases leases = LeasesOf({.num_samples = 40, .batch = 10}, {kFast});

  leases.Commit(kFast, SampleReport::kKeeps, {.num_samples = 40});

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
}

TEST(SampleLeasesTest, NobodyIsLeftWithASingleSample) {
  SampleLeases leases = LeasesOf({.num_samples = 21, .batch = 10}, {kFast});

  HaveDone(leases, kFast);

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{10, 9}));
  EXPECT_THAT(LeaseOf(leases, kFast, 1), ElementsAre(SampleRange{19, 2}));
}

TEST(SampleLeasesTest, AnEpochHasFullBatchesOnlyIfTold) {
  SampleLeases leases = LeasesOf({.num_samples = 25, .batch = 10, .drops_last = true}, {kFast});

  HaveDone(leases, kFast);
  HaveDone(leases, kFast);

  EXPECT_EQ(leases.epoch(), 1U);
  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
}

TEST(SampleLeasesTest, AGlobalBatchIsDividedAndNeverTheOneInWork) {
  SampleLeases leases = LeasesOf({.num_samples = 100, .batch = 10}, {kFast, kSlow});

  leases.SetGlobalBatch(8);
  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
  HaveDone(leases, kFast);

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{10, 4}));
}

TEST(SampleLeasesTest, AModeWithCommonStepsTakesOverWhatIsLeft) {
  SampleLeases leases = LeasesOf({.num_samples = 40, .batch = 10}, {kFast, kSlow});
  HaveDone(leases, kFast);

  SampleQueue queue = leases.ToQueue(std::vector{kSlow}, Step{7});
  queue.SetMembers({kFast, kSlow});

  EXPECT_EQ(queue.Left().size(), 2U);
  EXPECT_THAT(queue.ShareOf(kFast, Step{7}).ranges, ElementsAre(SampleRange{10, 10}));
  EXPECT_THAT(queue.ShareOf(kSlow, Step{7}).ranges, ElementsAre(SampleRange{30, 10}));
}

TEST(SampleLeasesTest, AnEpochThatHasNotBegunMayChangeItsSize) {
  SampleQueue queue =
      LeasesOf({.num_samples = 40, .batch = 10}, {kFast, kSlow}).ToQueue({}, Step{7});

  queue.SetNumSamples(6);
  queue.SetMembers({kFast});

  EXPECT_THAT(queue.ShareOf(kFast, Step{7}).ranges, ElementsAre(SampleRange{0, 6}));
}

TEST(SampleLeasesTest, TakesOverWhatAModeWithCommonStepsHasLeft) {
  SampleQueue queue({.num_samples = 40, .batch = 10});
  queue.SetMembers({kFast, kSlow});
  queue.Advance(std::vector{kSlow}, {kFast, kSlow});

  SampleLeases leases(queue);
  leases.Admit(std::vector{kFast, kSlow});

  EXPECT_THAT(LeaseOf(leases, kFast), ElementsAre(SampleRange{0, 10}));
  EXPECT_THAT(LeaseOf(leases, kSlow), ElementsAre(SampleRange{20, 10}));
}

TEST(SampleLeasesTest, OnlySoManyWorkersShareADataSet) {
  SampleLeases leases{SampleQueue({.num_samples = 1000, .batch = 1})};
  for (uint32_t i = 0; i <= SampleLeases::kWorkersMax; ++i) HaveDone(leases, WorkerId{i});

  EXPECT_TRUE(leases.IsTurnedAway(WorkerId{SampleLeases::kWorkersMax}));
  EXPECT_FALSE(leases.IsTurnedAway(kFast));
  EXPECT_TRUE(SampleLeases::Decode(leases.Encode()).ok());
}

TEST(SampleLeasesTest, RejectsBytesThatHaveNone) {
  const std::vector<std::byte> queue = SampleQueue({.num_samples = 3}).Encode();
  const std::vector<std::byte> sound = LeasesOf({.num_samples = 30}, {kFast, kSlow}).Encode();
  std::vector<std::byte> newer = sound, damaged = sound;
  newer[4] = std::byte{9};
  damaged[8] = std::byte{3};  // the number of samples

  EXPECT_FALSE(SampleLeases::AreIn(queue));
  EXPECT_THAT(SampleLeases::Decode(queue).status().message(), HasSubstr("has no leases"));
  EXPECT_THAT(SampleLeases::Decode(newer).status().message(), HasSubstr("format 9"));
  EXPECT_THAT(SampleLeases::Decode(damaged).status().message(), HasSubstr("damaged"));
}

// Workers that push, join, leave and die in any order. What a worker has in work is told to it
// once, with the answer to its push, and must be what counts with the next.
class LeaseModel {
 public:
  explicit LeaseModel(uint32_t seed)
      : random_(seed),
        source_{.num_samples = 1 + random_() % 300,
                .epochs = 1 + random_() % 3,
                .batch = 1 + random_() % 40,
                .is_global_batch = random_() % 4 == 0},
        leases_(SampleQueue(source_)) {
    std::vector<WorkerId> first;
    for (uint32_t i = 0; i < random_() % 6; ++i) first.push_back(WorkerId{i});
    leases_.Admit(first);
    for (const WorkerId worker : first) Tell(worker);
  }

  // Returns the number of batches.
  uint64_t Run() {
    uint64_t batches = 0;
    const SampleLeases::NextEpoch size{.num_samples = static_cast<double>(source_.num_samples)};
    for (int event = 0; event < 100'000 && leases_.epoch() < source_.epochs; ++event) {
      const WorkerId worker{static_cast<uint32_t>(random_() % 6)};
      const auto in_work = told_.find(worker);
      const auto kind = random_() % 40;
      if (kind == 0) {
        Lose(worker);
      } else if (in_work == told_.end()) {
        leases_.Commit(
            worker, kind == 1 ? SampleReport::kLeavesWithout : SampleReport::kAsks, size);
      } else if (kind == 1) {
        leases_.Commit(worker, SampleReport::kKeeps, size);
      } else {
        ++batches;
        CountOf(worker);
        leases_.Commit(worker, kind == 2 ? SampleReport::kLeaves : SampleReport::kDone, size);
      }
      leases_ = *SampleLeases::Decode(leases_.Encode());
      for (uint32_t i = 0; i < 6; ++i)
        if (random_() % 2 == 0) Tell(WorkerId{i});
    }
    return batches;
  }

  void ExpectEachOnce() const {
    ASSERT_EQ(leases_.epoch(), source_.epochs) << "it hangs";
    EXPECT_EQ(counts_.size(), source_.num_samples * source_.epochs);
    for (const auto& [sample, times] : counts_) ASSERT_EQ(times, 1) << sample.second;
  }

  const SampleSource& source() const { return source_; }

 private:
  // The answer to a push of the worker, late perhaps.
  void Tell(WorkerId worker) {
    const StepSamples share = leases_.ShareOf(worker, Step{0}, 0);
    if (share.count == 0) return;
    const auto [told, is_new] = told_.try_emplace(worker, share.epoch, share.ranges[0]);
    EXPECT_EQ(told->second.second, share.ranges[0]) << "taken from under a worker";
  }
  void CountOf(WorkerId worker) {
    const auto told = told_.find(worker);
    if (told == told_.end()) return;
    const auto& [epoch, range] = told->second;
    for (uint64_t i = 0; i < range.count; ++i) ++counts_[{epoch, range.first + i}];
    told_.erase(told);
  }
  void Lose(WorkerId worker) {
    told_.erase(worker);
    leases_.Retain([&](WorkerId other) { return other != worker; });
  }

  std::mt19937 random_;
  SampleSource source_;
  SampleLeases leases_;
  std::map<WorkerId, std::pair<uint64_t, SampleRange>> told_;
  std::map<std::pair<uint64_t, uint64_t>, int> counts_;
};

TEST(SampleLeasesTest, EverySampleCountsOnceWhateverTheWorkersDo) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    LeaseModel model(seed);

    const uint64_t batches = model.Run();

    model.ExpectEachOnce();
    const SampleSource& source = model.source();
    const uint64_t least = (source.num_samples + source.batch - 1) / source.batch * source.epochs;
    if (!source.is_global_batch) {
      EXPECT_EQ(batches, least);
    }
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace pushpull
