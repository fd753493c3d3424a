// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/message_table.h"

#include <algorithm>
#include <random>
#include <set>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/seeds.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ShardId kMessageShard{3};
constexpr MessagePair kPair{WorkerId{0}, WorkerId{1}};

ExchangeKey Number(uint64_t sequence, const MessagePair& pair = kPair, uint64_t step = 5) {
  return {{Step{step}, sequence}, 0, pair};
}

ExchangeSpec FloatsSpec(const MessagePair& pair, size_t values) {
  return {.op = ExchangeOp::kMessage,
          .type = ElementType::kFloat32,
          .bytes = values * sizeof(float),
          .pair = pair};
}

ExchangeSpec AnySpec(const MessagePair& pair) {
  return {.op = ExchangeOp::kMessage, .pair = pair, .takes_any = true};
}

std::vector<float> FloatsIn(const SentPiece& piece) {
  std::vector<float> values(piece.values.num_bytes() / sizeof(float));
  std::ranges::copy(piece.values.bytes(), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

// A table and the workers of a view, of which each process has a number of its own.
class Mailbox {
 public:
  explicit Mailbox(std::set<uint32_t> workers) { SetMembers(workers); }

  std::vector<MessageReply> Send(const ExchangeKey& key, const std::vector<float>& values) {
    HostBuffer buffer = *HostBuffer::Uninitialized(values.size() * sizeof(float));
    std::ranges::copy(std::as_bytes(std::span(values)), buffer.bytes().begin());
    return Take({.key = key,
                 .spec = FloatsSpec(*key.pair, values.size()),
                 .shard = kMessageShard,
                 .worker = key.pair->from,
                 .values = std::move(buffer),
                 .result_of = {},
                 .label = "weights"});
  }
  std::vector<MessageReply> Ask(const ExchangeKey& key) { return Ask(key, AnySpec(*key.pair)); }
  std::vector<MessageReply> Ask(const ExchangeKey& key, const ExchangeSpec& spec) {
    return Take({.key = key,
                 .spec = spec,
                 .shard = kMessageShard,
                 .worker = key.pair->to,
                 .result_of = {}});
  }
  std::vector<MessageReply> Receipt(const ExchangeKey& key) {
    return Take({.key = key,
                 .spec = FloatsSpec(*key.pair, 1),
                 .shard = kMessageShard,
                 .worker = key.pair->to,
                 .result_of = {{key.pair->from, key.pair->to}}});
  }
  std::vector<MessageReply> Take(ExchangeContribution contribution) {
    const ExchangeKey key = contribution.key;
    contribution.incarnation = IncarnationOf(contribution.worker.value());
    const ExchangeWaiter waiter{.connection = nullptr,
                                .request = {.worker = contribution.worker},
                                .has_result = contribution.result_of.has_value(),
                                .pair = key.pair};
    taken_ = table_.Take(std::move(contribution), waiter, membership_);
    return table_.Settle(key, membership_, [](ShardId) { return true; });
  }
  std::vector<MessageReply> SetMembers(const std::set<uint32_t>& workers) {
    View view{.number = ++number_, .members = {}};
    for (const uint32_t worker : workers) {
      view.members.push_back({.worker = WorkerId{worker},
                              .incarnation = IncarnationOf(worker),
                              .from_step = Step{0},
                              .end_step = {}});
    }
    membership_.Activate(view);
    table_.OnView(membership_);
    return table_.SettleAll(membership_, [](ShardId) { return true; });
  }
  // A new process in place of the worker's; the view has it already.
  std::vector<MessageReply> Replace(uint32_t worker, const std::set<uint32_t>& workers) {
    ++processes_[worker];
    return SetMembers(workers);
  }
  // Likewise, in a view that is not in force yet.
  void Propose(uint32_t worker) {
    ++processes_[worker];
    View next = membership_.active();
    next.number = ++number_;
    next.members[worker].incarnation = IncarnationOf(worker);
    EXPECT_TRUE(membership_.Propose(next, Step{0}));
  }
  const absl::Status& taken() const { return taken_; }
  MessageTable& table() { return table_; }

 private:
  Incarnation IncarnationOf(uint32_t worker) {
    return Incarnation{100 + worker + 1000 * processes_[worker]};
  }

  uint64_t number_ = 0;
  std::map<uint32_t, uint64_t> processes_;
  MembershipView membership_;
  MessageTable table_;
  absl::Status taken_;
};

TEST(MessageTableTest, TheReceiverIsAnsweredWhenBothAreThere) {
  Mailbox mailbox({0, 1, 2});

  EXPECT_THAT(mailbox.Send(Number(0), {1, 2}), IsEmpty());
  const auto replies = mailbox.Ask(Number(0));

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].to.request.worker, WorkerId{1});
  EXPECT_THAT(FloatsIn(*replies[0].piece), ElementsAre(1, 2));
  EXPECT_EQ(replies[0].piece->head,
            (MessageHead{ElementType::kFloat32, 8, Incarnation{100}, "weights"}));
}

