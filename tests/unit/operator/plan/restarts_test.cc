// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/plan/parts.h"
#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using pushpull::ExitReason;
using pushpull::JobRole;
using pushpull::RestartAction;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using std::chrono::seconds;

// The pod of `member` ends; its successor comes when it may. Returns how long that took.
seconds ExitAndComeBack(World& world, const std::string& member, int code) {
  world.Exit(member, code);
  const WallTime ended = world.seen.now;
  EXPECT_TRUE(world.Settle());
  world.VanishDeleted();
  for (int i = 0; i < 1000 && !world.Has(member); ++i) {
    world.Pass(seconds(1));
    EXPECT_TRUE(world.Settle());
  }
  const seconds waited = world.seen.now - ended;
  world.RunPods();
  EXPECT_TRUE(world.Settle());
  return waited;
}

TEST(RestartsTest, AMemberThatFailedStartsAgainAfterItsDelay) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();

  world.Exit("worker-0", 1);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("delete worker-0"));
  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(
      world.status().restarts.last,
      (LastRestart{.pod = "mnist-worker-0",
                   .reason = "Error",
                   .exit_code = 1,
                   .time = world.seen.now,
                   .message = "mnist-worker-0 exited with code 1; restart, 1 of 6, in 10 s"}));
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(world.Say("Degraded"), "True WaitingForRestart");
  EXPECT_EQ(world.Step().requeue_at, world.seen.now + seconds(10));
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("create worker-0"));
  world.RunPods();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("Degraded"), "False AllWell");
}

TEST(RestartsTest, DelaysDoubleUpToTheirLimitAndBeginAnewAfterHealth) {
  World world(1, 1);
  world.spec().restart.backoff_limit = 100;
  ASSERT_TRUE(world.Start());

  std::vector<int64_t> waited;
  waited.reserve(7);
  for (int i = 0; i < 7; ++i) waited.push_back(ExitAndComeBack(world, "worker-0", 1).count());
  EXPECT_THAT(waited, ElementsAre(10, 20, 40, 80, 160, 300, 300));
  EXPECT_THAT(world.status().restarts.members, testing::SizeIs(1));
  world.Pass(seconds(600));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.members.front().in_a_row, 0);
  EXPECT_EQ(ExitAndComeBack(world, "worker-0", 1), seconds(10));
  EXPECT_EQ(world.status().restarts.counted, 8);
  EXPECT_EQ(world.status().restarts.members.front().counted, 8);
}

TEST(RestartsTest, DelaysBeginAnewAfterTheHealthyTimeOfTheJob) {
  World world(1, 1);
  world.spec().restart.healthy_after = seconds(60);
  ASSERT_TRUE(world.Start());
  EXPECT_EQ(ExitAndComeBack(world, "worker-0", 1), seconds(10));
  EXPECT_EQ(ExitAndComeBack(world, "worker-0", 1), seconds(20));

  world.Pass(seconds(60));
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.members.front().in_a_row, 0);
  EXPECT_EQ(ExitAndComeBack(world, "worker-0", 1), seconds(10));
}

TEST(RestartsTest, ServersAndCoordinatorComeBackSoon) {
  for (const std::string member : {"server-0", "coordinator"}) {
    World world(2, 1);
    world.spec().restart.backoff_limit = 100;
    ASSERT_TRUE(world.Start());

    for (int i = 0; i < 6; ++i) EXPECT_LE(ExitAndComeBack(world, member, 1), seconds(5)) << member;
  }
}

// The operator may die at any point between the count and the new pod: what it finds afterwards is
// the status that was written and the pod that is still there.
TEST(RestartsTest, AnEndIsCountedOnceHoweverOftenItIsSeen) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 1);
  const ObservedPod ended = world.pod("worker-0");

  for (int i = 0; i < 5; ++i) {
    world.pods["mnist-worker-0"] = ended;  // as if the delete had never arrived
    world.Step();
  }

  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_THAT(world.status().restarts.members, testing::SizeIs(1));
}

