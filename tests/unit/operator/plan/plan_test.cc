// SPDX-License-Identifier: Apache-2.0
//
// From a job that nobody has seen to its end.
#include "operator/plan/plan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using pushpull::CleanupPolicy;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using std::chrono::seconds;

TEST(PlanTest, PhaseAndTermAreWrittenBeforeTheFirstPod) {
  World world(2, 3);

  const JobPlan plan = world.Step();

  EXPECT_EQ(plan.status.phase, Phase::kStarting);
  EXPECT_EQ(plan.status.start_time, world.seen.now);
  EXPECT_EQ(plan.status.coordinator.term, 1);
  EXPECT_THAT(plan.actions, ElementsAre(Action(CreatePod{.member = {}, .term = 1})));
  EXPECT_EQ(plan.status.servers.selector,
            "pushpull.dev/job=mnist,app.kubernetes.io/component=server");
}

TEST(PlanTest, MembersComeInTheOrderInWhichTheyNeedEachOther) {
  World world(2, 1);

  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("create coordinator"));
  world.RunPods();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("create server-0", "create server-1"));
  world.RunPods();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("create worker-0"));
  EXPECT_EQ(world.Say("Ready"), "False MembersMissing");
  world.RunPods();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  EXPECT_EQ(world.Say("Ready"), "True AllReady");
  EXPECT_EQ(world.Say("Reconciled"), "True Reconciled");
  EXPECT_EQ(world.status().servers.ready, 2);
  EXPECT_EQ(world.status().workers.ready, 1);
  EXPECT_TRUE(world.status().coordinator.is_ready);
}

TEST(PlanTest, AJobAtRestIsNotWritten) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  const TrainingJobStatus before = world.status();
  world.events.clear();

  for (int i = 0; i < 100; ++i) {
    world.Pass(seconds(30));
    EXPECT_THAT(world.Step().actions, IsEmpty());
  }

  EXPECT_EQ(world.status(), before);
  EXPECT_THAT(world.events, IsEmpty());
}

TEST(PlanTest, AJobWhoseWorkersAreDoneHasSucceeded) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());

  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  world.Exit("worker-1", 0);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  EXPECT_EQ(world.Say("Complete"), "True AllWorkersDone");
  EXPECT_EQ(world.Say("Ready"), "False Finished");
  EXPECT_EQ(world.status().completion_time, world.seen.now);
  EXPECT_EQ(world.status().workers.succeeded, 2);
  EXPECT_THAT(world.Take(), testing::IsSupersetOf({"delete coordinator", "delete server-0"}));
  EXPECT_TRUE(world.Has("worker-0"));  // its log stays
}

TEST(PlanTest, TheEndWaitsForTheLastCheckpointAndNotForEver) {
  World world(1, 1);
  world.spec().checkpoint.emplace().claim = "c";
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->saves_requested = 2;
  world.seen.coordinator->saves_finished = 1;

  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  World late = world;
  world.seen.coordinator->saves_finished = 2;
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  late.Pass(seconds(300));
  ASSERT_TRUE(late.Settle());
  EXPECT_EQ(late.status().phase, Phase::kSucceeded);
}

TEST(PlanTest, CleanupSaysWhichPodsGo) {
  struct Row {
    CleanupPolicy cleanup;
    std::vector<std::string> left;
  };
  for (const Row& row :
       {Row{CleanupPolicy::kRunning, {"mnist-worker-0"}},
        Row{CleanupPolicy::kAll, {}},
        Row{CleanupPolicy::kNone, {"mnist-coordinator", "mnist-server-0", "mnist-worker-0"}}}) {
    World world(1, 1);
    world.spec().cleanup = row.cleanup;
    ASSERT_TRUE(world.Start());
    world.Exit("worker-0", 0);
    // As kubelets tell it: the container has ended, the pod not yet.
    world.pod("worker-0").pod.phase = PodPhase::kRunning;

    ASSERT_TRUE(world.Settle());
    world.VanishDeleted();

    std::vector<std::string> left;
    for (const auto& [name, pod] : world.pods) left.push_back(name);
    EXPECT_EQ(left, row.left);
  }
}

TEST(PlanTest, AFinishedJobIsFinal) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.spec().workers.replicas = 5;
  world.spec().suspend = true;
  world.Vanish("worker-0");
  world.Bump();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  EXPECT_EQ(world.status().workers.succeeded, 1);
  EXPECT_EQ(world.status().observed_generation, 2);
}

