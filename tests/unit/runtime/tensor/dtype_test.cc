// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/dtype.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(DTypeTest, Float32HasFourBytesAndAName) {
  EXPECT_EQ(DTypeBytes(DType::kFloat32), 4U);
  EXPECT_EQ(ToString(DType::kFloat32), "float32");
}

TEST(DTypeTest, HalvesHaveTwoBytesAndFloat32MasterValues) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(DTypeBytes(dtype), 2U);
    EXPECT_EQ(MasterOf(dtype), DType::kFloat32);
    EXPECT_FALSE(IsMaster(dtype));
    EXPECT_EQ(NarrowBytes(dtype, 400), 200U);
  }
  EXPECT_TRUE(IsMaster(DType::kFloat32));
  EXPECT_EQ(NarrowBytes(DType::kFloat32, 400), 400U);
  EXPECT_EQ(ToString(DType::kFloat16), "float16");
  EXPECT_EQ(ToString(DType::kBFloat16), "bfloat16");
}

TEST(DTypeTest, UnknownValuesAreDetected) {
  EXPECT_TRUE(IsKnown(DType::kFloat32));
  EXPECT_TRUE(IsKnown(DType::kBFloat16));
  EXPECT_FALSE(IsKnown(DType{0}));
  EXPECT_FALSE(IsKnown(DType{4}));
  EXPECT_EQ(ToString(DType{7}), "dtype 7");
}

TEST(DTypeTest, WireValuesNeverChange) {
  EXPECT_EQ(static_cast<uint8_t>(DType::kFloat32), 1);
  EXPECT_EQ(static_cast<uint8_t>(DType::kFloat16), 2);
  EXPECT_EQ(static_cast<uint8_t>(DType::kBFloat16), 3);
}

}  // namespace
}  // namespace pushpull
