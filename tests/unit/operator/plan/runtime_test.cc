// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TrainingRuntime Runtime(int64_t generation) {
  return {.record = {.name = "gpu", .uid = "r", .generation = generation, .spec = "{}"},
          .problem = {}};
}

// A job that names a runtime which is not noted yet.
World JobOfRuntime() {
  World world(1, 1);
  world.seen.object.runtime = "gpu";
  return world;
}

std::string Message(const World& world) {
  const Condition* condition = world.Find("Reconciled");
  return condition == nullptr ? "" : condition->message;
}

TEST(RuntimePlanTest, AMissingOneIsToldAndNothingBegins) {
  World world = JobOfRuntime();

  world.Settle();

  EXPECT_EQ(world.status().phase, Phase::kPending);
  EXPECT_EQ(world.Say("Reconciled"), "False RuntimeNotFound");
  EXPECT_THAT(Message(world), HasSubstr("there is no TrainingRuntime gpu in the namespace n"));
  EXPECT_THAT(world.pods, IsEmpty());
  EXPECT_FALSE(IsActive(world.seen));
}

TEST(RuntimePlanTest, ItIsNotedBeforeAnythingBegins) {
  World world = JobOfRuntime();
  world.seen.runtime = Runtime(3);

  world.Step();
  EXPECT_EQ(world.status().runtime, Runtime(3).record);
  EXPECT_EQ(world.status().phase, Phase::kPending);
  EXPECT_THAT(world.Take(), IsEmpty());

  EXPECT_TRUE(world.Start());
  EXPECT_EQ(world.Say("Reconciled"), "True Reconciled");
}

TEST(RuntimePlanTest, WhatIsNotedStaysWhateverBecomesOfTheObject) {
  World world = JobOfRuntime();
  world.seen.runtime = Runtime(3);
  ASSERT_TRUE(world.Start());

  for (const std::optional<TrainingRuntime>& now : {std::optional(Runtime(4)), {}}) {
    world.seen.runtime = now;
    world.seen.object.problems = {{"spec.servers", "is wrong"}};
    world.Settle();
    EXPECT_EQ(world.status().runtime->generation, 3);
  }
  EXPECT_EQ(world.Say("Reconciled"), "False InvalidSpec");
}

TEST(RuntimePlanTest, AnInvalidWholeTakesTheNextOneUntilTheJobBegins) {
  World world = JobOfRuntime();
  world.seen.runtime = Runtime(3);
  world.Step();
  world.seen.object.problems = {{"spec.servers", "is wrong"}};
  world.Settle();
  EXPECT_EQ(world.Say("Reconciled"), "False InvalidSpec");

  world.seen.runtime = Runtime(4);
  world.Step();

  EXPECT_EQ(world.status().runtime->generation, 4);
}

TEST(RuntimePlanTest, OneThatCannotBeUsedIsToldAndTriedAgain) {
  World world = JobOfRuntime();
  world.seen.runtime = Runtime(3);
  world.seen.runtime->problem = "has 300000 bytes, at most 262144";

  const JobPlan plan = world.Step();

  EXPECT_EQ(world.Say("Reconciled"), "False InvalidSpec");
  EXPECT_THAT(Message(world), HasSubstr("the TrainingRuntime gpu has 300000 bytes"));
  EXPECT_FALSE(world.status().runtime.has_value());
  EXPECT_TRUE(plan.requeue_at.has_value());
}

TEST(RuntimePlanTest, AJobThatNamesAnotherOneTakesThat) {
  World world = JobOfRuntime();
  world.seen.runtime = Runtime(3);
  ASSERT_TRUE(world.Start());
  world.seen.object.runtime = "cpu";
  world.seen.runtime->record.name = "cpu";

  world.Step();
  EXPECT_EQ(world.status().runtime->name, "cpu");

  world.seen.object.runtime.clear();
  world.Step();
  EXPECT_FALSE(world.status().runtime.has_value());
}

}  // namespace
}  // namespace pushpull_operator