TEST(PlanTest, TheObjectGoesWhenItsTimeToLiveIsOver) {
  World world(1, 1);
  world.spec().ttl_after_finished = seconds(60);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  world.Take();

  world.Pass(seconds(59));
  EXPECT_EQ(world.Step().requeue_at, world.seen.now + seconds(1));
  EXPECT_THAT(world.Take(), IsEmpty());
  world.Pass(seconds(1));
  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("delete job"));
}

TEST(PlanTest, WhatTheCoordinatorCallsAFailureIsOne) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->phase = pushpull::JobPhase::kFailed;
  world.seen.coordinator->failure = "server-0: tensor w is not finite at step 7";

  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kFailed);
  EXPECT_EQ(world.Say("Failed"), "True TrainingFailed");
  EXPECT_THAT(world.Find("Failed")->message, HasSubstr("step 7"));
}

TEST(PlanTest, ARefusedPodFailsTheJobWithTheServersMessage) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.seen.refusal = "spec.containers[0].image: Required value";

  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True InvalidSpec");
  EXPECT_EQ(world.Find("Failed")->message, "spec.containers[0].image: Required value");
}

TEST(PlanTest, AConditionHasNoMoreTextThanItsSchemaAllows) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.seen.refusal = "spec.containers[0].image: Invalid value: " + std::string(200'000, 'x');

  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True InvalidSpec");
  EXPECT_LE(world.Find("Failed")->message.size(), 32'768u);
  EXPECT_THAT(world.Find("Failed")->message, HasSubstr("Invalid value"));
}

TEST(PlanTest, ADeadlineIsExactAndExcludesSuspendedTime) {
  World world(1, 1);
  world.spec().active_deadline = seconds(600);
  ASSERT_TRUE(world.Start());
  world.Pass(seconds(100));
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  world.Pass(seconds(5000));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kSuspended);
  world.spec().suspend = false;
  ASSERT_TRUE(world.Start());

  world.Pass(seconds(499));
  EXPECT_EQ(world.Step().requeue_at, world.seen.now + seconds(1));
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  world.Pass(seconds(1));
  world.Step();

  EXPECT_EQ(world.Say("Failed"), "True DeadlineExceeded");
}

TEST(PlanTest, AStartThatTakesTooLongSaysWhatItWaitsFor) {
  World world(1, 1);
  world.spec().start_deadline = seconds(60);
  ASSERT_TRUE(world.Settle());
  world.pod("coordinator").pod.containers = {{.name = "coordinator",
                                              .image = "no-such:1",
                                              .waiting_reason = "ErrImagePull",
                                              .waiting_message = "not found"}};

  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("Degraded"), "True ImagePullBackOff");
  EXPECT_EQ(world.Find("Degraded")->message,
            "pod mnist-coordinator, container coordinator, image no-such:1: not found");
  world.Pass(seconds(60));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True ImagePullBackOff");
  EXPECT_THAT(world.Find("Failed")->message, HasSubstr("spec.startDeadlineSeconds (60 s)"));
}

TEST(PlanTest, TheStartDeadlineIsOverOnceAllWereReady) {
  World world(1, 1);
  world.spec().start_deadline = seconds(60);
  ASSERT_TRUE(world.Start());
  world.pod("server-0").pod.is_ready = false;

  world.Pass(seconds(600));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kRunning);
  EXPECT_EQ(world.Say("Ready"), "False MembersMissing");
}

TEST(PlanTest, AnInvalidSpecIsReportedAndTouchesNothing) {
  World fresh(1, 1);
  fresh.seen.object.problems = {
      {.field = "spec.servers.replicass", .text = "is not a known field"}};
  World running(1, 1);
  ASSERT_TRUE(running.Start());
  running.Take();
  running.seen.object.problems = fresh.seen.object.problems;

  for (World* world : {&fresh, &running}) {
    ASSERT_TRUE(world->Settle());
    EXPECT_THAT(world->Take(), IsEmpty());
    EXPECT_EQ(world->Say("Reconciled"), "False InvalidSpec");
    EXPECT_EQ(world->Find("Reconciled")->message, "spec.servers.replicass: is not a known field");
  }
  EXPECT_EQ(fresh.status().phase, Phase::kPending);
  EXPECT_EQ(running.status().phase, Phase::kRunning);
  EXPECT_THAT(fresh.events, testing::SizeIs(1));

  fresh.seen.object.problems.clear();
  EXPECT_TRUE(fresh.Start());
  EXPECT_EQ(fresh.Say("Reconciled"), "True Reconciled");
}

