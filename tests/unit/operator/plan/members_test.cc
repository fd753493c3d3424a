// SPDX-License-Identifier: Apache-2.0
//
// Changes of the size while a job runs.
#include <algorithm>
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

using std::chrono::seconds;

World Running(int servers, int workers) {
  World world(servers, workers);
  EXPECT_TRUE(world.Start());
  world.Take();
  return world;
}

void Scale(World& world, int servers) {
  world.spec().servers.replicas = servers;
  world.Bump();
}

// As after a suspension: it has a term above 1, and waits for members of before.
TEST(MembersTest, ARecoveringCoordinatorWithoutMembersGetsSome) {
  World world(2, 1);
  world.Step();
  world.RunPods();
  world.seen.coordinator = CoordinatorReport{.job = "mnist",
                                             .phase = pushpull::JobPhase::kRecovering,
                                             .desired_servers = 2,
                                             .desired_workers = 1};
  world.Take();

  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("create server-0", "create server-1"));
}

TEST(MembersTest, LabelsThatSomebodyChangedChangeNoMember) {
  World world = Running(2, 1);
  world.pod("server-1").meta.labels[kIndexLabel] = "0";
  world.pod("worker-0").meta.labels[kComponentLabel] = "server";
  world.pod("coordinator").meta.labels["pushpull.dev/index"] = "7";

  world.Step();

  EXPECT_THAT(
      world.Take(),
      testing::UnorderedElementsAre(
          "heal labels of server-1", "heal labels of worker-0", "heal labels of coordinator"));
  EXPECT_EQ(world.status().servers.ready, 2);
  EXPECT_EQ(world.status().workers.ready, 1);
  world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());
}

// It waits for all of its servers, and would without end.
TEST(MembersTest, AServerLostBeforeTheFirstStepIsMadeAgain) {
  World world = Running(2, 1);
  world.pods.erase("mnist-server-1");
  world.seen.coordinator->phase = pushpull::JobPhase::kRecovering;

  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("create server-1"));
}

TEST(MembersTest, AServerLostWhileTheJobStartsIsMadeAgain) {
  World world(2, 1);
  world.Step();
  world.RunPods();
  world.Step();
  world.RunPods();
  world.pods.erase("mnist-server-1");
  world.seen.coordinator->phase = pushpull::JobPhase::kRecovering;
  world.Take();

  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("create server-1"));
}

TEST(MembersTest, NothingIsCreatedWhileACoordinatorRecovers) {
  World world = Running(2, 1);
  world.seen.coordinator->step = 7;
  world.Pass(seconds(120));
  ASSERT_TRUE(world.Settle());
  ASSERT_EQ(world.status().progress->step, 7);
  world.pods.erase("mnist-server-1");
  world.seen.coordinator->phase = pushpull::JobPhase::kRecovering;

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
}

TEST(MembersTest, MoreServersAreAskedForThenMadeThenGivenShards) {
  World world = Running(2, 1);

  Scale(world, 4);
  world.Step();
  EXPECT_THAT(world.Take(), ElementsAre("ask servers=4"));
  EXPECT_EQ(world.status().phase, Phase::kScaling);
  EXPECT_EQ(world.Say("Scaling"), "True Resizing");
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("create server-2", "create server-3"));
  world.RunPods();
  world.seen.coordinator->shards_moving = 512;
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kScaling);
  EXPECT_EQ(world.status().ring->state, "Resharding");
  world.seen.coordinator->shards_moving = 0;
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kRunning);
  EXPECT_EQ(world.status().servers.ready, 4);
  EXPECT_EQ(world.Say("Scaling"), "False SizeReached");
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

TEST(MembersTest, AServerGoesWhenItHoldsNothingAnyMore) {
  World world = Running(4, 1);

  Scale(world, 2);
  world.Step();
  world.AgreeToSize();
  world.seen.coordinator->shards_moving = 300;
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("ask servers=2"));
  EXPECT_EQ(world.status().servers.draining, 2);
  EXPECT_EQ(world.status().servers.replicas, 4);
  world.Exit("server-3", 0);  // drained first
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("delete server-3"));
  world.seen.coordinator->shards_moving = 0;
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());  // still one of the job's
  world.seen.coordinator->servers.erase(2);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("delete server-2"));
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kRunning);
  EXPECT_EQ(world.status().servers.replicas, 2);
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

