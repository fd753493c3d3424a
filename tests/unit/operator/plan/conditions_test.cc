// SPDX-License-Identifier: Apache-2.0
//
// What users are told of a job, and when. That every condition and every event has a reason and a
// text is checked at each step of World.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using std::chrono::minutes;
using std::chrono::seconds;

std::vector<std::string> Told(const World& world) {
  std::vector<std::string> told;
  for (const Event& event : world.events) told.push_back(event.action + " " + event.reason);
  return told;
}

// Its process runs and says nothing; the pods of the others are ready.
World WithASilentWorker() {
  World world(1, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(world.Settle());
    world.RunPods();
  }
  world.seen.coordinator->workers.erase(1);
  world.seen.coordinator->phase = pushpull::JobPhase::kStarting;
  for (auto& [name, pod] : world.pods) pod.pod.node = "node-1";
  world.events.clear();
  return world;
}

TEST(ConditionsTest, AStartIsToldAtOnce) {
  World world(2, 3);

  world.Step();

  EXPECT_THAT(Told(world), ElementsAre("Start Starting"));
  EXPECT_THAT(world.events[0].note, HasSubstr("servers (2)"));
}

TEST(ConditionsTest, MembersThatHaveNotRegisteredAreNamedWithHowLong) {
  World world = WithASilentWorker();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("Degraded"), "");
  EXPECT_EQ(world.Step().requeue_at <= world.seen.now + seconds(60), true);

  world.Pass(seconds(61));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Degraded"), "True MembersNotRegistered");
  EXPECT_THAT(world.Find("Degraded")->message,
              HasSubstr("mnist-worker-1 for 1 minute (its pod runs)"));
  EXPECT_THAT(world.Find("Degraded")->message, Not(HasSubstr("worker-0")));
  EXPECT_EQ(world.status().reason, "MembersNotRegistered");
  EXPECT_THAT(Told(world), ElementsAre("Degraded MembersNotRegistered"));
  world.Pass(minutes(20));
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Find("Degraded")->message, HasSubstr("mnist-worker-1 for 15 minutes"));
  EXPECT_THAT(Told(world), ElementsAre("Degraded MembersNotRegistered"));

  world.MeetMembers();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("Degraded"), "False AllWell");
  EXPECT_EQ(world.status().phase, Phase::kRunning);
}

TEST(ConditionsTest, AWaitIsWrittenASmallNumberOfTimes) {
  World world = WithASilentWorker();
  world.spec().start_deadline = std::chrono::hours(10);
  int num_writes = 0;
  for (int i = 0; i < 120; ++i) {
    const TrainingJobStatus before = world.status();
    world.Step();
    num_writes += world.status() == before ? 0 : 1;
    world.Pass(minutes(1));
  }

  EXPECT_LE(num_writes, 7);
  EXPECT_THAT(world.Find("Degraded")->message, HasSubstr("for 1 hour"));
}

TEST(ConditionsTest, AWorkerThatIsDoneIsNotAwaited) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  world.seen.coordinator->workers[0] = {.is_alive = false, .has_left = true};

  world.Pass(minutes(30));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Degraded"), "");
}

TEST(ConditionsTest, AStartWithoutADeadlineEndsAfterHalfAnHour) {
  World world = WithASilentWorker();
  ASSERT_TRUE(world.Settle());

  world.Pass(seconds(1799));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kStarting);
  world.Pass(seconds(1));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True StartDeadlineExceeded");
  EXPECT_THAT(world.Find("Failed")->message, HasSubstr("1800 s unless set"));
  EXPECT_THAT(world.Find("Failed")->message, HasSubstr("mnist-worker-1 for 30 minutes"));
}

TEST(ConditionsTest, WaitingForRoomEndsNoStart) {
  World world = WithASilentWorker();
  Pod& waiting = world.pod("worker-1").pod;
  waiting.node.clear();
  waiting.phase = PodPhase::kPending;
  waiting.is_ready = false;
  waiting.unschedulable = "0/3 nodes are available";

  world.Pass(std::chrono::hours(30));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kStarting);
  EXPECT_EQ(world.Say("Degraded"), "True Unschedulable");

  // There is room: half an hour for its image and its program.
  waiting.unschedulable.clear();
  waiting.node = "node-7";
  waiting.scheduled_since = world.seen.now;
  world.Pass(minutes(29));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kStarting);
  world.Pass(minutes(1));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kFailed);
}

TEST(ConditionsTest, WaitingForAQuotaEndsNoStart) {
  World world = WithASilentWorker();
  world.seen.obstacle = Obstacle{.reason = "Forbidden", .message = "exceeded quota"};
  ASSERT_TRUE(world.Settle());

  world.Pass(std::chrono::hours(30));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kStarting);
  EXPECT_EQ(world.status().reason, "Forbidden");
}

