// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/step_numbers.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(StepNumbersTest, TensorsAreNumberedIndependently) {
  StepNumbers numbers;
  numbers.Begin(2, Step{7});

  EXPECT_EQ(numbers.Take(0), Step{7});
  EXPECT_EQ(numbers.Take(0), Step{8});

  EXPECT_EQ(numbers.Take(1), Step{7});
  EXPECT_EQ(numbers.Highest(), Step{9});
}

TEST(StepNumbersTest, AStepWithoutATensorOfEarlierStepsLeavesItOut) {
  StepNumbers numbers;
  numbers.Begin(2, Step{7});
  numbers.Take(0);
  numbers.Take(1);
  numbers.Take(0);

  EXPECT_EQ(numbers.LeftOutBy(0), 1);
  EXPECT_EQ(numbers.LeftOutBy(1), std::nullopt);
  numbers.Take(1);

  EXPECT_EQ(numbers.LeftOutBy(0), std::nullopt);
}

TEST(StepNumbersTest, TensorsOfAStepMayComeInAnyOrder) {
  StepNumbers numbers;
  numbers.Begin(3, Step{0});

  for (const size_t tensor : {2, 0, 1, 0, 1, 2, 1, 2, 0}) {
    EXPECT_EQ(numbers.LeftOutBy(tensor), std::nullopt);
    numbers.Take(tensor);
  }

  EXPECT_EQ(numbers.Highest(), Step{3});
}

TEST(StepNumbersTest, ATensorThatIsNeverPushedIsNotLeftOut) {
  StepNumbers numbers;
  numbers.Begin(2, Step{0});
  numbers.Take(0);

  EXPECT_EQ(numbers.LeftOutBy(0), std::nullopt);
  EXPECT_EQ(numbers.EndStep(false), std::nullopt);
  EXPECT_EQ(numbers.EndStep(true), 1);
}

TEST(StepNumbersTest, ATensorDoesNotBeginLaterThanTheOthers) {
  StepNumbers numbers;
  numbers.Begin(2, Step{0});
  numbers.Take(0);
  numbers.Take(0);

  EXPECT_EQ(numbers.LeftOutBy(1), 1);
}

TEST(StepNumbersTest, APushAfterTheEndOfItsStepIsTooLate) {
  StepNumbers numbers;
  numbers.Begin(2, Step{0});
  numbers.Take(0);
  numbers.EndStep(false);

  EXPECT_EQ(numbers.LeftOutBy(1), 1);
}

TEST(StepNumbersTest, TheLastTensorOfAStepIsNotLeftOutByItsEnd) {
  StepNumbers numbers;
  numbers.Begin(3, Step{0});
  for (size_t tensor = 0; tensor < 3; ++tensor) numbers.Take(tensor);
  numbers.Take(0);

  EXPECT_EQ(numbers.EndStep(false, 2), 1);
  numbers.Take(1);

  EXPECT_EQ(numbers.EndStep(false, 2), std::nullopt);
  EXPECT_EQ(numbers.LeftOutBy(2), std::nullopt);
}

TEST(StepNumbersTest, HoldStopsTheNextStepOnly) {
  StepNumbers numbers;
  numbers.Begin(2, Step{0});
  numbers.Take(0);

  numbers.HoldFrom(Step{1});

  EXPECT_EQ(numbers.Take(0), std::nullopt);
  EXPECT_FALSE(numbers.IsAtHold());
  EXPECT_EQ(numbers.Take(1), Step{0});
  EXPECT_TRUE(numbers.IsAtHold());
}

TEST(StepNumbersTest, UnusedTensorDoesNotDelayAHold) {
  StepNumbers numbers;
  numbers.Begin(2, Step{0});
  numbers.Take(0);
  numbers.Take(0);

  numbers.HoldFrom(Step{2});

  EXPECT_TRUE(numbers.IsAtHold());
}

TEST(StepNumbersTest, ResumedTensorContinuesItsNumbers) {
  StepNumbers numbers;
  numbers.Begin(1, Step{3});
  numbers.HoldFrom(Step{3});

  numbers.Resume();

  EXPECT_EQ(numbers.Take(0), Step{3});
}

TEST(StepNumbersTest, LeavingWorkerFinishesItsStep) {
  StepNumbers numbers;
  numbers.Begin(3, Step{5});
  numbers.Take(0);
  numbers.Take(1);

  numbers.EndSoon();

  EXPECT_TRUE(numbers.MayPush(2));
  EXPECT_FALSE(numbers.MayPush(0));
  numbers.Take(2);
  EXPECT_FALSE(numbers.MayPush(2));
}

TEST(StepNumbersTest, BetweenStepsTheNextOneIsTheLast) {
  StepNumbers numbers;
  numbers.Begin(2, Step{5});

  numbers.EndSoon();

  for (const size_t tensor : {0U, 1U}) {
    EXPECT_TRUE(numbers.MayPush(tensor));
    numbers.Take(tensor);
  }
  EXPECT_FALSE(numbers.MayPush(0));
  EXPECT_FALSE(numbers.MayPush(1));
}

TEST(StepNumbersTest, UnusedTensorDoesNotSplitTheLastStep) {
  StepNumbers numbers;
  numbers.Begin(3, Step{0});
  for (int step = 0; step < 4; ++step) {
    numbers.Take(0);
    numbers.Take(1);
  }
  numbers.Take(0);

  numbers.EndSoon();

  EXPECT_TRUE(numbers.MayPush(1));
  numbers.Take(1);
  EXPECT_FALSE(numbers.MayPush(0));
}

}  // namespace
}  // namespace pushpull
