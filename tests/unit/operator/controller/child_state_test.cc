// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/child_state.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::seconds;

constexpr WallTime kChildNow{seconds(10'000)};
constexpr WallTime kCheckAt = kChildNow + seconds(90);

TEST(ChildStateTest, WhatIsThereAtFirstIsCheckedLater) {
  ChildState state;

  EXPECT_EQ(state.WriteAt("services", "v1", kChildNow, kCheckAt), kCheckAt);
  EXPECT_EQ(state.WriteAt("services", "v1", kChildNow + seconds(1), kChildNow + seconds(99)),
            kCheckAt);

  state.OnWritten("services", "v1", "v1", kCheckAt);
  EXPECT_EQ(state.WriteAt("services", "v1", kCheckAt, kCheckAt), std::nullopt);
}

TEST(ChildStateTest, WhatIsMissingAtFirstIsWrittenAtOnce) {
  ChildState state;

  EXPECT_EQ(state.WriteAt("services", "", kChildNow, kCheckAt), kChildNow);
}

TEST(ChildStateTest, AChangeIsUndoneAtOnceUnlessItIsTheCachesDelay) {
  ChildState state;
  state.OnWritten("services", "", "v1", kChildNow);

  EXPECT_EQ(state.WriteAt("services", "", kChildNow, kCheckAt), kChildNow + ChildState::kBehindMax);
  EXPECT_EQ(state.WriteAt("services", "v1", kChildNow, kCheckAt), std::nullopt);
  EXPECT_EQ(state.WriteAt("services", "v2", kChildNow, kCheckAt), kChildNow);
  const WallTime later = kChildNow + ChildState::kBehindMax;
  EXPECT_EQ(state.WriteAt("services", "", later, kCheckAt), later);
}

TEST(ChildStateTest, HealingInARowComesLessAndLessOften) {
  ChildState state;
  state.OnWritten("services", "", "v1", kChildNow);
  WallTime now = kChildNow;

  for (const int pause : {1, 2, 4, 8, 16, 32, 60, 60}) {
    ASSERT_EQ(state.WriteAt("services", "odd", now, kCheckAt), now);
    state.OnHealed("services", now);
    now += seconds(pause);
    EXPECT_EQ(state.WriteAt("services", "odd", now - seconds(1), kCheckAt), now);
  }
  EXPECT_EQ(state.HealAt("secrets"), WallTime{});

  now += ChildState::kCalm;
  state.OnHealed("services", now);
  EXPECT_EQ(state.HealAt("services"), now + ChildState::kPauseMin);
}

}  // namespace
}  // namespace pushpull_operator