TEST(ConditionsTest, AnEndOfAMemberIsOneEventAndToldUntilItIsBack) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.events.clear();

  world.Exit("server-1", 3);
  world.pod("server-1").pod.containers[0].end->message = "no space left on device\n";
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(Told(world), ElementsAre("Restart Error"));
  EXPECT_EQ(world.Say("Degraded"), "True MemberNotReady");
  EXPECT_THAT(world.Find("Degraded")->message, HasSubstr("no space left on device"));
  EXPECT_THAT(world.status().restarts.last->message, HasSubstr("no space left on device"));
  world.RunPods();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("Degraded"), "False AllWell");
}

TEST(ConditionsTest, TheEndOfAJobIsOneEvent) {
  World done(1, 1);
  World failed(1, 1);
  for (World* world : {&done, &failed}) {
    ASSERT_TRUE(world->Start());
    world->events.clear();
  }

  done.Exit("worker-0", 0);
  failed.seen.coordinator->phase = pushpull::JobPhase::kFailed;
  ASSERT_TRUE(done.Settle());
  ASSERT_TRUE(failed.Settle());

  EXPECT_THAT(Told(done), ElementsAre("Complete AllWorkersDone"));
  EXPECT_THAT(Told(failed), ElementsAre("Failed TrainingFailed"));
  EXPECT_EQ(done.status().reason, "AllWorkersDone");
  EXPECT_EQ(failed.status().reason, "TrainingFailed");
}

TEST(ConditionsTest, AResizeIsABeginAndAnEnd) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.events.clear();

  world.spec().servers.replicas = 2;
  world.Bump();
  world.Step();
  world.AgreeToSize();
  ASSERT_TRUE(world.Settle());
  world.RunPods();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(Told(world), ElementsAre("Scaling Resizing", "Scaling SizeReached"));
}

TEST(ConditionsTest, TheDurationIsExactAtTheEnd) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Pass(seconds(3725));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().duration, "");  // nothing else was to be written

  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().duration, "1h2m");
}

TEST(ConditionsTest, ASidecarThatFailsIsToldAndChangesNothing) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.events.clear();
  world.pod("worker-0")
      .pod.containers.push_back({.name = "logs",
                                 .image = "fluent",
                                 .end = ContainerEnd{.exit_code = 7, .message = "no such host\n"}});

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.Say("Ready"), "True AllReady");
  EXPECT_EQ(world.Say("Degraded"), "True SidecarEnded");
  EXPECT_THAT(world.Find("Degraded")->message,
              HasSubstr("container logs of pod mnist-worker-0 ended with exit code 7"));
  EXPECT_THAT(world.Find("Degraded")->message, HasSubstr("no such host"));
  EXPECT_THAT(Told(world), ElementsAre("Degraded SidecarEnded"));
}

TEST(ConditionsTest, AJobThatBeginsAtAnOlderStepNamesBothStepsOnce) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  world.events.clear();
  world.seen.coordinator->began_step = 20;
  world.seen.coordinator->step_before = 35;
  for (int i = 0; i < 2; ++i) {
    world.seen.coordinator->step += 30;
    world.Pass(seconds(90));
    ASSERT_TRUE(world.Settle());
  }

  EXPECT_EQ(world.Say("Resumed"), "True StepsLost");
  ASSERT_THAT(Told(world), ElementsAre("Resume StepsLost"));
  EXPECT_THAT(world.events[0].note, HasSubstr("began at step 20, the job had reached step 35"));
}

TEST(ConditionsTest, AStallIsToldOnceWithItsWorkersUntilItIsOver) {
  World world(1, 2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(world.Settle());
    world.RunPods();
  }
  ASSERT_TRUE(world.Settle());
  world.events.clear();
  world.seen.coordinator->stall_headline = "step 4 waits for worker-1: no gradient of tensor \"w\"";
  for (const char* time : {" for 11.0 s", " for 41.0 s"}) {
    world.seen.coordinator->stall = world.seen.coordinator->stall_headline + time;
    ASSERT_TRUE(world.Settle());
    world.Pass(seconds(30));
  }

  EXPECT_EQ(world.Say("Stalled"), "True WorkersMissing");
  EXPECT_EQ(world.Find("Stalled")->message,
            "step 4 waits for worker-1: no gradient of tensor \"w\" for 11.0 s");
  EXPECT_EQ(world.status().reason, "WorkersMissing");
  ASSERT_THAT(Told(world), ElementsAre("Stalled WorkersMissing"));
  EXPECT_THAT(world.events[0].note, HasSubstr("worker-1"));

  world.seen.coordinator->stall = world.seen.coordinator->stall_headline = "";
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Stalled"), "False StepsProceed");
}

}  // namespace
}  // namespace pushpull_operator