TEST(PlanTest, AnUnreadableJobIsReportedAndKeepsItsPods) {
  World fresh(1, 1);
  World running(1, 1);
  ASSERT_TRUE(running.Start());
  running.Take();
  const pushpull::TrainingJob mended = running.seen.object.job;

  for (World* world : {&fresh, &running}) {
    world->seen.object.unreadable = "spec nests deeper than 200 levels";
    world->seen.object.job = {};  // as none of it is known
    ASSERT_TRUE(world->Settle());
    EXPECT_THAT(world->Take(), IsEmpty());
    EXPECT_EQ(world->Say("Reconciled"), "False Unreadable");
    EXPECT_THAT(world->Find("Reconciled")->message, HasSubstr("nests deeper"));
    EXPECT_FALSE(IsActive(world->seen));
  }
  EXPECT_EQ(fresh.status().phase, Phase::kPending);
  EXPECT_EQ(running.status().phase, Phase::kRunning);

  running.seen.object.unreadable.clear();
  running.seen.object.job = mended;
  ASSERT_TRUE(running.Settle());
  EXPECT_EQ(running.Say("Reconciled"), "True Reconciled");
}

TEST(PlanTest, JobsOfOthersAndJobsThatAreDeletedAreLeftAlone) {
  World others(1, 1);
  others.spec().managed_by = "kueue.x-k8s.io/multikueue";
  World deleted(1, 1);
  deleted.seen.meta.is_deleting = true;
  World ours(1, 1);
  ours.spec().managed_by = "pushpull.dev/operator";

  for (World* world : {&others, &deleted}) {
    EXPECT_THAT(world->Step().actions, IsEmpty());
    EXPECT_EQ(world->status(), TrainingJobStatus{});
  }
  EXPECT_TRUE(ours.Start());
}

TEST(PlanTest, PodsOfAnEarlierJobOfTheNameAreIgnored) {
  World world(1, 1);
  world.Step();
  world.pod("coordinator").meta.controller_uid = "job-0";
  world.Take();

  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_FALSE(world.status().coordinator.is_ready);
  EXPECT_EQ(world.Say("Reconciled"), "False NameConflict");
  EXPECT_THAT(world.Find("Reconciled")->message, HasSubstr("mnist-coordinator"));

  world.Vanish("coordinator");
  EXPECT_TRUE(world.Start());
  EXPECT_EQ(world.Say("Reconciled"), "True Reconciled");
}

TEST(PlanTest, EveryChangeOfAConditionIsOneEvent) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());

  std::vector<std::string> told;
  for (const Event& event : world.events) told.push_back(event.action + " " + event.reason);

  EXPECT_THAT(told, ElementsAre("Start Starting", "Ready AllReady"));
}

TEST(PlanTest, RingAndCheckpointAreWrittenAtMostOnceAMinute) {
  World world(1, 1);
  world.spec().checkpoint.emplace().claim = "c";
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->epoch = 4;
  world.seen.coordinator->checkpoint_step = 10;
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().ring->epoch, 4);
  EXPECT_EQ(world.status().checkpoint->step, 10);
  EXPECT_EQ(world.status().checkpoint->location, "c:/n/mnist");

  world.Pass(seconds(59));
  world.seen.coordinator->checkpoint_step = 20;
  EXPECT_EQ(world.Step().requeue_at, world.seen.now + seconds(1));
  EXPECT_EQ(world.status().checkpoint->step, 10);
  world.Pass(seconds(1));
  world.Step();

  EXPECT_EQ(world.status().checkpoint->step, 20);
}