TEST(RestartsTest, BeyondTheLimitOfOneMemberTheJobFails) {
  World world(1, 2);
  world.spec().restart.backoff_limit = 2;
  ASSERT_TRUE(world.Start());
  for (const char* member : {"worker-0", "worker-1", "server-0", "worker-0", "worker-1"})
    ExitAndComeBack(world, member, 1);
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  EXPECT_EQ(world.status().restarts.counted, 5);

  world.Exit("worker-0", 1);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True BackoffLimitExceeded");
  EXPECT_THAT(world.Find("Failed")->message, HasSubstr("mnist-worker-0 exited with code 1"));
  EXPECT_EQ(world.status().restarts.counted, 5);
}

TEST(RestartsTest, EightWorkersThatEachFailOnceFailNoJob) {
  World world(1, 8);
  ASSERT_TRUE(world.Start());

  for (int i = 0; i < 8; ++i) world.Exit(absl::StrCat("worker-", i), 1);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.counted, 8);
  EXPECT_EQ(world.Say("Failed"), "");
}

// A pod that was scaled up runs, ends, and never was ready meanwhile.
void EndBeforeItIsReady(World& world, const std::string& member, const std::string& message) {
  ObservedPod& pod = world.pod(member);
  const std::string role = member.substr(0, member.find('-'));
  pod.pod.phase = PodPhase::kFailed;
  pod.pod.unready_since = world.seen.now;
  pod.pod.containers = {{.name = role,
                         .end = ContainerEnd{.exit_code = 3,
                                             .message = message,
                                             .started = world.seen.now + seconds(1),
                                             .finished = world.seen.now + seconds(2)}}};
  world.Pass(seconds(2));
}

TEST(RestartsTest, AMemberThatNeverWasReadyFailsNoJobThatTrains) {
  for (const std::string member : {"server-2", "worker-2"}) {
    SCOPED_TRACE(member);
    World world(2, 2);
    world.spec().restart.backoff_limit = 1;
    ASSERT_TRUE(world.Start());
    world.spec().servers.replicas = world.spec().workers.replicas = 3;
    world.Bump();
    world.Step();
    world.AgreeToSize();
    ASSERT_TRUE(world.Settle());
    ASSERT_TRUE(world.Has(member));

    for (int i = 0; i < 5; ++i) {
      EndBeforeItIsReady(world, member, "the name is unknown");
      ASSERT_TRUE(world.Settle());
      EXPECT_EQ(world.Say("ScalingBlocked"), "True MemberNotReady");
      EXPECT_THAT(world.Find("ScalingBlocked")->message,
                  testing::AllOf(HasSubstr("mnist-" + member), HasSubstr("the name is unknown")));
      world.VanishDeleted();
      world.Pass(seconds(300));
      ASSERT_TRUE(world.Settle());
      ASSERT_TRUE(world.Has(member)) << "it is tried again";
    }

    EXPECT_EQ(world.status().phase, Phase::kScaling);
    EXPECT_EQ(world.status().restarts.counted, 0);
    world.RunPods();
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(world.status().phase, Phase::kRunning);
    EXPECT_EQ(world.Say("ScalingBlocked"), "False SizeReached");
  }
}

TEST(RestartsTest, AMemberThatWasReadyCounts) {
  World world(2, 2);
  ASSERT_TRUE(world.Start());
  world.Exit("server-1", 3);
  world.pod("server-1").pod.unready_since = world.seen.now + seconds(5);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().restarts.counted, 1);

  world.Exit("worker-1", 3);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.counted, 2);
}

// What the coordinator says of its index is of the process before it.
TEST(RestartsTest, AReplacedWorkerThatNeverJoinedDoesNotCount) {
  World world(2, 2);
  ASSERT_TRUE(world.Start());
  ExitAndComeBack(world, "worker-1", 1);
  ASSERT_EQ(world.status().restarts.counted, 1);
  world.pod("worker-1").pod.creation_time = world.seen.now;
  world.Pass(seconds(60));
  world.seen.coordinator->workers[1].joined_ago = seconds(100);

  world.Exit("worker-1", 1);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.counted, 1);
}

TEST(RestartsTest, WithoutAnyWorkerTheJobDoesNotTrainAndEachEndCounts) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.Pass(seconds(60));
  world.seen.coordinator->workers[0].joined_ago = seconds(1000);

  world.Exit("worker-0", 1);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.counted, 1);
}

