// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/reduction.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ReductionTest, EachHasItsName) {
  EXPECT_EQ(ToString(Reduction::kMean), "mean");
  EXPECT_EQ(ToString(Reduction::kSum), "sum");
  EXPECT_EQ(ToString(Reduction::kMin), "min");
  EXPECT_EQ(ToString(Reduction::kMax), "max");
  EXPECT_EQ(ToString(Reduction::kProd), "prod");
  EXPECT_EQ(ToString(Reduction::kAnd), "and");
  EXPECT_EQ(ToString(Reduction::kOr), "or");
}

TEST(ReductionTest, WireValuesNeverChange) {
  EXPECT_EQ(static_cast<int>(Reduction::kMean), 1);
  EXPECT_EQ(static_cast<int>(Reduction::kSum), 2);
  EXPECT_EQ(static_cast<int>(Reduction::kMin), 3);
  EXPECT_EQ(static_cast<int>(Reduction::kMax), 4);
  EXPECT_EQ(static_cast<int>(Reduction::kProd), 5);
  EXPECT_EQ(static_cast<int>(Reduction::kAnd), 6);
  EXPECT_EQ(static_cast<int>(Reduction::kOr), 7);
}

TEST(ReductionTest, UnknownValuesAreDetected) {
  EXPECT_FALSE(IsKnown(Reduction{0}));
  EXPECT_TRUE(IsKnown(Reduction{1}));
  EXPECT_TRUE(IsKnown(Reduction{7}));
  EXPECT_FALSE(IsKnown(Reduction{8}));
  EXPECT_EQ(ToString(Reduction{8}), "reduction 8");
}

}  // namespace
}  // namespace pushpull
