// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST(ExchangeTest, PiecesCoverTheArrayOnce) {
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{8}, kExchangePieceBytesMax, 1000 * 8191 * 8UL}) {
    const ExchangeSpec spec{
        .op = ExchangeOp::kAllReduce, .type = ElementType::kFloat64, .bytes = bytes};

    uint64_t covered = 0;
    for (uint32_t piece = 0; piece < NumPieces(spec); ++piece) {
      EXPECT_EQ(PieceOffset(spec, piece), covered);
      covered += PieceBytes(spec, piece);
    }

    EXPECT_EQ(covered, bytes);
    EXPECT_GE(NumPieces(spec), 1U);
  }
}

TEST(ExchangeTest, OnlyTheRootOfABroadcastHasValues) {
  const ExchangeSpec spec{.op = ExchangeOp::kBroadcast, .bytes = 80, .root = WorkerId{2}};

  EXPECT_EQ(ContributionBytes(spec, 0, WorkerId{2}), 80U);
  EXPECT_EQ(ContributionBytes(spec, 0, WorkerId{1}), 0U);
  EXPECT_EQ(AnswerBytes(spec, 0, {WorkerId{1}, WorkerId{2}}), 80U);
  EXPECT_EQ(AnswerBytes(spec, 0, {WorkerId{0}, WorkerId{1}}), 0U);
}

TEST(ExchangeTest, OnlyTheSenderOfAMessageHasValues) {
  const ExchangeSpec spec{.op = ExchangeOp::kMessage,
                          .bytes = kExchangePieceBytesMax + 8,
                          .pair = MessagePair{WorkerId{2}, WorkerId{0}}};

  EXPECT_EQ(ContributionBytes(spec, 1, WorkerId{2}), 8U);
  EXPECT_EQ(ContributionBytes(spec, 1, WorkerId{0}), 0U);
}

TEST(ExchangeTest, GatheredPiecesFitAFrame) {
  for (const size_t workers : {1U, 3U, 100U, 16384U}) {
    EXPECT_LE(GatherPieceBytes(workers) * workers, kExchangeAnswerBytesMax);
    EXPECT_GT(GatherPieceBytes(workers), 0U);
  }
}

TEST(ExchangeTest, RefusesWhatCannotBeExchanged) {
  EXPECT_THAT(std::string(Check({.op = ExchangeOp::kAllReduce,
                                 .type = ElementType::kInt64,
                                 .reduction = Reduction::kMean,
                                 .bytes = 8})
                              .message()),
              HasSubstr("all_reduce(mean) of 1 int64 values: a mean is one of float32, float64, "
                        "float16 or bfloat16 values"));
  EXPECT_TRUE(absl::IsResourceExhausted(
      Check({.op = ExchangeOp::kAllGather, .bytes = kCollectiveBytesMax + 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Check({.op = ExchangeOp::kAllGather, .type = ElementType::kFloat64, .bytes = 12})));
  EXPECT_FALSE(Check({.op = static_cast<ExchangeOp>(9)}).ok());
  EXPECT_FALSE(Check({.op = ExchangeOp::kBarrier, .piece_bytes = 12}).ok());
  EXPECT_TRUE(Check({.op = ExchangeOp::kBarrier}).ok());
}

TEST(ExchangeTest, HalvesHaveTwoBytesAndAMean) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    ExchangeSpec spec{.op = ExchangeOp::kAllReduce,
                      .type = type,
                      .reduction = Reduction::kMean,
                      .bytes = kExchangePieceBytesMax + 2};
    EXPECT_TRUE(Check(spec).ok());
    EXPECT_EQ(NumPieces(spec), 2U);
    EXPECT_EQ(PieceBytes(spec, 1), 2U);
    spec.bytes = 3;
    EXPECT_TRUE(absl::IsInvalidArgument(Check(spec)));
  }
  // An int8 of other messages.
  EXPECT_FALSE(Check({.op = ExchangeOp::kAllGather, .type = static_cast<ElementType>(6)}).ok());
}

TEST(ExchangeTest, DescribesWhatTheProgramCalled) {
  EXPECT_EQ(Describe({.op = ExchangeOp::kAllReduce,
                      .type = ElementType::kFloat64,
                      .reduction = Reduction::kMax,
                      .bytes = 16}),
            "all_reduce(max) of 2 float64 values");
  EXPECT_EQ(Describe({.op = ExchangeOp::kBroadcast, .bytes = 3, .root = WorkerId{1}}),
            "broadcast from worker-1 of 3 uint8 values");
  EXPECT_EQ(Describe({.op = ExchangeOp::kAllGather, .type = ElementType::kFloat16, .bytes = 6}),
            "all_gather of 3 float16 values");
  EXPECT_EQ(Describe({.op = ExchangeOp::kAllGather, .type = ElementType::kBFloat16, .bytes = 6}),
            "all_gather of 3 bfloat16 values");
  ExchangeSpec message{.op = ExchangeOp::kMessage,
                       .type = ElementType::kInt32,
                       .bytes = 12,
                       .pair = MessagePair{WorkerId{1}, WorkerId{0}}};
  EXPECT_EQ(Describe(message), "message from worker-1 to worker-0 of 3 int32 values");
  message.takes_any = true;
  EXPECT_EQ(Describe(message), "message from worker-1 to worker-0");
}

}  // namespace
}  // namespace pushpull
