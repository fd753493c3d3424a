// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/shape.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

struct ShapeCase {
  std::vector<int64_t> dims;
  uint64_t num_elements;
};

TEST(ShapeTest, ElementsAreTheProductOfTheDimensions) {
  const ShapeCase cases[] = {
      {{}, 1},
      {{7}, 7},
      {{784, 10}, 7840},
      {{2, 3, 4, 5}, 120},
      {{3, 0, 5}, 0},
      {{kInt64Max}, static_cast<uint64_t>(kInt64Max)},
  };
  for (const ShapeCase& c : cases) {
    const absl::StatusOr<uint64_t> num_elements = NumElements(c.dims);

    ASSERT_TRUE(num_elements.ok()) << num_elements.status();
    EXPECT_EQ(*num_elements, c.num_elements) << DimsToString(c.dims);
  }
}

TEST(ShapeTest, BytesAreElementsTimesTheirSize) {
  const std::vector<int64_t> dims = {784, 10};

  EXPECT_EQ(NumBytes(dims, DType::kFloat32).value(), 31'360U);
  EXPECT_EQ(NumBytes({}, DType::kFloat32).value(), 4U);
}

TEST(ShapeTest, NegativeDimensionIsNamed) {
  const std::vector<int64_t> dims = {4, -3, 0};

  const absl::Status status = NumElements(dims).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("[4, -3, 0]"));
  EXPECT_THAT(status.message(), HasSubstr("is -3"));
}

TEST(ShapeTest, ProductAbove63BitsIsRejected) {
  const std::vector<std::vector<int64_t>> shapes = {
      {kInt64Max, 2},
      {int64_t{1} << 32, int64_t{1} << 31},
      {int64_t{1} << 32, int64_t{1} << 32},  // 2^64, which wraps to 0
      {3, kInt64Max / 2},
  };
  for (const std::vector<int64_t>& dims : shapes) {
    const absl::Status status = NumElements(dims).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << DimsToString(dims);
    EXPECT_THAT(status.message(), HasSubstr(DimsToString(dims)));
  }
}

TEST(ShapeTest, BytesAbove63BitsAreRejected) {
  const std::vector<int64_t> dims = {int64_t{1} << 61};

  EXPECT_TRUE(NumElements(dims).ok());
  EXPECT_EQ(NumBytes(dims, DType::kFloat32).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ShapeTest, ZeroDimensionMeansNoBytes) {
  const std::vector<int64_t> zero_last = {kInt64Max, kInt64Max, 0};

  EXPECT_EQ(NumBytes(zero_last, DType::kFloat32).value(), 0U);
}

}  // namespace
}  // namespace pushpull