TEST(RestartsTest, DisruptionsAreCountedApartAndHaveNoLimit) {
  World world(1, 1);
  world.spec().restart.backoff_limit = 0;
  ASSERT_TRUE(world.Start());

  for (int i = 1; i <= 5; ++i) {
    world.pod("worker-0").pod.disruption = "EvictionByEvictionAPI";
    world.BeginDeletion("worker-0");
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(world.status().restarts.disruptions, i);
    world.VanishDeleted();
    world.Pass(seconds(300));
    ASSERT_TRUE(world.Settle());
    world.RunPods();
    ASSERT_TRUE(world.Settle());
  }

  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().restarts.last->reason, "Evicted");
  EXPECT_EQ(world.status().phase, Phase::kRunning);
}

TEST(RestartsTest, ADeletedPodIsReplacedUncounted) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.BeginDeletion("server-0");
  world.Exit("server-0", 143);

  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("create server-0"));
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

TEST(RestartsTest, APodOfALostNodeGoesAsSoonAsItsMemberIsFenced) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  for (const char* member : {"worker-0", "server-0"}) {
    world.pod(member).pod.disruption = "DeletionByTaintManager";
    world.BeginDeletion(member);
  }
  world.seen.coordinator->servers.clear();
  ASSERT_TRUE(world.Settle());
  world.Take();

  world.seen.coordinator->workers[0].is_alive = false;
  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-0 at once"));
}

TEST(RestartsTest, ACoordinatorOnALostNodeGoesWhenItDoesNotAnswer) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.pod("coordinator").pod.disruption = "DeletionByTaintManager";
  world.BeginDeletion("coordinator");
  world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());

  world.seen.coordinator.reset();
  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("delete coordinator at once"));
}

TEST(RestartsTest, AnEvictedServerDrainsAndIsReplacedAfterwards) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.pod("server-1").pod.disruption = "EvictionByEvictionAPI";
  world.BeginDeletion("server-1");
  world.seen.coordinator->shards_moving = 300;

  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(world.Settle());
    world.Pass(seconds(1));
  }
  EXPECT_THAT(world.Take(), IsEmpty());
  world.Exit("server-1", 143);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("create server-1"));
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().restarts.disruptions, 1);
}

TEST(RestartsTest, ANodeShutdownReplacesItsMembersUncounted) {
  World world(1, 1);
  world.spec().restart.backoff_limit = 0;
  ASSERT_TRUE(world.Start());
  world.Take();

  world.pod("worker-0").pod.disruption = "TerminationByKubelet";
  world.Exit("worker-0", 143);
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-0", "create worker-0"));
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().phase, Phase::kRunning);
}

// Nobody told Kubernetes: a program that ends so by itself could do it for ever.
TEST(RestartsTest, Exit143OfAPodThatIsNotDeletedCounts) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());

  ExitAndComeBack(world, "worker-0", 143);

  EXPECT_EQ(world.status().restarts.counted, 1);
}

TEST(RestartsTest, APodWhoseNodeIsGoneIsTakenOutOfTheWay) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.pod("worker-0").pod.disruption = "DeletionByTaintManager";
  world.BeginDeletion("worker-0");
  world.Pass(seconds(39));
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());

  world.Pass(seconds(1));
  world.Step();

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-0 at once"));
  EXPECT_EQ(world.status().restarts.last->reason, "NodeLost");
  EXPECT_EQ(world.status().restarts.disruptions, 1);
}

TEST(RestartsTest, ANewCoordinatorHasAHigherTermThanAnyBefore) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());

  ExitAndComeBack(world, "coordinator", 139);
  EXPECT_EQ(world.status().coordinator.term, 2);
  EXPECT_EQ(world.pod("coordinator").meta.labels.at(kTermLabel), "2");
  world.Vanish("coordinator");
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().coordinator.term, 3);
  EXPECT_TRUE(world.Has("server-0"));
  EXPECT_TRUE(world.Has("worker-0"));
}

