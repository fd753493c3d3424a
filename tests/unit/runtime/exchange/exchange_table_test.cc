// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/exchange_table.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/half_float.h"
#include "tests/fakes/seeds.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ShardId kShard{3};
constexpr bool kOpen = true;

bool Open(ShardId) {
  return kOpen;
}

MembershipView Members(uint64_t number, std::vector<uint32_t> workers) {
  View view{.number = number, .members = {}};
  for (const uint32_t worker : workers) {
    view.members.push_back({.worker = WorkerId{worker},
                            .incarnation = Incarnation{worker + 100},
                            .from_step = Step{0},
                            .end_step = {}});
  }
  MembershipView membership;
  membership.Activate(view);
  return membership;
}

ExchangeSpec SumOf(size_t values) {
  return {.op = ExchangeOp::kAllReduce, .type = ElementType::kFloat32, .bytes = values * 4};
}

// The values in the spec's type.
HostBuffer BufferOf(const std::vector<float>& values, ElementType type = ElementType::kFloat32) {
  HostBuffer buffer = *HostBuffer::Uninitialized(values.size() * ElementBytes(type));
  if (type == ElementType::kFloat16) {
    EncodeFloat16(values, buffer.bytes());
  } else if (type == ElementType::kBFloat16) {
    EncodeBFloat16(values, buffer.bytes());
  } else {
    std::ranges::copy(std::as_bytes(std::span(values)), buffer.bytes().begin());
  }
  return buffer;
}

ExchangeContribution Contribution(uint32_t worker,
                                  const ExchangeKey& key,
                                  const ExchangeSpec& spec,
                                  const std::vector<float>& values) {
  return {.key = key,
          .spec = spec,
          .shard = kShard,
          .worker = WorkerId{worker},
          .incarnation = Incarnation{worker + 100},
          .values = BufferOf(values, spec.type),
          .result_of = {}};
}

ExchangeWaiter WaiterOf(uint32_t worker) {
  return {.connection = nullptr, .request = {.worker = WorkerId{worker}}};
}

