// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/exchange_frame.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

constexpr ExchangeSpec kSpec{.op = ExchangeOp::kBroadcast,
                             .type = ElementType::kInt32,
                             .reduction = Reduction::kMax,
                             .is_prelude = true,
                             .bytes = 400,
                             .piece_bytes = 64,
                             .root = WorkerId{7}};

TEST(ExchangeFrameTest, ContributionsSurviveARoundTrip) {
  const ExchangeMeta raw{.spec = kSpec, .result_of = {}};
  const ExchangeMeta result{.spec = kSpec, .result_of = {{WorkerId{0}, WorkerId{9}}}};

  const auto raw_again = DecodeExchange(EncodeExchange(raw));
  const auto result_again = DecodeExchange(EncodeExchange(result));

  ASSERT_TRUE(raw_again.ok() && result_again.ok());
  EXPECT_EQ(raw_again->spec, kSpec);
  EXPECT_FALSE(raw_again->result_of.has_value());
  EXPECT_THAT(*result_again->result_of, ElementsAre(WorkerId{0}, WorkerId{9}));
}

constexpr MessagePair kFrameTestPair{WorkerId{3}, WorkerId{0}};
constexpr ExchangeSpec kMessageSpec{
    .op = ExchangeOp::kMessage, .type = ElementType::kInt64, .bytes = 80, .pair = kFrameTestPair};

TEST(ExchangeFrameTest, MessagesSurviveARoundTrip) {
  ExchangeSpec any = kMessageSpec;
  any.bytes = 0;
  any.takes_any = true;

  const auto sent =
      DecodeExchange(EncodeExchange({.spec = kMessageSpec, .result_of = {}, .label = "a label"}));
  const auto asked = DecodeExchange(EncodeExchange({.spec = any, .result_of = {}}));
  const auto answer = DecodeExchangeAnswer(
      EncodeExchangeAnswer({.kind = ExchangeAnswer::Kind::kResult,
                            .pair = kFrameTestPair,
                            .head = {ElementType::kFloat64, 24, Incarnation{77}, "a label"}}));

  ASSERT_TRUE(sent.ok() && asked.ok() && answer.ok());
  EXPECT_EQ(sent->spec, kMessageSpec);
  EXPECT_EQ(sent->label, "a label");
  EXPECT_EQ(asked->spec, any);
  EXPECT_EQ(answer->pair, kFrameTestPair);
  EXPECT_EQ(answer->head, (MessageHead{ElementType::kFloat64, 24, Incarnation{77}, "a label"}));
}

TEST(ExchangeFrameTest, HalvesHaveTheNumbersThatOlderMessagesLeaveFree) {
  for (const auto& [type, number] :
       {std::pair(ElementType::kFloat16, 7), std::pair(ElementType::kBFloat16, 8)}) {
    ExchangeSpec spec = kMessageSpec;
    spec.type = type;

    const std::vector<std::byte> meta = EncodeExchange({.spec = spec, .result_of = {}});
    const auto again = DecodeExchange(meta);

    EXPECT_EQ(meta.at(1), std::byte(number));  // after the operation
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->spec, spec);
  }
}

TEST(ExchangeFrameTest, RefusesMessagesThatCannotBe) {
  const auto decode = [](const ExchangeSpec& spec, const std::string& label = "") {
    return DecodeExchange(EncodeExchange({.spec = spec, .result_of = {}, .label = label})).status();
  };
  ExchangeSpec spec = kMessageSpec;
  EXPECT_TRUE(decode(spec).ok());
  EXPECT_TRUE(absl::IsDataLoss(decode(spec, std::string(kMessageLabelBytesMax + 1, 'x'))));
  spec.pair->to = spec.pair->from;
  EXPECT_TRUE(absl::IsDataLoss(decode(spec)));
  spec.pair->to = WorkerId{1U << 30};
  EXPECT_TRUE(absl::IsDataLoss(decode(spec)));
  spec.pair.reset();
  EXPECT_TRUE(absl::IsDataLoss(decode(spec)));
  spec = kMessageSpec;
  spec.takes_any = true;
  EXPECT_TRUE(absl::IsDataLoss(decode(spec)));

  // An answer that would make the receiver expect more than there can be.
  for (const MessageHead& head : {MessageHead{ElementType::kUint8, kCollectiveBytesMax + 1, {}, ""},
                                  MessageHead{ElementType::kInt32, 7, {}, ""},
                                  MessageHead{static_cast<ElementType>(9), 0, {}, ""}}) {
    const auto answer = DecodeExchangeAnswer(EncodeExchangeAnswer(
        {.kind = ExchangeAnswer::Kind::kResult, .pair = kFrameTestPair, .head = head}));
    EXPECT_TRUE(absl::IsDataLoss(answer.status()));
  }
}

TEST(ExchangeFrameTest, AnswersSurviveARoundTrip) {
  const ShardEntry entry{ShardId{5}, {.epoch = {Term{2}, 3}, .primary = ServerId{1}}};

  const auto result = DecodeExchangeAnswer(EncodeExchangeAnswer(
      {.kind = ExchangeAnswer::Kind::kResult, .workers = {WorkerId{1}, WorkerId{2}}}));
  const auto refused = DecodeExchangeAnswer(EncodeExchangeAnswer(
      {.kind = ExchangeAnswer::Kind::kRefused, .status = absl::AbortedError("no")}));
  const auto moved = DecodeExchangeAnswer(
      EncodeExchangeAnswer({.kind = ExchangeAnswer::Kind::kMoved, .entry = entry}));

  ASSERT_TRUE(result.ok() && refused.ok() && moved.ok());
  EXPECT_THAT(result->workers, ElementsAre(WorkerId{1}, WorkerId{2}));
  EXPECT_EQ(refused->status, absl::AbortedError("no"));
  EXPECT_EQ(moved->entry->shard, entry.shard);
  EXPECT_EQ(moved->entry->entry, entry.entry);
}

TEST(ExchangeFrameTest, RefusesDamagedBytes) {
  std::vector<std::byte> meta = EncodeExchange({.spec = kSpec, .result_of = {{WorkerId{3}}}});
  for (size_t length = 0; length < meta.size(); ++length)
    EXPECT_FALSE(DecodeExchange(std::span(meta).first(length)).ok()) << length;
  meta[0] = std::byte{99};

  EXPECT_TRUE(absl::IsDataLoss(DecodeExchange(meta).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeExchangeAnswer({}).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeExchangeAnswer(std::vector{std::byte{3}}).status()));
}

TEST(ExchangeFrameTest, HeadersNameThePiece) {
  const ExchangeKey key{{Step{12}, 3}, 40, kFrameTestPair};
  FrameHeader header;

  SetExchangeKey(key, header);

  EXPECT_EQ(ExchangeKeyOf(header, kFrameTestPair), key);
  header.clock = Step{uint64_t{1} << 32};
  EXPECT_EQ(ExchangeKeyOf(header, kFrameTestPair), std::nullopt);
}

}  // namespace
}  // namespace pushpull
