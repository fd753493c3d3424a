// SPDX-License-Identifier: Apache-2.0
//
// codec_test.cc compares all values of these formats with their definition, by the codecs fp16 and
// bf16, which use the same functions.
#include "runtime/tensor/half_float.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

constexpr float kInfiniteHalf = std::numeric_limits<float>::infinity();

TEST(HalfFloatTest, RoundsToNearestAndCountsOverflows) {
  const std::vector<float> values = {1.0F, 65'504.0F, 1e6F, -kInfiniteHalf, 2049.0F};
  std::vector<std::byte> halves(2 * values.size());
  std::vector<float> decoded(values.size());

  const uint64_t overflows = EncodeFloat16(values, halves);
  DecodeFloat16(halves, decoded);

  EXPECT_EQ(overflows, 1U);
  EXPECT_THAT(decoded, ElementsAre(1.0F, 65'504.0F, kInfiniteHalf, -kInfiniteHalf, 2048.0F));
}

TEST(HalfFloatTest, BFloat16HasTheRangeOfFloat32) {
  const std::vector<float> values = {1e38F, -257.0F};
  std::vector<std::byte> halves(2 * values.size());
  std::vector<float> decoded(values.size());

  const uint64_t overflows = EncodeBFloat16(values, halves);
  DecodeBFloat16(halves, decoded);

  EXPECT_EQ(overflows, 0U);
  EXPECT_NEAR(decoded[0], 1e38F, 1e38F / 256);
  EXPECT_EQ(decoded[1], -256.0F);
}

}  // namespace
}  // namespace pushpull