TEST(MessageTableTest, TheSenderIsAnsweredByTheReceipt) {
  Mailbox mailbox({0, 1});

  EXPECT_THAT(mailbox.Ask(Number(0)), IsEmpty());
  EXPECT_THAT(mailbox.Send(Number(0), {1}), SizeIs(1));
  EXPECT_EQ(mailbox.table().highest_ended(), std::nullopt);
  const auto replies = mailbox.Receipt(Number(0));

  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_EQ(replies[0].to.request.worker, WorkerId{0});
  for (const MessageReply& reply : replies) {
    EXPECT_TRUE(reply.status.ok());
    EXPECT_EQ(reply.piece, nullptr);
  }
  EXPECT_EQ(mailbox.table().highest_ended(), Step{5});
}

TEST(MessageTableTest, WhatIsReceivedKeepsNoValues) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), std::vector<float>(1000));
  mailbox.Ask(Number(0));
  EXPECT_GT(mailbox.table().BytesOf(WorkerId{0}), 4000U);

  mailbox.Receipt(Number(0));

  EXPECT_LT(mailbox.table().BytesOf(WorkerId{0}), 4000U);
}

TEST(MessageTableTest, ALostAnswerIsGivenAgain) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {7});
  mailbox.Ask(Number(0));

  EXPECT_THAT(FloatsIn(*mailbox.Ask(Number(0)).at(0).piece), ElementsAre(7));
  mailbox.Receipt(Number(0));

  EXPECT_THAT(mailbox.Receipt(Number(0)), SizeIs(1));
  EXPECT_THAT(mailbox.Send(Number(0), {7}), SizeIs(1));
}

TEST(MessageTableTest, AReceiptIsEnoughForTheNextPrimary) {
  Mailbox mailbox({0, 1});

  EXPECT_THAT(mailbox.Receipt(Number(0)), SizeIs(1));
  const auto replies = mailbox.Send(Number(0), {1});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].to.request.worker, WorkerId{0});
  EXPECT_EQ(replies[0].piece, nullptr);
  EXPECT_EQ(mailbox.table().highest_ended(), Step{5});
}

TEST(MessageTableTest, PairsAndDirectionsAreIndependent) {
  constexpr MessagePair kBack{WorkerId{1}, WorkerId{0}};
  constexpr MessagePair kOther{WorkerId{2}, WorkerId{1}};
  Mailbox mailbox({0, 1, 2});

  mailbox.Send(Number(0), {1});
  mailbox.Send(Number(0, kBack), {2});
  mailbox.Send(Number(0, kOther), {3});

  EXPECT_THAT(FloatsIn(*mailbox.Ask(Number(0, kOther)).at(0).piece), ElementsAre(3));
  EXPECT_THAT(FloatsIn(*mailbox.Ask(Number(0, kBack)).at(0).piece), ElementsAre(2));
  EXPECT_THAT(FloatsIn(*mailbox.Ask(Number(0)).at(0).piece), ElementsAre(1));
}

TEST(MessageTableTest, OtherSizesFailInBothAndNameBoth) {
  Mailbox mailbox({0, 1});

  mailbox.Send(Number(0), {1, 2});
  const auto replies = mailbox.Ask(Number(0), FloatsSpec(kPair, 3));

  ASSERT_THAT(replies, SizeIs(2));
  for (const MessageReply& reply : replies) {
    EXPECT_TRUE(absl::IsInvalidArgument(reply.status));
    EXPECT_THAT(std::string(reply.status.message()),
                HasSubstr("message 0 of step 5 from worker-0 to worker-1: worker-0 sends 2 float32 "
                          "values, worker-1 expects 3 float32 values"));
  }
  EXPECT_THAT(mailbox.Ask(Number(0), FloatsSpec(kPair, 3)), SizeIs(1));
}