TEST(MembersTest, AServerThatIsOnlyOutOfSightIsNotTakenAsDrained) {
  World world = Running(2, 1);
  Scale(world, 1);
  world.Step();
  world.AgreeToSize();
  world.Take();
  world.seen.coordinator->shards_moving = 300;
  world.seen.coordinator->servers.erase(1);

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
}

TEST(MembersTest, ALateDrainIsReportedAndCostsNothing) {
  World world = Running(3, 1);
  Scale(world, 2);
  world.Step();
  world.AgreeToSize();
  world.seen.coordinator->shards_moving = 300;
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.Pass(seconds(299));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("ScalingBlocked"), "");
  world.Pass(seconds(1));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("ScalingBlocked"), "True DrainTimeout");
  EXPECT_THAT(world.Find("ScalingBlocked")->message, HasSubstr("mnist-server-2"));
  EXPECT_THAT(world.Take(), IsEmpty());
  Scale(world, 3);
  world.Step();
  EXPECT_THAT(world.Take(), ElementsAre("ask servers=3"));
  world.AgreeToSize();
  world.seen.coordinator->shards_moving = 0;
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_TRUE(world.Has("server-2"));
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  EXPECT_EQ(world.Say("ScalingBlocked"), "False SizeReached");
}

TEST(MembersTest, AForcedDrainEndsAtItsTimeout) {
  World world = Running(2, 1);
  world.spec().scaling.on_drain_timeout = pushpull::DrainTimeoutPolicy::kForce;
  world.Pass(seconds(5000));
  Scale(world, 1);
  world.Step();
  world.AgreeToSize();
  world.seen.coordinator->shards_moving = 300;
  world.Take();
  world.Pass(seconds(299));
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());

  world.Pass(seconds(1));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("delete server-1"));
  EXPECT_TRUE(std::any_of(world.events.begin(), world.events.end(), [](const Event& event) {
    return event.reason == "DrainForced";
  }));
}

TEST(MembersTest, ScalingBackCancelsADrainBeforeNewPodsCome) {
  World world = Running(4, 1);
  Scale(world, 2);
  world.Step();
  world.AgreeToSize();
  world.seen.coordinator->shards_moving = 300;
  ASSERT_TRUE(world.Settle());
  world.Take();

  Scale(world, 5);
  world.Step();
  EXPECT_THAT(world.Take(), ElementsAre("ask servers=5"));
  EXPECT_EQ(world.status().servers.draining, 0);
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("create server-4"));
}

TEST(MembersTest, AnotherSizeGivesADrainItsWholeTimeAgain) {
  World world = Running(4, 1);
  Scale(world, 3);
  world.Step();
  world.AgreeToSize();
  world.seen.coordinator->shards_moving = 300;
  ASSERT_TRUE(world.Settle());
  world.Pass(seconds(200));

  Scale(world, 2);
  world.Step();
  world.AgreeToSize();
  world.Pass(seconds(200));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("ScalingBlocked"), "");
}

TEST(MembersTest, APendingServerThatIsNotDesiredIsDeletedAtOnce) {
  World world = Running(2, 1);
  Scale(world, 3);
  world.Step();
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());
  world.Take();

  Scale(world, 2);
  world.Step();
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("ask servers=2", "delete server-2"));
}

TEST(MembersTest, AReleasedServerThatIsDesiredAgainIsNotCounted) {
  World world = Running(2, 1);
  Scale(world, 1);
  world.Step();
  world.AgreeToSize();
  world.Exit("server-1", 0);
  Scale(world, 2);
  world.Step();
  world.AgreeToSize();

  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.pod("server-1").pod.phase, PodPhase::kPending);
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

TEST(MembersTest, TheCooldownPutsOffTheNextChange) {
  World world = Running(2, 1);
  world.spec().scaling.cooldown = seconds(60);
  Scale(world, 3);

  const JobPlan plan = world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(plan.status.phase, Phase::kRunning);
  world.Pass(seconds(60));
  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("ask servers=3"));
}

