// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;

TEST(ReductionTest, NamesAreParsedBack) {
  for (const char* name : {"mean", "sum", "min", "max"}) {
    const absl::StatusOr<Reduction> reduction = ParseReduction(name);

    ASSERT_TRUE(reduction.ok()) << reduction.status();
    EXPECT_EQ(ToString(*reduction), name);
  }
}

TEST(ReductionTest, UnknownNameIsQuotedInTheError) {
  for (const char* name : {"", "Mean", "mean ", "avg"}) {
    const absl::StatusOr<Reduction> reduction = ParseReduction(name);

    EXPECT_EQ(reduction.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(reduction.status().message(), HasSubstr(std::string("\"") + name + "\""));
  }
}

TEST(ReductionTest, WireValuesNeverChange) {
  EXPECT_EQ(static_cast<int>(Reduction::kMean), 1);
  EXPECT_EQ(static_cast<int>(Reduction::kSum), 2);
  EXPECT_EQ(static_cast<int>(Reduction::kMin), 3);
  EXPECT_EQ(static_cast<int>(Reduction::kMax), 4);
}

TEST(ReductionTest, UnknownValuesAreDetected) {
  EXPECT_FALSE(IsKnown(Reduction{0}));
  EXPECT_TRUE(IsKnown(Reduction{1}));
  EXPECT_TRUE(IsKnown(Reduction{4}));
  EXPECT_FALSE(IsKnown(Reduction{5}));
  EXPECT_EQ(ToString(Reduction{5}), "reduction 5");
}

}  // namespace
}  // namespace pushpull