TEST(MessageTableTest, ADeadReceiverFailsTheSender) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {1});
  mailbox.Ask(Number(0));

  const auto replies = mailbox.SetMembers({0});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(replies[0].status));
  EXPECT_THAT(std::string(replies[0].status.message()),
              HasSubstr("worker-1 is not among the workers of this step"));
  // Who joins begins with message 0, which the sender does not repeat.
  EXPECT_EQ(mailbox.table().highest_ended(), Step{5});
}

TEST(MessageTableTest, ADeadSenderFailsTheReceiver) {
  Mailbox mailbox({0, 1});
  mailbox.Ask(Number(0));

  const auto replies = mailbox.SetMembers({1});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(replies[0].status));
  EXPECT_THAT(std::string(replies[0].status.message()), HasSubstr("worker-0 is not among"));
}

TEST(MessageTableTest, NobodyWaitsForAWorkerThatIsNotThere) {
  Mailbox mailbox({0});

  const auto replies = mailbox.Send(Number(0, {WorkerId{0}, WorkerId{7}}), {1});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(replies[0].status));
}

TEST(MessageTableTest, AReceiptCountsAfterTheSendersDeath) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {1});
  mailbox.Ask(Number(0));
  mailbox.SetMembers({1});

  const auto replies = mailbox.Receipt(Number(0));

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_TRUE(replies[0].status.ok());
}

TEST(MessageTableTest, ANewProcessDoesNotGetAnotherOnesMessage) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {1});
  mailbox.Ask(Number(0));
  mailbox.Receipt(Number(0));

  mailbox.Propose(1);
  EXPECT_THAT(mailbox.Ask(Number(0)), IsEmpty());

  EXPECT_TRUE(absl::IsNotFound(mailbox.taken()));
}

TEST(MessageTableTest, AProcessIsReplacedBeforeAnythingIsOver) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {1});

  mailbox.Replace(0, {0, 1});
  EXPECT_THAT(mailbox.Ask(Number(0)), IsEmpty());
  const auto replies = mailbox.Send(Number(0), {2});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(FloatsIn(*replies[0].piece), ElementsAre(2));
}

TEST(MessageTableTest, ASenderThatHasGoneOnFailsTheReceiver) {
  Mailbox mailbox({0, 1});
  mailbox.Ask(Number(0));

  const auto replies = mailbox.Send(Number(0, kPair, 6), {1});

  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].to.request.worker, WorkerId{1});
  EXPECT_TRUE(absl::IsInvalidArgument(replies[0].status));
  EXPECT_THAT(std::string(replies[0].status.message()),
              AllOf(HasSubstr("message 0 of step 5 from worker-0 to worker-1"),
                    HasSubstr("worker-0 sends message 0 of step 6 instead")));
}

TEST(MessageTableTest, KeepsAPieceUntilBothHaveGoneOn) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {1});
  mailbox.Ask(Number(0));
  mailbox.Receipt(Number(0));

  mailbox.Ask(Number(1));
  EXPECT_EQ(mailbox.table().num_pieces(), 2U);
  mailbox.Send(Number(1), {1});

  EXPECT_EQ(mailbox.table().num_pieces(), 1U);
  // Copies that were under way for long begin nothing.
  EXPECT_THAT(mailbox.Send(Number(0), {1}), IsEmpty());
  EXPECT_THAT(mailbox.Ask(Number(0)), IsEmpty());
  EXPECT_EQ(mailbox.table().num_pieces(), 1U);
}

TEST(MessageTableTest, ForgetsStepsThatAreOverByTwo) {
  Mailbox mailbox({0, 1});
  mailbox.Send(Number(0), {1});
  mailbox.Ask(Number(0));

  mailbox.table().OnVersion(Step{6});
  EXPECT_FALSE(mailbox.table().empty());
  mailbox.table().OnVersion(Step{7});

  EXPECT_TRUE(mailbox.table().empty());
  EXPECT_EQ(mailbox.table().BytesOf(WorkerId{0}), 0U);
  EXPECT_EQ(mailbox.table().BytesOf(WorkerId{1}), 0U);
}

