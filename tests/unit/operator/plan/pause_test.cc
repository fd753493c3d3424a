// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/plan/parts.h"
#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

using std::chrono::seconds;

World Running() {
  World world(1, 1);
  world.spec().checkpoint.emplace().claim = "c";
  EXPECT_TRUE(world.Start());
  world.Take();
  return world;
}

TEST(PauseTest, ACheckpointIsWrittenBeforeThePodsGo) {
  World world = Running();
  world.spec().suspend = true;

  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("save"));
  EXPECT_EQ(world.Say("Suspended"), "False Saving");
  world.seen.coordinator->saves_finished = *world.seen.save;
  world.seen.coordinator->saves_succeeded = *world.seen.save;
  world.seen.coordinator->checkpoint_step = 77;
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().checkpoint->step, 77);
  EXPECT_THAT(world.Take(),
              UnorderedElementsAre("delete coordinator", "delete server-0", "delete worker-0"));
  EXPECT_EQ(world.status().phase, Phase::kRunning);  // the spec is still frozen
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSuspended);
  EXPECT_EQ(world.Say("Suspended"), "True Suspended");
  EXPECT_EQ(world.Say("Ready"), "False Suspended");
  EXPECT_EQ(world.status().suspend_time, world.seen.now);
}

// Nothing is lost without a word: the user chooses with onDrainTimeout.
TEST(PauseTest, ASuspensionWaitsForASaveThatFails) {
  World world = Running();
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.seen.coordinator->saves_finished = *world.seen.save;
  world.seen.coordinator->checkpoint_problem = "/checkpoints/default/mnist: disk full";
  world.Pass(seconds(1000));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("save"));
  EXPECT_EQ(world.Say("Suspended"), "False SaveFailed");
  EXPECT_THAT(world.Find("Suspended")->message, HasSubstr("disk full"));
  EXPECT_EQ(world.Say("CheckpointFailed"), "True SaveFailed");
  EXPECT_EQ(world.Say("Ready"), "True AllReady");
}

TEST(PauseTest, AHeldJobReplacesMembersThatAreLost) {
  World world = Running();
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.Vanish("coordinator");
  world.seen.coordinator.reset();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("create coordinator"));
  EXPECT_EQ(world.Say("Suspended"), "False CoordinatorSilent");
}

// It numbers its saves anew.
TEST(PauseTest, ANewCoordinatorIsAskedForTheSaveAgain) {
  World world = Running();
  world.seen.coordinator->saves_requested = 7;
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.seen.coordinator->saves_requested = 0;
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("save"));
  EXPECT_EQ(world.seen.save, 1U);
}

TEST(PauseTest, WithForceASaveIsWaitedForForTheDrainTimeout) {
  World world = Running();
  world.spec().scaling.on_drain_timeout = pushpull::DrainTimeoutPolicy::kForce;
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.Pass(seconds(299));
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  world.Pass(seconds(1));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), SizeIs(3));
}

TEST(PauseTest, ASilentCoordinatorIsWaitedForAsLong) {
  World world = Running();
  world.spec().scaling.on_drain_timeout = pushpull::DrainTimeoutPolicy::kForce;
  world.spec().suspend = true;
  world.seen.coordinator.reset();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());

  world.Pass(seconds(300));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), SizeIs(3));
}

TEST(PauseTest, WithoutACheckpointThePodsGoAtOnce) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  EXPECT_EQ(world.Say("CheckpointFailed"), "False NoCheckpoint");
  world.events.clear();
  world.spec().suspend = true;

  world.Step();

  EXPECT_THAT(world.Take(), SizeIs(3));
  EXPECT_EQ(world.events.at(0).reason, "StepsLost");
}

TEST(PauseTest, AJobThatIsBornSuspendedHasNoPods) {
  World world(1, 1);
  world.spec().suspend = true;
  world.spec().active_deadline = seconds(60);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kSuspended);
  EXPECT_EQ(world.status().start_time, std::nullopt);
  world.Pass(seconds(1000));
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());

  world.spec().suspend = false;
  ASSERT_TRUE(world.Start());

  EXPECT_EQ(world.status().suspended_seconds, 0);
  EXPECT_EQ(world.Say("Suspended"), "False Resumed");
}

TEST(PauseTest, AResumedJobStartsWithAnotherSizeAndAHigherTerm) {
  World world = Running();
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.seen.coordinator->saves_finished = 99;
  world.seen.coordinator->saves_succeeded = 99;
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  world.Pass(seconds(500));

  world.spec().suspend = false;
  world.spec().servers.replicas = 3;
  world.seen.save.reset();
  ASSERT_TRUE(world.Start());

  EXPECT_EQ(world.status().coordinator.term, 2);
  EXPECT_EQ(world.status().servers.ready, 3);
  EXPECT_EQ(world.status().suspended_seconds, 500);
  EXPECT_EQ(world.status().suspend_time, std::nullopt);
}

TEST(PauseTest, AJobThatIsResumedWhileItStopsStopsFirst) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.spec().suspend = true;
  world.Step();
  world.Vanish("server-0");
  world.Take();

  world.spec().suspend = false;
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());  // no server beside those that are going
  world.VanishDeleted();
  ASSERT_TRUE(world.Start());

  EXPECT_EQ(world.status().coordinator.term, 2);
  EXPECT_EQ(world.status().restarts.counted, 0);
}

TEST(PauseTest, EndsWhileAJobIsSuspendedAreNoFailures) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.spec().suspend = true;
  world.Step();
  world.Exit("worker-0", 143);
  world.Exit("server-0", 1);

  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSuspended);
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

}  // namespace
}  // namespace pushpull_operator