TEST(PlanTest, ProgressIsWrittenOnceAMinuteWithTheCheckpoint) {
  World world(1, 1);
  world.spec().checkpoint.emplace().claim = "c";
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->step = 5;
  world.seen.coordinator->samples_per_second = 1234.56;
  world.seen.coordinator->sync_seconds_p50 = 0.0021;
  world.Step();
  world.seen.progress_time = world.seen.now;
  EXPECT_EQ(world.status().progress->step, 5);
  EXPECT_EQ(world.status().progress->samples_per_second, "1234.6");
  EXPECT_EQ(world.status().progress->sync_seconds_p50, "0.002100");
  const TrainingJobStatus told = world.status();

  world.Pass(seconds(59));
  world.seen.coordinator->step = 6;
  world.seen.coordinator->checkpoint_step = 6;
  EXPECT_EQ(world.Step().requeue_at, world.seen.now + seconds(1));
  EXPECT_EQ(world.status(), told);
  world.Pass(seconds(1));
  world.Step();

  EXPECT_EQ(world.status().progress->step, 6);
  EXPECT_EQ(world.status().checkpoint->step, 6);
}

TEST(PlanTest, AResultAfterTheLastStepIsWritten) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->step = 5;
  world.Step();
  world.seen.progress_time = world.seen.now;
  world.seen.coordinator->results = {{"accuracy", 0.88125}, {"loss", 1e-9}};
  world.Exit("worker-0", 0);

  world.Step();

  const std::map<std::string, std::string> results = {{"accuracy", "0.88125"}, {"loss", "1e-09"}};
  EXPECT_EQ(world.status().progress->results, results);
}

TEST(PlanTest, ProgressAtTheEndIsTheLast) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->step = 5;
  world.Step();
  world.seen.progress_time = world.seen.now;
  world.seen.coordinator->step = 9;
  world.Exit("worker-0", 0);

  world.Step();

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  EXPECT_EQ(world.status().progress->step, 9);
}

TEST(PlanTest, ALossIsReportedOnceWhenItIsRepaired) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  CoordinatorReport& report = *world.seen.coordinator;
  report.term = 3;
  report.losses = {{.is_repaired = false, .text = "shard 4 lost; being rebuilt"}};
  world.events.clear();
  world.Step();
  EXPECT_FALSE(world.status().losses.has_value());
  EXPECT_THAT(world.events, testing::IsEmpty());

  // A second one that is over before the first waits for it.
  report.losses.push_back({.is_repaired = true, .text = "shard 5 lost; optimizer state zero"});
  world.Step();
  EXPECT_THAT(world.events, testing::IsEmpty());
  report.losses[0] = {.is_repaired = true, .text = "shard 4 lost; 2 values from workers"};
  world.Step();
  world.Step();

  ASSERT_EQ(world.events.size(), 2U);
  EXPECT_EQ(world.events[0].kind, Event::Kind::kWarning);
  EXPECT_EQ(world.events[0].reason, "ShardsLost");
  EXPECT_EQ(world.events[0].note, "shard 4 lost; 2 values from workers");
  EXPECT_EQ(world.events[1].note, "shard 5 lost; optimizer state zero");
  EXPECT_EQ(world.status().losses->counted, 2);
  EXPECT_EQ(world.status().losses->last->message, "shard 5 lost; optimizer state zero");
  EXPECT_EQ(world.status().losses->last->time, world.seen.now);

  // Another coordinator's list begins again.
  report.term = 4;
  report.losses = {{.is_repaired = true, .text = "shard 1 lost; 1 value from workers"}};
  world.Step();
  EXPECT_EQ(world.events.size(), 3U);
  EXPECT_EQ(world.status().losses->counted, 3);
}

TEST(PlanTest, ALossThatCameBackWithEverythingIsNone) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->losses = {
      {.is_repaired = true, .is_undone = true, .text = "shard 4 lost; back with everything"}};
  world.events.clear();

  world.Step();

  EXPECT_THAT(world.events, testing::IsEmpty());
  EXPECT_EQ(world.status().losses->counted, 0);
  EXPECT_FALSE(world.status().losses->last.has_value());
}

TEST(PlanTest, ALossRightBeforeTheEndIsReported) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->losses = {
      {.is_repaired = true, .text = "shard 4 lost; optimizer state zero"}};
  world.Exit("worker-0", 0);

  world.Step();

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  EXPECT_EQ(world.status().losses->counted, 1);
}

TEST(PlanTest, AJobThatDoesNotStepWritesNoProgress) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());

  EXPECT_FALSE(world.status().progress.has_value());
}

}  // namespace
}  // namespace pushpull_operator