TEST(MessageTableTest, AShardThatMovesReturnsItsRequests) {
  Mailbox mailbox({0, 1});
  mailbox.Ask(Number(0));
  mailbox.Send(Number(0, {WorkerId{1}, WorkerId{0}}), {1});

  EXPECT_THAT(mailbox.table().DropShard(ShardId{4}), IsEmpty());
  EXPECT_THAT(mailbox.table().DropShard(kMessageShard), SizeIs(2));

  EXPECT_TRUE(mailbox.table().empty());
  EXPECT_EQ(mailbox.table().BytesOf(WorkerId{1}), 0U);
}

TEST(MessageTableTest, RefusesWhatAWorkerCannotSend) {
  Mailbox mailbox({0, 1, 2});
  const auto ask_as = [&](uint32_t worker) {
    return mailbox.Take({.key = Number(0),
                         .spec = AnySpec(kPair),
                         .shard = kMessageShard,
                         .worker = WorkerId{worker},
                         .result_of = {}});
  };

  for (const uint32_t worker : {0U, 2U}) {
    EXPECT_THAT(ask_as(worker), IsEmpty());
    EXPECT_TRUE(absl::IsInvalidArgument(mailbox.taken())) << worker;
  }
  mailbox.SetMembers({0});
  EXPECT_THAT(ask_as(1), IsEmpty());
  EXPECT_TRUE(absl::IsUnavailable(mailbox.taken()));
}

TEST(MessageTableTest, BoundsWhatItKeepsOfASender) {
  Mailbox mailbox({0, 1});
  const std::vector<float> piece(kExchangePieceBytesMax / sizeof(float));

  for (uint32_t i = 0; mailbox.taken().ok() && i < 10'000; ++i) {
    ExchangeKey key = Number(0);
    key.piece = i;
    mailbox.Send(key, piece);
  }

  EXPECT_TRUE(absl::IsResourceExhausted(mailbox.taken()));
  EXPECT_THAT(std::string(mailbox.taken().message()),
              HasSubstr("a lane keeps 201326592 of a worker"));
  EXPECT_LE(mailbox.table().BytesOf(WorkerId{0}), kExchangeBytesPerWorkerMax);
}

// Two workers whose frames are repeated, lost and late, while the shard moves to a table that knows
// nothing: every message arrives once, in order, before its sender goes on.
TEST(MessageTableTest, EverySchedulePassesEveryMessageOnce) {
  constexpr uint64_t kMessages = 8;
  const Seeds seeds = SeedsToRun(300);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Mailbox mailbox({0, 1});
    uint64_t num_sent = 0;
    std::vector<float> received;
    bool is_acknowledged = true;  // the receipt of the last one
    const auto deliver = [&](const std::vector<MessageReply>& replies, uint64_t number) {
      for (const MessageReply& reply : replies) {
        ASSERT_TRUE(reply.status.ok()) << reply.status;
        if (random() % 4 == 0) continue;  // lost
        if (reply.to.request.worker == kPair.from) {
          if (number == num_sent) ++num_sent;
        } else if (reply.piece == nullptr) {
          is_acknowledged = is_acknowledged || number + 1 == received.size();
        } else if (number == received.size()) {
          received.push_back(FloatsIn(*reply.piece).at(0));
          is_acknowledged = false;
        }
      }
    };

    while (num_sent < kMessages) {
      const uint64_t sent_before = num_sent;
      switch (random() % 5) {
        case 0:
          deliver(mailbox.Send(Number(num_sent), {static_cast<float>(num_sent)}), num_sent);
          break;
        case 1:
          if (received.size() < kMessages)
            deliver(mailbox.Ask(Number(received.size())), received.size());
          break;
        case 2:
          if (!is_acknowledged)
            deliver(mailbox.Receipt(Number(received.size() - 1)), received.size() - 1);
          break;
        case 3:  // a late copy
          if (num_sent > 0) mailbox.Send(Number(random() % num_sent), {-1});
          break;
        case 4:
          if (random() % 5 != 0) break;
          mailbox.table().DropShard(kMessageShard);
          is_acknowledged = received.empty();
          break;
      }
      if (num_sent > sent_before) {
        EXPECT_GE(received.size(), num_sent);
      }
    }

    EXPECT_THAT(received, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
}

}  // namespace
}  // namespace pushpull
