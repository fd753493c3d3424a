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
  uint64_t num_bytes;
};

TEST(ShapeTest, BytesAreDimensionsTimesTheSizeOfAnElement) {
  const ShapeCase cases[] = {
      {{}, 4},
      {{7}, 28},
      {{784, 10}, 31'360},
      {{2, 3, 4, 5}, 480},
      {{3, 0, 5}, 0},
      {{kInt64Max / 4}, static_cast<uint64_t>(kInt64Max / 4 * 4)},
  };
  for (const ShapeCase& c : cases) {
    const absl::StatusOr<uint64_t> num_bytes = NumBytes(c.dims, DType::kFloat32);

    ASSERT_TRUE(num_bytes.ok()) << num_bytes.status();
    EXPECT_EQ(*num_bytes, c.num_bytes) << DimsToString(c.dims);
  }
}

TEST(ShapeTest, NegativeDimensionIsNamed) {
  const std::vector<int64_t> dims = {4, -3, 0};

  const absl::Status status = NumBytes(dims, DType::kFloat32).status();

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
      {int64_t{1} << 61},  // of 4 bytes each
  };
  for (const std::vector<int64_t>& dims : shapes) {
    const absl::Status status = NumBytes(dims, DType::kFloat32).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << DimsToString(dims);
    EXPECT_THAT(status.message(), HasSubstr(DimsToString(dims)));
  }
}

TEST(ShapeTest, ZeroDimensionMeansNoBytes) {
  const std::vector<int64_t> zero_last = {kInt64Max, kInt64Max, 0};

  EXPECT_EQ(NumBytes(zero_last, DType::kFloat32).value(), 0U);
}

}  // namespace
}  // namespace pushpull
