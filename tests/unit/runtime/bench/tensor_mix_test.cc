// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/tensor_mix.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

uint64_t BytesOf(const std::vector<uint64_t>& tensors) {
  return sizeof(float) * std::accumulate(tensors.begin(), tensors.end(), uint64_t{0});
}

TEST(ParseBytesTest, UnitsAreOfThousandsOrOf1024) {
  EXPECT_EQ(*ParseBytes("160M"), 160'000'000);
  EXPECT_EQ(*ParseBytes("4K"), 4'000);
  EXPECT_EQ(*ParseBytes("1Ki"), 1'024);
  EXPECT_EQ(*ParseBytes("2Gi"), uint64_t{2} << 30);
  EXPECT_EQ(*ParseBytes("12"), 12);
}

TEST(ParseBytesTest, AnythingElseIsRefusedAndQuoted) {
  for (const char* text : {"",
                           "M",
                           "0",
                           "-4K",
                           "4k",
                           "4 K",
                           "4KB",
                           "1.5M",
                           "99999999999999999999",
                           "18446744073709551615K"}) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(text);

    EXPECT_TRUE(absl::IsInvalidArgument(bytes.status())) << text;
    EXPECT_THAT(std::string(bytes.status().message()), HasSubstr(text));
  }
}

TEST(MakeTensorsTest, TheMixIsTheOneThatFiguresAreComparedWith) {
  const std::vector<uint64_t> tensors = *MakeTensors("mixed", 160'000'000);

  std::map<uint64_t, int> count_by_bytes;
  for (const uint64_t values : tensors) ++count_by_bytes[values * sizeof(float)];

  EXPECT_THAT(count_by_bytes,
              ElementsAre(Pair(1'000, 24),
                          Pair(4'000, 20),
                          Pair(16'000, 8),
                          Pair(64'000, 12),
                          Pair(250'000, 60),
                          Pair(1'000'000, 16),
                          Pair(4'000'000, 16),
                          Pair(16'000'000, 4)));
  EXPECT_FALSE(std::is_sorted(tensors.begin(), tensors.end()));
  EXPECT_FALSE(std::is_sorted(tensors.rbegin(), tensors.rend()));
}

TEST(MakeTensorsTest, AScaledMixHasAsManyTensorsAndExactlyTheBytes) {
  for (const uint64_t bytes :
       {16'000U, 16'004U, 1'000'000U, 20'480'000U, 159'999'996U, 640'000'000U}) {
    const std::vector<uint64_t> tensors = *MakeTensors("mixed", bytes);

    EXPECT_EQ(tensors.size(), 160);
    EXPECT_EQ(BytesOf(tensors), bytes);
    EXPECT_GE(*std::min_element(tensors.begin(), tensors.end()), 1);
  }
}

TEST(MakeTensorsTest, OneSizeLeavesTheRestToTheLast) {
  EXPECT_THAT(*MakeTensors("4K", 10'000), ElementsAre(1'000, 1'000, 500));
  EXPECT_THAT(*MakeTensors("1Ki", 1'024), ElementsAre(256));
  EXPECT_THAT(*MakeTensors("4K", 1'000), ElementsAre(250));
}

TEST(MakeTensorsTest, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(std::string(MakeTensors("mixed", 1'001).status().message()),
              HasSubstr("multiple of 4"));
  EXPECT_THAT(std::string(MakeTensors("mixed", 1'000).status().message()),
              HasSubstr("at least 16000"));
  EXPECT_THAT(std::string(MakeTensors("6", 1'000).status().message()), HasSubstr("\"6\""));
  EXPECT_THAT(std::string(MakeTensors("large", 1'000).status().message()), HasSubstr("\"large\""));
  EXPECT_THAT(std::string(MakeTensors("4", 160'000'000).status().message()),
              HasSubstr("40000000 of 4 bytes"));
}

TEST(CountChunksTest, EveryTensorHasItsOwn) {
  const std::vector<uint64_t> tensors = {1, (1 << 18) / 4, (1 << 18) / 4 + 1};

  EXPECT_EQ(CountChunks(tensors), 4);
}

}  // namespace
}  // namespace pushpull