TEST(MembersTest, AnotherBatchIsAskedForAtOnce) {
  World world = Running(2, 1);
  world.spec().scaling.cooldown = seconds(60);
  world.spec().workers.global_batch = 512;
  Scale(world, 3);
  world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());  // of a job whose steps have none

  world.seen.coordinator->divides_samples = true;
  const JobPlan plan = world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("ask batch=512"));  // for the servers it has to wait
  EXPECT_EQ(plan.status.phase, Phase::kRunning);
  world.AgreeToSize();
  world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());
}

TEST(MembersTest, TheCoordinatorIsToldTheRacksThatItDoesNotKnow) {
  World world = Running(2, 1);
  world.seen.racks = {{"n1", "r1"}, {"n2", "r2"}};
  world.pod("server-0").pod.node = "n1";
  world.pod("server-1").pod.node = "n2";
  world.pod("worker-0").pod.node = "n3";  // its label is missing
  CoordinatorReport& report = *world.seen.coordinator;
  report.server_racks = {{0, "r1"}, {1, ""}};
  report.worker_racks = {{0, ""}};

  world.Step();
  EXPECT_THAT(world.Take(), ElementsAre("ask server-1 in r2"));
  world.seen.coordinator->server_racks[1] = "r2";
  world.Step();

  EXPECT_THAT(world.Take(), IsEmpty());
}

TEST(MembersTest, WorkersComeAndGoBetweenSteps) {
  World world = Running(1, 3);
  world.spec().workers.replicas = 1;
  world.Bump();
  world.Step();
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("ask workers=1"));

  for (const int index : {1, 2}) {
    world.Exit("worker-" + std::to_string(index), 0);
    world.seen.coordinator->workers[index] = {.was_released = true};
  }
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), testing::UnorderedElementsAre("delete worker-1", "delete worker-2"));
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  world.spec().workers.replicas = 2;
  world.Bump();
  world.Step();
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("ask workers=2", "create worker-1"));
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

TEST(MembersTest, AWorkerWithoutAPodThatWasDoneIsNotMadeAgain) {
  World world = Running(1, 2);
  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());

  world.Vanish("worker-0");
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.status().workers.succeeded, 1);
}

TEST(MembersTest, AnotherModeIsAskedForUntilItIsInForce) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.spec().sync.mode = pushpull::SyncMode::kBounded;
  world.spec().sync.staleness = 3;

  world.Step();
  EXPECT_THAT(world.Take(), ElementsAre("sync Bounded 3 0"));
  world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());  // it is changing
  world.seen.coordinator->is_sync_changing = false;
  world.seen.coordinator->sync_problem = "worker-0 has not come to the end of its step";
  world.Step();
  EXPECT_THAT(world.Take(), ElementsAre("sync Bounded 3 0"));
  EXPECT_EQ(world.Say("Degraded"), "True SyncNotChanged");
  world.seen.coordinator->is_sync_changing = false;
  world.seen.coordinator->sync_problem.clear();
  world.seen.coordinator->sync = {.mode = pushpull::SyncMode::kBounded, .staleness = 3};
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.Say("Degraded"), "False AllWell");
}

TEST(MembersTest, AModeThatIsRefusedIsToldAsLongAsItIsWanted) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.spec().sync.mode = pushpull::SyncMode::kAsync;
  world.Step();
  world.seen.coordinator->is_sync_changing = false;
  world.seen.sync_refusal = {.asked = {.mode = pushpull::SyncMode::kAsync},
                             .message = "spec.sync.mode: needs Sync"};
  world.Step();
  EXPECT_EQ(world.Say("Degraded"), "True SyncNotChanged");

  world.spec().sync.mode = pushpull::SyncMode::kBounded;
  world.Step();
  EXPECT_EQ(world.Say("Degraded"), "False AllWell");
}

TEST(MembersTest, ValuesThatTheModeHasNoUseForAreNoDifference) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.spec().sync.mode = pushpull::SyncMode::kAsync;
  world.seen.coordinator->sync = {.mode = pushpull::SyncMode::kAsync};
  world.spec().sync.backup_workers = 1;
  world.spec().sync.staleness = 2;

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
}