TEST(RestartsTest, AMemberIsJudgedWhenTheCoordinatorHasSpoken) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 1);
  const std::optional<CoordinatorReport> report =
      std::exchange(world.seen.coordinator, std::nullopt);
  world.Take();

  const JobPlan plan = world.Step();
  EXPECT_THAT(world.Take(), IsEmpty());
  EXPECT_EQ(plan.status.restarts.counted, 0);
  EXPECT_EQ(plan.requeue_at, world.seen.now + seconds(2));
  EXPECT_EQ(world.Say("Degraded"), "True CoordinatorSilent");

  world.seen.coordinator = report;
  world.Step();
  EXPECT_EQ(world.status().restarts.counted, 1);
}

struct RuleRow {
  const char* name;
  JobRole role;
  int code;
  std::string reason;
  RestartAction action;
  std::string expected;
};

TEST(RestartsTest, TheFirstRuleThatMatchesDecides) {
  for (const RuleRow& row :
       {RuleRow{"final", JobRole::kWorker, 9, "", RestartAction::kFailJob, "True MemberFailed"},
        RuleRow{"ignored", JobRole::kWorker, 9, "", RestartAction::kIgnore, ""},
        RuleRow{"by reason",
                JobRole::kServer,
                137,
                "OOMKilled",
                RestartAction::kFailJob,
                "True MemberFailed"}}) {
    SCOPED_TRACE(row.name);
    World world(1, 2);
    pushpull::RestartRule rule{.role = row.role, .action = row.action};
    if (row.reason.empty()) {
      rule.exit_codes = pushpull::ExitCodeMatch{.in = {row.code}};
    } else {
      rule.reason = ExitReason::kOomKilled;
    }
    world.spec().restart.rules = {rule};
    ASSERT_TRUE(world.Start());

    world.Exit(row.role == JobRole::kServer ? "server-0" : "worker-0", row.code, row.reason);
    ASSERT_TRUE(world.Settle());

    EXPECT_EQ(world.Say("Failed"), row.expected);
    EXPECT_EQ(world.status().restarts.counted, 0);
  }
}

TEST(RestartsTest, AnIgnoredWorkerIsOverAndTheOthersFinishTheJob) {
  World world(1, 2);
  world.spec().restart.rules = {{.reason = ExitReason::kError, .action = RestartAction::kIgnore}};
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 1);
  ASSERT_TRUE(world.Settle());
  world.Exit("worker-1", 0);

  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
}

TEST(RestartsTest, AJobRestartRestartsAllCountsOnceAndRaisesTheTerm) {
  World world(2, 1);
  world.spec().restart.rules = {{.role = JobRole::kServer,
                                 .reason = ExitReason::kError,
                                 .action = RestartAction::kRestartJob}};
  ASSERT_TRUE(world.Start());
  world.Take();

  world.Exit("server-1", 1);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(),
              testing::UnorderedElementsAre(
                  "delete coordinator", "delete server-0", "delete server-1", "delete worker-0"));
  EXPECT_EQ(world.status().phase, Phase::kStarting);
  EXPECT_EQ(world.Say("Ready"), "False Restarting");
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());
  world.Pass(seconds(10));

  ASSERT_TRUE(world.Start());
  EXPECT_EQ(world.status().coordinator.term, 2);
  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(world.status().restarts.job_counted, 1);
  EXPECT_EQ(world.status().restarts.next_at, std::nullopt);
}

// server-1 is lost with the only copy of its shards, and the coordinator has failed the job.
void LoseShards(World& world, bool has_checkpoint) {
  world.Exit("server-1", 137);
  world.seen.coordinator->phase = pushpull::JobPhase::kFailed;
  world.seen.coordinator->failure = "server-1 is lost";
  world.seen.coordinator->lost_server = 1;
  world.seen.coordinator->can_resume = has_checkpoint;
}

TEST(RestartsTest, ALostServerRestartsAJobThatHasACheckpoint) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());
  world.Take();

  LoseShards(world, true);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kStarting);
  EXPECT_EQ(world.status().restarts.job_counted, 1);
  EXPECT_THAT(world.Take(), testing::SizeIs(4));
  world.VanishDeleted();
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Start());
}

