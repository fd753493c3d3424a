// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/state_saves.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(StateSavesTest, ACheckpointDoesNotWaitForAProgramWithoutState) {
  StateSaves state;
  state.Order(Step{7});

  EXPECT_EQ(state.Verdict(), true);
  EXPECT_TRUE(state.MayLeave());
}

TEST(StateSavesTest, TheStateIsPushedInTheOrderedStepAlone) {
  StateSaves state;
  state.Use();
  EXPECT_FALSE(state.TakeSave(Step{6}, false));
  state.Order(Step{8});

  EXPECT_FALSE(state.TakeSave(Step{7}, false));
  EXPECT_EQ(state.Verdict(), std::nullopt);
  EXPECT_TRUE(state.TakeSave(Step{8}, false));

  EXPECT_EQ(state.Verdict(), true);
}

TEST(StateSavesTest, AnOrderForADecidedStepComesTooLate) {
  StateSaves state;
  state.Use();
  state.TakeSave(Step{7}, false);
  state.TakeSave(Step{8}, false);

  state.Order(Step{7});
  EXPECT_EQ(state.Verdict(), false);
  state.Order(Step{8});
  EXPECT_EQ(state.Verdict(), false);
}

TEST(StateSavesTest, AnOrderForAStepThatIsPushedAnywayIsInTime) {
  StateSaves state;
  state.Use();
  EXPECT_TRUE(state.TakeSave(Step{7}, true));

  state.Order(Step{7});

  EXPECT_EQ(state.Verdict(), true);
}

TEST(StateSavesTest, AWorkerThatBeginsLaterIsNotNeeded) {
  StateSaves state;
  state.Use();
  state.Order(Step{7});
  EXPECT_EQ(state.Verdict(), std::nullopt);

  EXPECT_FALSE(state.TakeSave(Step{9}, false));

  EXPECT_EQ(state.Verdict(), true);
}

TEST(StateSavesTest, AWorkerLeavesAfterAStepInWhichItHasPushedItsState) {
  StateSaves state;
  state.Use();
  EXPECT_TRUE(state.MayLeave()) << "it has none yet";

  state.TakeSave(Step{3}, false);
  EXPECT_FALSE(state.MayLeave());
  state.TakeSave(Step{4}, true);
  EXPECT_TRUE(state.MayLeave());
  state.TakeSave(Step{5}, false);
  EXPECT_FALSE(state.MayLeave());
}

}  // namespace
}  // namespace pushpull