std::vector<float> FloatsOf(const ExchangeResult& result) {
  std::vector<float> values(result.values.num_bytes() / sizeof(float));
  std::ranges::copy(result.values.bytes(), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

std::vector<float> HalvesOf(const ExchangeResult& result, ElementType type) {
  std::vector<float> values(result.values.num_bytes() / ElementBytes(type));
  const auto decode = type == ElementType::kFloat16 ? DecodeFloat16 : DecodeBFloat16;
  decode(result.values.bytes(), values);
  return values;
}

// A table and the calls of workers.
class Lane {
 public:
  explicit Lane(std::vector<uint32_t> workers) : membership_(Members(1, std::move(workers))) {}

  std::vector<ExchangeReply> Send(uint32_t worker,
                                  const ExchangeKey& key,
                                  const ExchangeSpec& spec,
                                  const std::vector<float>& values) {
    const absl::Status taken =
        table_.Take(Contribution(worker, key, spec, values), WaiterOf(worker), membership_);
    EXPECT_TRUE(taken.ok()) << taken;
    return table_.Settle(key, membership_, Open);
  }
  std::vector<ExchangeReply> SetMembers(std::vector<uint32_t> workers) {
    membership_ = Members(++number_, std::move(workers));
    table_.OnView(membership_);
    return table_.SettleAll(membership_, Open);
  }
  ExchangeTable& table() { return table_; }
  const MembershipView& membership() const { return membership_; }

 private:
  uint64_t number_ = 1;
  MembershipView membership_;
  ExchangeTable table_;
};

constexpr ExchangeKey kFirst{{Step{5}, 0}, 0};
constexpr ExchangeKey kSecond{{Step{5}, 1}, 0};
constexpr ExchangeKey kThird{{Step{5}, 2}, 0};

TEST(ExchangeTableTest, AnswersAllWhenTheLastMemberContributes) {
  Lane lane({0, 1});

  EXPECT_THAT(lane.Send(0, kFirst, SumOf(2), {1, 2}), IsEmpty());
  const auto replies = lane.Send(1, kFirst, SumOf(2), {10, 20});

  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_EQ(replies[0].to.request.worker, WorkerId{0});
  EXPECT_EQ(replies[0].result, replies[1].result);
  EXPECT_THAT(replies[0].result->workers, ElementsAre(WorkerId{0}, WorkerId{1}));
  EXPECT_THAT(FloatsOf(*replies[0].result), ElementsAre(11, 22));
  EXPECT_EQ(lane.table().highest_completed(), Step{5});
}

TEST(ExchangeTableTest, AddsInWorkerOrderWhateverTheArrival) {
  std::vector<uint32_t> order = {0, 1, 2, 3};
  std::vector<float> expected;
  std::mt19937_64 random(7);

  for (int run = 0; run < 24; ++run) {
    std::ranges::shuffle(order, random);
    Lane lane({0, 1, 2, 3});
    std::vector<ExchangeReply> replies;
    for (const uint32_t worker : order) {
      const float value = worker == 1 ? 1e8F : worker == 2 ? -1e8F : 0.3F;
      replies = lane.Send(worker, kFirst, SumOf(1), {value});
    }
    ASSERT_THAT(replies, SizeIs(4));
    if (expected.empty()) expected = FloatsOf(*replies[0].result);
    EXPECT_EQ(FloatsOf(*replies[0].result), expected);
  }
}

TEST(ExchangeTableTest, MeansAreOverTheWorkersThatCount) {
  Lane lane({0, 2});
  ExchangeSpec mean = SumOf(1);
  mean.reduction = Reduction::kMean;

  lane.Send(2, kFirst, mean, {4});
  const auto replies = lane.Send(0, kFirst, mean, {1});

  EXPECT_THAT(FloatsOf(*replies.at(0).result), ElementsAre(2.5F));
}

// What the workers 0, 1, ... get if each contributes one value, in any order.
std::vector<float> ReducedHalves(ElementType type,
                                 Reduction reduction,
                                 const std::vector<float>& by_worker,
                                 std::mt19937_64& random) {
  std::vector<uint32_t> order(by_worker.size());
  std::iota(order.begin(), order.end(), 0);
  Lane lane(order);
  std::ranges::shuffle(order, random);
  const ExchangeSpec spec{
      .op = ExchangeOp::kAllReduce, .type = type, .reduction = reduction, .bytes = 2};
  std::vector<ExchangeReply> replies;
  for (const uint32_t worker : order)
    replies = lane.Send(worker, kFirst, spec, {by_worker[worker]});
  EXPECT_THAT(replies, SizeIs(by_worker.size()));
  return HalvesOf(*replies.at(0).result, type);
}

TEST(ExchangeTableTest, HalvesAreRoundedOnceWhateverTheArrival) {
  std::mt19937_64 random(7);

  for (int run = 0; run < 24; ++run) {
    EXPECT_THAT(ReducedHalves(ElementType::kFloat16, Reduction::kSum, {2048, 1, 1, -0.5F}, random),
                ElementsAre(2050));
    EXPECT_THAT(ReducedHalves(ElementType::kBFloat16, Reduction::kSum, {1, 256, 1}, random),
                ElementsAre(258));
    // float32 depends on the order too, which is that of the workers.
    EXPECT_THAT(
        ReducedHalves(ElementType::kBFloat16, Reduction::kSum, {0.5F, 1e8F, -1e8F, 0.25F}, random),
        ElementsAre(0.25F));
    // A sum on the way that float16 does not have.
    EXPECT_THAT(
        ReducedHalves(ElementType::kFloat16, Reduction::kMean, {60'000, 60'000, -60'000}, random),
        ElementsAre(20'000));
    EXPECT_THAT(ReducedHalves(ElementType::kBFloat16, Reduction::kMax, {3, -7.5F, 3.5F}, random),
                ElementsAre(3.5F));
  }
}

TEST(ExchangeTableTest, GathersInWorkerOrder) {
  Lane lane({0, 1, 4});
  ExchangeSpec gather = SumOf(2);
  gather.op = ExchangeOp::kAllGather;

  lane.Send(4, kFirst, gather, {5, 6});
  lane.Send(0, kFirst, gather, {1, 2});
  const auto replies = lane.Send(1, kFirst, gather, {3, 4});

  EXPECT_THAT(FloatsOf(*replies.at(0).result), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(ExchangeTableTest, BroadcastsTheRootsValues) {
  Lane lane({0, 1});
  ExchangeSpec broadcast = SumOf(1);
  broadcast.op = ExchangeOp::kBroadcast;
  broadcast.root = WorkerId{1};

  lane.Send(0, kFirst, broadcast, {});
  const auto replies = lane.Send(1, kFirst, broadcast, {42});

  EXPECT_THAT(FloatsOf(*replies.at(0).result), ElementsAre(42));
}

TEST(ExchangeTableTest, AnswersWithoutARootThatIsGone) {
  Lane lane({0, 1});
  ExchangeSpec broadcast = SumOf(1);
  broadcast.op = ExchangeOp::kBroadcast;
  broadcast.root = WorkerId{1};

  lane.Send(0, kFirst, broadcast, {});
  const auto replies = lane.SetMembers({0});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0].result->workers, ElementsAre(WorkerId{0}));
  EXPECT_EQ(replies[0].result->values.num_bytes(), 0U);
}

TEST(ExchangeTableTest, DifferentCallsFailForAllAndNameBoth) {
  Lane lane({0, 1});
  ExchangeSpec other = SumOf(3);
  other.reduction = Reduction::kMax;

  lane.Send(0, kFirst, SumOf(2), {1, 2});
  const auto replies = lane.Send(1, kFirst, other, {1, 2, 3});

  ASSERT_THAT(replies, SizeIs(2));
  for (const ExchangeReply& reply : replies) {
    EXPECT_TRUE(absl::IsInvalidArgument(reply.status));
    EXPECT_THAT(std::string(reply.status.message()),
                AllOf(HasSubstr("worker-0 calls all_reduce(sum) of 2 float32 values"),
                      HasSubstr("worker-1 calls all_reduce(max) of 3 float32 values")));
  }
}

TEST(ExchangeTableTest, ADepartedWorkerIsNeitherAwaitedNorCounted) {
  Lane lane({0, 1, 2});
  lane.Send(0, kFirst, SumOf(1), {1});
  lane.Send(2, kFirst, SumOf(1), {100});

  EXPECT_THAT(lane.SetMembers({0, 1}), IsEmpty());
  const auto replies = lane.Send(1, kFirst, SumOf(1), {10});

  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_THAT(FloatsOf(*replies[0].result), ElementsAre(11));
}

TEST(ExchangeTableTest, AViewWithoutTheMissingCompletes) {
  Lane lane({0, 1});
  lane.Send(0, kFirst, SumOf(1), {1});

  const auto replies = lane.SetMembers({0});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(FloatsOf(*replies[0].result), ElementsAre(1));
}

TEST(ExchangeTableTest, AProposedJoinerIsAwaited) {
  MembershipView membership = Members(1, {0});
  View next = membership.active();
  next.number = 2;
  next.members.push_back({.worker = WorkerId{1},
                          .incarnation = Incarnation{101},
                          .from_step = Step{5},
                          .end_step = {}});
  ASSERT_TRUE(membership.Propose(next, Step{5}));
  ExchangeTable table;

  ASSERT_TRUE(table.Take(Contribution(0, kFirst, SumOf(1), {1}), WaiterOf(0), membership).ok());
  EXPECT_THAT(table.Settle(kFirst, membership, Open), IsEmpty());
  ASSERT_TRUE(table.Take(Contribution(1, kFirst, SumOf(1), {2}), WaiterOf(1), membership).ok());

  EXPECT_THAT(table.Settle(kFirst, membership, Open), SizeIs(2));
}

TEST(ExchangeTableTest, ARepeatedContributionCountsOnce) {
  Lane lane({0, 1});

  lane.Send(0, kFirst, SumOf(1), {1});
  lane.Send(0, kFirst, SumOf(1), {1});
  const auto replies = lane.Send(1, kFirst, SumOf(1), {10});

  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_THAT(FloatsOf(*replies[0].result), ElementsAre(11));
  // Its answer was lost: it asks again.
  EXPECT_THAT(lane.Send(0, kFirst, SumOf(1), {1}), SizeIs(1));
}

TEST(ExchangeTableTest, AResultThatAWorkerHasIsFinal) {
  Lane lane({0, 1, 2});
  lane.Send(1, kFirst, SumOf(1), {10});
  ExchangeContribution result = Contribution(0, kFirst, SumOf(1), {111});
  result.result_of = {WorkerId{0}, WorkerId{1}, WorkerId{2}};

  ASSERT_TRUE(lane.table().Take(std::move(result), WaiterOf(0), lane.membership()).ok());
  const auto replies = lane.table().Settle(kFirst, lane.membership(), Open);

  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_THAT(FloatsOf(*replies[1].result), ElementsAre(111));
  EXPECT_THAT(FloatsOf(*lane.Send(2, kFirst, SumOf(1), {5}).at(0).result), ElementsAre(111));
}

TEST(ExchangeTableTest, OnlyThePrimaryAnswers) {
  Lane lane({0});
  ASSERT_TRUE(lane.table()
                  .Take(Contribution(0, kFirst, SumOf(1), {1}), WaiterOf(0), lane.membership())
                  .ok());

  EXPECT_THAT(lane.table().Settle(kFirst, lane.membership(), [](ShardId) { return false; }),
              IsEmpty());
  EXPECT_EQ(lane.table().highest_completed(), std::nullopt);
  EXPECT_THAT(lane.table().DropShard(kShard), SizeIs(1));
  EXPECT_TRUE(lane.table().empty());
}

TEST(ExchangeTableTest, KeepsAResultUntilAllHaveGoneOn) {
  Lane lane({0, 1});
  lane.Send(0, kFirst, SumOf(1), {1});
  lane.Send(1, kFirst, SumOf(1), {1});

  lane.Send(0, kSecond, SumOf(1), {1});
  EXPECT_EQ(lane.table().num_pieces(), 2U);
  lane.Send(1, kSecond, SumOf(1), {1});

  EXPECT_EQ(lane.table().num_pieces(), 1U);
  // Copies that were under way for long begin nothing.
  EXPECT_THAT(lane.Send(0, kFirst, SumOf(1), {1}), IsEmpty());
  EXPECT_EQ(lane.table().num_pieces(), 1U);
}

TEST(ExchangeTableTest, ForgetsStepsThatAreOverByTwo) {
  Lane lane({0});
  lane.Send(0, kFirst, SumOf(1), {1});

  lane.table().OnVersion(Step{6});
  EXPECT_FALSE(lane.table().empty());
  lane.table().OnVersion(Step{7});

  EXPECT_TRUE(lane.table().empty());
  EXPECT_EQ(lane.table().BytesOf(WorkerId{0}), 0U);
}

TEST(ExchangeTableTest, ForgetsWhatNoLivingWorkerHasSeen) {
  Lane lane({0});
  lane.Send(0, kFirst, SumOf(1), {1});

  lane.SetMembers({});

  EXPECT_TRUE(lane.table().empty());
}

TEST(ExchangeTableTest, RefusesStrangers) {
  Lane lane({0});
  ExchangeContribution stranger = Contribution(0, kFirst, SumOf(1), {1});
  stranger.incarnation = Incarnation{999};

  EXPECT_TRUE(
      absl::IsUnavailable(lane.table().Take(std::move(stranger), WaiterOf(0), lane.membership())));
}

TEST(ExchangeTableTest, BoundsWhatItKeepsOfAWorker) {
  Lane lane({0, 1});
  const std::vector<float> piece(kExchangePieceBytesMax / sizeof(float));
  const ExchangeSpec large = SumOf(kCollectiveBytesMax / sizeof(float));

  absl::Status refused;
  for (uint32_t i = 0; refused.ok() && i < 10'000; ++i) {
    ExchangeContribution next = Contribution(0, {{Step{5}, 0}, i}, large, piece);
    refused = lane.table().Take(std::move(next), WaiterOf(0), lane.membership());
  }

  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a lane keeps 201326592 of a worker"));
  EXPECT_LE(lane.table().BytesOf(WorkerId{0}), kExchangeBytesPerWorkerMax);
  // Others are not affected.
  EXPECT_TRUE(lane.table()
                  .Take(Contribution(1, kThird, SumOf(1), {1}), WaiterOf(1), lane.membership())
                  .ok());
}

// Workers that run the same exchanges while frames are repeated, lost and late, and the shard moves
// to a table that knows nothing.
TEST(ExchangeTableTest, EveryScheduleGivesAllWorkersTheSame) {
  constexpr uint32_t kWorkers = 3;
  constexpr uint64_t kExchanges = 8;
  const Seeds seeds = SeedsToRun(300);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const MembershipView membership = Members(1, {0, 1, 2});
    ExchangeTable table;
    std::vector<std::vector<float>> results(kWorkers);  // by worker, of each exchange
    const auto send = [&](uint32_t worker, uint64_t number, bool has_result) {
      const ExchangeKey key{{Step{5}, number}, 0};
      ExchangeContribution one =
          Contribution(worker, key, SumOf(1), {static_cast<float>(number * 10 + worker)});
      if (has_result) {
        one.values = BufferOf({results[worker][number]});
        one.result_of = {WorkerId{0}, WorkerId{1}, WorkerId{2}};
      }
      ASSERT_TRUE(table.Take(std::move(one), WaiterOf(worker), membership).ok());
      for (const ExchangeReply& reply : table.Settle(key, membership, Open)) {
        std::vector<float>& of = results[reply.to.request.worker.value()];
        const bool is_lost = random() % 4 == 0;
        if (!is_lost && of.size() == number) of.push_back(FloatsOf(*reply.result).at(0));
      }
    };

    const auto is_done = [](const auto& of) { return of.size() == kExchanges; };
    while (!std::ranges::all_of(results, is_done)) {
      const auto worker = static_cast<uint32_t>(random() % kWorkers);
      const uint64_t next = results[worker].size();
      if (next < kExchanges) send(worker, next, false);
      if (random() % 5 == 0 && next > 0) send(worker, random() % next, false);  // a late copy
      if (random() % 20 == 0) {
        table.DropShard(kShard);
        for (uint32_t i = 0; i < kWorkers; ++i)
          if (!results[i].empty()) send(i, results[i].size() - 1, true);
      }
    }

    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[0][2], 20 + 21 + 22);
    // The last one's, and late copies of one worker.
    EXPECT_LE(table.num_pieces(), kExchanges);
  }
}

}  // namespace
}  // namespace pushpull