TEST(RestartsTest, RulesDecideAboutALostServer) {
  for (const auto& [has_checkpoint, action, phase] :
       {std::tuple{false, RestartAction::kRestartJob, Phase::kStarting},
        {true, RestartAction::kFailJob, Phase::kFailed}}) {
    World world(2, 1);
    world.spec().restart.rules = {{.role = JobRole::kServer,
                                   .exit_codes = pushpull::ExitCodeMatch{.in = {137}},
                                   .action = action}};
    ASSERT_TRUE(world.Start());

    LoseShards(world, has_checkpoint);
    ASSERT_TRUE(world.Settle());

    EXPECT_EQ(world.status().phase, phase);
  }
}

TEST(RestartsTest, AServerWhoseEndIsNotToldIsJudgedAllTheSame) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());

  LoseShards(world, true);
  world.pod("server-1").pod.containers.clear();
  world.pod("server-1").pod.phase = PodPhase::kRunning;
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().restarts.job_counted, 0);
  world.seen.coordinator->failed_ago = seconds(10);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.job_counted, 1);
}

TEST(RestartsTest, ALostServerFailsAJobWithoutACheckpoint) {
  World world(2, 1);
  ASSERT_TRUE(world.Start());

  LoseShards(world, false);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True TrainingFailed");
}

TEST(RestartsTest, AnExitCodeAloneIsNotFinal) {
  for (const int code : {2, 3}) {
    World world(1, 1);
    ASSERT_TRUE(world.Start());

    world.Exit("worker-0", code);
    ASSERT_TRUE(world.Settle());

    EXPECT_EQ(world.status().restarts.counted, 1);
    EXPECT_EQ(world.Say("Failed"), "");
  }
}

TEST(RestartsTest, AnEndThatSaysSoIsFinal) {
  for (const std::string member : {"worker-0", "server-0"}) {
    World world(1, 1);
    ASSERT_TRUE(world.Start());

    world.Exit(member, 2);
    world.pod(member).pod.containers.front().end->message = "pushpull-final: unknown flag --epoch";
    ASSERT_TRUE(world.Settle());

    EXPECT_EQ(world.Say("Failed"), "True MemberFailed");
    EXPECT_THAT(world.Find("Failed")->message,
                HasSubstr("exited with code 2; the job fails without a restart: unknown flag"));
  }
}

// A job that has started, but made no step yet.
void ForgetSteps(World& world) {
  world.seen.coordinator->has_stepped = false;
  for (auto& [index, worker] : world.seen.coordinator->workers) worker.has_stepped = false;
}

void ExitWithTraceback(World& world, const std::string& member, const std::string& error) {
  world.Exit(member, 1);
  world.pod(member).pod.containers.front().end->message = absl::StrCat(
      "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n", error);
}

TEST(RestartsTest, AProgramThatEndsAlikeTwiceBeforeAnyStepCannotRun) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  for (const char* member : {"worker-0", "worker-1"}) {
    ForgetSteps(world);
    ExitWithTraceback(world, member, "NameError: name 'trian' is not defined");
  }
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.Say("Failed"), "");
  world.VanishDeleted();
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Settle());
  world.RunPods();
  ForgetSteps(world);

  ExitWithTraceback(world, "worker-1", "NameError: name 'trian' is not defined");
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True MemberFailed");
  EXPECT_EQ(world.Find("Failed")->message,
            "mnist-worker-1 exited with code 1 before the job's first step, as in the try before; "
            "the job fails because its program cannot run: NameError: name 'trian' is not defined");
  EXPECT_EQ(world.status().restarts.last->message, world.Find("Failed")->message);
}

TEST(RestartsTest, AResumedJobHasAllItsTries) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  ForgetSteps(world);
  ExitWithTraceback(world, "worker-0", "NameError: x");
  ASSERT_TRUE(world.Settle());
  world.spec().suspend = true;
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());
  world.spec().suspend = false;
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Start());
  ForgetSteps(world);

  ExitWithTraceback(world, "worker-0", "NameError: x");
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "");
}

