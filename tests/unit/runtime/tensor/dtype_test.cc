// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/dtype.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(DTypeTest, Float32HasFourBytesAndAName) {
  EXPECT_EQ(DTypeBytes(DType::kFloat32), 4U);
  EXPECT_EQ(ToString(DType::kFloat32), "float32");
}

TEST(DTypeTest, UnknownValuesAreDetected) {
  EXPECT_TRUE(IsKnown(DType::kFloat32));
  EXPECT_FALSE(IsKnown(DType{0}));
  EXPECT_FALSE(IsKnown(DType{2}));
  EXPECT_EQ(ToString(DType{7}), "dtype 7");
}

TEST(DTypeTest, WireValueNeverChanges) {
  EXPECT_EQ(static_cast<uint8_t>(DType::kFloat32), 1);
}

}  // namespace
}  // namespace pushpull
