// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/master_values.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

std::vector<float> ThereAndBack(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> narrow(values.size() * DTypeBytes(dtype));
  Narrow(dtype, values, narrow);
  std::vector<float> back(values.size());
  Widen(dtype, narrow, back);
  return back;
}

TEST(MasterValuesTest, WhatATypeHasComesBackUnchanged) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    EXPECT_THAT(ThereAndBack(dtype, {0, 1, -2.5F, 96}), ElementsAre(0, 1, -2.5F, 96));
}

TEST(MasterValuesTest, OthersAreRoundedToTheNearest) {
  EXPECT_THAT(ThereAndBack(DType::kBFloat16, {1.001F, 257, 259}), ElementsAre(1, 256, 260));
  EXPECT_THAT(ThereAndBack(DType::kFloat16, {1.0001F, 2049, 2051}), ElementsAre(1, 2048, 2052));
  EXPECT_THAT(ThereAndBack(DType::kFloat32, {1.0001F}), ElementsAre(1.0001F));
}

TEST(MasterValuesTest, ValuesThatBecomeInfiniteAreCounted) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {70'000, -1e6F, 1, infinity};
  std::vector<std::byte> narrow(8);

  EXPECT_EQ(Narrow(DType::kFloat16, values, narrow), 2U);
  EXPECT_EQ(Narrow(DType::kBFloat16, values, narrow), 0U);
  EXPECT_THAT(ThereAndBack(DType::kFloat16, values), ElementsAre(infinity, -infinity, 1, infinity));
}

}  // namespace
}  // namespace pushpull