// ---- servers in the pods of workers ----

World RunningWithServersBeside(int workers) {
  World world(1, workers);
  world.spec().workers.colocated_server = true;
  EXPECT_TRUE(world.Start());
  world.Take();
  return world;
}

void ScaleWorkers(World& world, int workers) {
  world.spec().workers.replicas = workers;
  world.Bump();
  world.Step();
  world.AgreeToSize();
}

TEST(ColocatedServersTest, AreNotCountedAsServers) {
  World world = RunningWithServersBeside(2);

  EXPECT_EQ(world.status().servers.replicas, 1);
  EXPECT_EQ(world.status().workers.ready, 2);
  EXPECT_EQ(world.Say("Ready"), "True AllReady");
}

TEST(ColocatedServersTest, AreNotWhatWorkersWaitFor) {
  World world(1, 1);
  world.spec().workers.colocated_server = true;
  world.Step();
  world.RunPods();
  world.seen.coordinator->servers = {1024};
  world.Take();

  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("create server-0"));
}

TEST(ColocatedServersTest, KeepTheirPodUntilTheyHoldNothing) {
  World world = RunningWithServersBeside(3);
  ScaleWorkers(world, 2);
  world.Take();
  world.seen.coordinator->shards_moving = 5;

  world.Exit("worker-2", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.status().phase, Phase::kScaling);

  world.ExitBeside("worker-2", 0);
  world.seen.coordinator->shards_moving = 0;
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("delete worker-2"));
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
}

TEST(ColocatedServersTest, ThatAreDrainedDoNotTakeAWorkerThatStillTrains) {
  World world = RunningWithServersBeside(3);
  ScaleWorkers(world, 2);
  world.Take();

  world.ExitBeside("worker-2", 0);
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
}

TEST(ColocatedServersTest, ThatDoNotDrainInTimeStayUnlessTheJobSaysOtherwise) {
  for (const bool is_forced : {false, true}) {
    World world = RunningWithServersBeside(2);
    if (is_forced) world.spec().scaling.on_drain_timeout = pushpull::DrainTimeoutPolicy::kForce;
    ScaleWorkers(world, 1);
    world.Exit("worker-1", 0);
    world.seen.coordinator->shards_moving = 5;
    world.Take();

    world.Pass(world.spec().scaling.drain_timeout + seconds(1));
    ASSERT_TRUE(world.Settle());

    if (is_forced) {
      EXPECT_THAT(world.Take(), ElementsAre("delete worker-1"));
    } else {
      EXPECT_THAT(world.Take(), IsEmpty());
      EXPECT_EQ(world.Say("ScalingBlocked"), "True DrainTimeout");
    }
  }
}

TEST(ColocatedServersTest, ThatFailTakeTheirPodWithThemAndAreCounted) {
  World world = RunningWithServersBeside(2);

  world.ExitBeside("worker-1", 1);
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-1"));
  ASSERT_EQ(world.status().restarts.members.size(), 1U);
  EXPECT_EQ(world.status().restarts.members.front().pod, "mnist-worker-1");
}

TEST(ColocatedServersTest, ThatAreDesiredAgainGetANewPodUncounted) {
  World world = RunningWithServersBeside(2);
  ScaleWorkers(world, 1);
  world.ExitBeside("worker-1", 0);
  ScaleWorkers(world, 2);
  world.Take();

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-1"));
  EXPECT_THAT(world.status().restarts.members, IsEmpty());
}

TEST(ColocatedServersTest, ThatRunOnDoNotHoldTheEndOfTheJobUp) {
  World world = RunningWithServersBeside(2);

  world.Exit("worker-0", 0);
  world.Exit("worker-1", 0);
  world.Step();

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
}

TEST(ColocatedServersTest, AContainerOfThatNameIsTheUsersOwnWhereThereAreNone) {
  World world = Running(1, 1);
  world.pod("worker-0")
      .pod.containers.push_back({.name = "server", .end = ContainerEnd{.exit_code = 1}});

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
}

}  // namespace
}  // namespace pushpull_operator