// The coordinator that released it is gone, and the next one does not know it.
TEST(RestartsTest, AWorkerThatSaysThatItWasReleasedIsStartedAgain) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-1", 0);
  world.pod("worker-1").pod.containers.front().end->message = "pushpull-released\n";
  world.seen.coordinator->workers.erase(1);
  world.Take();

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-1"));
  EXPECT_EQ(world.status().restarts.counted, 0);
}

TEST(RestartsTest, AFailureAfterAReleaseIsAFailure) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-1", 1);
  world.pod("worker-1").pod.containers.front().end->message = "pushpull-released\n";

  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(world.Say("Failed"), "");
}

// A worker joins a job that trains, and says that it cannot.
void CannotJoin(World& world) {
  world.RunPods();
  world.seen.coordinator->workers[1].has_stepped = false;
  world.Exit("worker-1", 1);
  world.pod("worker-1").pod.containers.front().end->message = "pushpull-final: begins at step 0";
  ASSERT_TRUE(world.Settle());
}

TEST(RestartsTest, AWorkerThatSaysTwiceThatItCannotJoinIsLeftOut) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  CannotJoin(world);
  EXPECT_EQ(world.status().restarts.counted, 0);
  world.VanishDeleted();
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Settle());
  world.Take();

  CannotJoin(world);

  EXPECT_THAT(world.Take(), ElementsAre("ask without worker-1"));
  EXPECT_EQ(world.Say("Degraded"), "True WorkerLeftOut");
  EXPECT_EQ(world.Find("Degraded")->message,
            "mnist-worker-1 cannot join; the job goes on without it: begins at step 0");
  EXPECT_TRUE(world.Has("worker-1"));
}

TEST(RestartsTest, TheNextCoordinatorHearsWhichWorkersAreDone) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  world.Exit("worker-1", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), testing::Not(testing::Contains("ask done worker-1")));
  world.seen.coordinator->workers.erase(1);  // as it knows none but those that came to it

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("ask done worker-1"));
  EXPECT_TRUE(world.Has("worker-1"));
}

TEST(RestartsTest, WithoutALeftOutWorkerTheOthersFinishTheJob) {
  World world(1, 2);
  ASSERT_TRUE(world.Start());
  CannotJoin(world);
  world.VanishDeleted();
  world.Pass(seconds(10));
  ASSERT_TRUE(world.Settle());
  CannotJoin(world);

  world.Exit("worker-0", 0);
  world.seen.coordinator->phase = pushpull::JobPhase::kSucceeded;
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
}

TEST(RestartsTest, AProgramThatIsNotThereIsFinalAndSaysSo) {
  for (const bool has_image : {false, true}) {
    World world(1, 1);
    world.spec().image = has_image ? "registry/trainer:1" : "";
    ASSERT_TRUE(world.Start());

    world.Exit("worker-0", 128, "StartError");
    world.pod("worker-0").pod.containers.front().end->message =
        "exec: \"train.py\": executable file not found in $PATH";
    ASSERT_TRUE(world.Settle());

    EXPECT_EQ(world.Say("Failed"), "True MemberFailed");
    EXPECT_THAT(world.Find("Failed")->message,
                testing::AllOf(HasSubstr("could not be started"), HasSubstr("train.py")));
    EXPECT_EQ(absl::StrContains(world.Find("Failed")->message, "spec.image is not set"),
              !has_image);
  }
}

TEST(RestartsTest, ServersThatEndBecauseTheJobIsDoneAreNotRestarted) {
  World world(1, 1);
  ASSERT_TRUE(world.Start());
  world.Take();
  world.seen.coordinator->phase = pushpull::JobPhase::kSucceeded;
  world.Exit("server-0", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), IsEmpty());

  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  EXPECT_EQ(world.status().restarts, RestartsStatus{});
}

TEST(RestartsTest, ARoleHasALimitOfItsOwn) {
  World world(1, 2);
  world.spec().restart.backoff_limit = 1;
  world.spec().restart.role_limits.servers = 3;
  ASSERT_TRUE(world.Start());

  for (int i = 0; i < 3; ++i) ExitAndComeBack(world, "server-0", 1);
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  ExitAndComeBack(world, "worker-1", 1);
  world.Exit("worker-1", 1);
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Failed"), "True BackoffLimitExceeded");
}

}  // namespace
}  // namespace pushpull_operator
