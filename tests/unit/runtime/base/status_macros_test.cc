// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/status_macros.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

absl::Status RunBoth(const absl::Status& first, bool& has_gone_on) {
  PUSHPULL_RETURN_IF_ERROR(first);
  has_gone_on = true;
  return absl::OkStatus();
}

absl::StatusOr<int> Sum(const absl::StatusOr<int>& a, const absl::StatusOr<int>& b) {
  PUSHPULL_ASSIGN_OR_RETURN(const int first, a);
  PUSHPULL_ASSIGN_OR_RETURN(const int second, b);
  return first + second;
}

absl::StatusOr<int> Unwrap(absl::StatusOr<std::unique_ptr<int>> pointer) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<int> owned, std::move(pointer));
  return *owned;
}

TEST(ReturnIfErrorTest, ContinuesOnlyAfterOk) {
  bool has_gone_on = false;

  EXPECT_EQ(RunBoth(absl::AbortedError("why"), has_gone_on), absl::AbortedError("why"));
  EXPECT_FALSE(has_gone_on);
  EXPECT_TRUE(RunBoth(absl::OkStatus(), has_gone_on).ok());
  EXPECT_TRUE(has_gone_on);
}

TEST(AssignOrReturnTest, AssignsOrReturnsTheFirstError) {
  EXPECT_EQ(*Sum(1, 2), 3);
  EXPECT_EQ(Sum(absl::AbortedError("a"), absl::NotFoundError("b")).status(),
            absl::AbortedError("a"));
  EXPECT_EQ(Sum(1, absl::NotFoundError("b")).status(), absl::NotFoundError("b"));
}

TEST(AssignOrReturnTest, MovesWhatCannotBeCopied) {
  EXPECT_EQ(*Unwrap(std::make_unique<int>(5)), 5);
}

}  // namespace
}  // namespace pushpull
