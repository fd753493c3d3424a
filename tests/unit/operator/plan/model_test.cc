// SPDX-License-Identifier: Apache-2.0
//
// Random lives of a job: pods run, end, are evicted, deleted and vanish; the user scales, suspends
// and resumes; the coordinator falls silent; the operator dies between any two writes and sees pods
// late. Whatever happens, what a plan may never do does not happen, and every job comes to an end.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "tests/fakes/seeds.h"
#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using pushpull::JobRole;
using pushpull::RestartAction;

using std::chrono::seconds;

constexpr uint64_t kSeeds = 300;
constexpr int kSteps = 150;

class Life {
 public:
  explicit Life(uint64_t seed)
      : random_(static_cast<unsigned>(seed)),
        world_(1 + static_cast<int>(seed % 3), 1 + static_cast<int>(seed / 3 % 3)) {
    world_.spec().restart.backoff_limit = Pick(6);
    world_.spec().restart.success_policy = static_cast<pushpull::SuccessPolicy>(Pick(3));
    if (Pick(2) == 0) world_.spec().checkpoint.emplace().claim = "c";
    if (Pick(3) == 0) world_.spec().start_deadline = seconds(3000);
    if (Pick(3) == 0) {
      // A job cannot go on without the other roles.
      world_.spec().restart.rules = {
          {.role = JobRole::kWorker,
           .exit_codes = pushpull::ExitCodeMatch{.in = {137}},
           .action = Pick(2) == 0 ? RestartAction::kRestartJob : RestartAction::kIgnore}};
    }
  }

  void Run() {
    for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) {
      Happen();
      Plan(Pick(8) == 0 ? std::optional<int>(Pick(4)) : std::nullopt);
    }
    ComeToAnEnd();
  }

 private:
  int Pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

  std::string AnyPod() {
    if (world_.pods.empty()) return "";
    auto pod = world_.pods.begin();
    std::advance(pod, Pick(static_cast<int>(world_.pods.size())));
    return pod->first.substr(std::string("mnist-").size());
  }

  void HappenToAPod() {
    const std::string member = AnyPod();
    if (member.empty()) return;
    ObservedPod& pod = world_.pod(member);
    switch (Pick(4)) {
      case 0:
      case 1: {
        static constexpr int kCodes[] = {0, 1, 1, 2, 137, 143};
        if (pod.pod.phase == PodPhase::kRunning) world_.Exit(member, kCodes[Pick(6)]);
        return;
      }
      case 2:
        pod.pod.disruption = "EvictionByEvictionAPI";
        [[fallthrough]];
      default:
        if (!pod.meta.is_deleting) world_.BeginDeletion(member);
    }
  }

  void EndSilence() {
    if (silent_ && world_.Has("coordinator")) world_.seen.coordinator = silent_;
    silent_.reset();
    world_.MeetMembers();
  }

  void HappenToTheCoordinator() {
    if (!world_.seen.coordinator) {
      EndSilence();
      return;
    }
    CoordinatorReport& report = *world_.seen.coordinator;
    switch (Pick(4)) {
      case 0:
        silent_ = std::exchange(world_.seen.coordinator, std::nullopt);
        return;
      case 1:
        report.shards_moving = Pick(2) * 100;
        return;
      case 2:
        report.saves_finished = report.saves_requested;
        if (Pick(2) == 0) report.saves_succeeded = report.saves_finished;
        return;
      default:
        world_.AgreeToSize();
    }
  }

  void HappenToTheSpec() {
    pushpull::TrainingJobSpec& spec = world_.spec();
    world_.Bump();
    switch (Pick(4)) {
      case 0:
        spec.suspend = !spec.suspend;
        if (!spec.suspend) world_.seen.save.reset();
        return;
      case 1:
        spec.workers.replicas = 1 + Pick(4);
        return;
      default:
        spec.servers.replicas = 1 + Pick(4);
    }
  }

  void Happen() {
    earlier_ = world_.pods;
    switch (Pick(10)) {
      case 0:
      case 1:
      case 2:
        return world_.RunPods();
      case 3:
      case 4:
        return HappenToAPod();
      case 5:
        return world_.VanishDeleted();
      case 6:
        return HappenToTheCoordinator();
      case 7:
        if (Pick(4) == 0) HappenToTheSpec();
        return;
      default:
        return world_.Pass(seconds(Pick(60)));
    }
  }

  void Plan(std::optional<int> crash_after) {
    const TrainingJobStatus before = world_.status();
    const std::map<std::string, ObservedPod> pods = world_.pods;
    const bool is_late = Pick(10) == 0;
    if (is_late) world_.SeeLate(earlier_);
    const JobPlan plan = world_.Step(crash_after);
    if (crash_after == 0) return;
    CheckStatus(before, plan.status);
    for (const Action& action : plan.actions) {
      if (const auto* create = std::get_if<CreatePod>(&action)) {
        CheckCreate(before, plan, *create, pods, is_late);
      } else if (const auto* remove = std::get_if<DeletePod>(&action)) {
        CheckDelete(plan, *remove, pods);
      }
    }
    const bool has_no_pods =
        plan.status.phase == Phase::kSuspended || plan.status.phase == Phase::kPending;
    EXPECT_TRUE(is_late || !has_no_pods || world_.pods.empty());
  }

  void CheckStatus(const TrainingJobStatus& before, const TrainingJobStatus& now) {
    const bool was_over = before.phase == Phase::kSucceeded || before.phase == Phase::kFailed;
    EXPECT_TRUE(!was_over || now.phase == before.phase);
    EXPECT_FALSE(IsTrue(now.conditions, "Complete") && IsTrue(now.conditions, "Failed"));
    EXPECT_EQ(IsTrue(now.conditions, "Complete"), now.phase == Phase::kSucceeded);
    EXPECT_EQ(IsTrue(now.conditions, "Failed"), now.phase == Phase::kFailed);
    EXPECT_GE(now.coordinator.term, before.coordinator.term);
    EXPECT_LE(now.restarts.job_counted, world_.spec().restart.backoff_limit);
    EXPECT_GE(now.restarts.counted, before.restarts.counted);
    EXPECT_GE(now.restarts.disruptions, before.restarts.disruptions);
    for (const MemberRestart& member : now.restarts.members) {
      EXPECT_LE(member.counted, world_.spec().restart.backoff_limit) << member.pod;
      counted_uids_.insert(member.uid);
    }
    // Each pod's end is counted once, however often it is seen; that of one that never was ready
    // may not be counted at all.
    EXPECT_LE(now.restarts.counted + now.restarts.disruptions,
              static_cast<int64_t>(counted_uids_.size()));
  }

  static bool IsHeld(const TrainingJobStatus& status) {
    const Condition* suspended = FindCondition(status.conditions, "Suspended");
    return suspended != nullptr && suspended->reason != "Stopping" &&
           suspended->reason != "Suspended";
  }

  void CheckCreate(const TrainingJobStatus& before,
                   const JobPlan& plan,
                   const CreatePod& create,
                   const std::map<std::string, ObservedPod>& pods,
                   bool is_late) {
    const std::string name = PodName("mnist", create.member);
    EXPECT_TRUE(is_late || !pods.contains(name)) << name << " is made twice";
    // A job that is to be suspended stays whole until it is saved.
    EXPECT_TRUE(!world_.spec().suspend || IsHeld(plan.status));
    EXPECT_NE(plan.status.phase, Phase::kSucceeded);
    EXPECT_NE(plan.status.phase, Phase::kFailed);
    EXPECT_NE(plan.status.phase, Phase::kPending);
    if (create.member.role != JobRole::kCoordinator) return;
    EXPECT_GT(create.term, before.coordinator.term);
    EXPECT_EQ(create.term, plan.status.coordinator.term);
  }

  // A server that holds shards of a job that goes on is nobody's to delete.
  void CheckDelete(const JobPlan& plan,
                   const DeletePod& remove,
                   const std::map<std::string, ObservedPod>& pods) {
    const auto pod = pods.find(remove.name);
    if (pod == pods.end() || pod->second.meta.uid != remove.uid) return;
    const bool goes_on =
        plan.status.phase == Phase::kRunning || plan.status.phase == Phase::kScaling;
    const bool has_ended =
        pod->second.pod.phase == PodPhase::kFailed || pod->second.pod.phase == PodPhase::kSucceeded;
    if (!goes_on || world_.spec().suspend || plan.status.restarts.next_at || has_ended) return;
    const MemberId member = *MemberOf(pod->second.meta.labels);
    if (member.role != JobRole::kServer || pod->second.meta.is_deleting) return;
    EXPECT_FALSE(world_.seen.coordinator && world_.seen.coordinator->servers.contains(member.index))
        << remove.name << " still holds shards";
  }

  bool IsOver() const {
    return world_.status().phase == Phase::kSucceeded || world_.status().phase == Phase::kFailed;
  }

  // Everybody does what they should: the job ends.
  void ComeToAnEnd() {
    if (world_.spec().suspend) world_.seen.save.reset();
    world_.spec().suspend = false;
    for (int i = 0; i < 200 && !IsOver() && !testing::Test::HasFailure(); ++i) {
      earlier_ = world_.pods;
      if (!world_.seen.coordinator) EndSilence();
      if (world_.seen.coordinator) {
        world_.AgreeToSize();
        world_.seen.coordinator->shards_moving = 0;
        world_.seen.coordinator->saves_finished = world_.seen.coordinator->saves_requested;
        world_.seen.coordinator->saves_succeeded = world_.seen.coordinator->saves_finished;
      }
      world_.VanishDeleted();
      world_.RunPods();
      if (i > 50) FinishWorkers();
      Plan(std::nullopt);
      world_.Pass(seconds(60));
    }
    EXPECT_TRUE(IsOver()) << "phase " << NameOf(*world_.status().phase);
  }

  void FinishWorkers() {
    for (auto& [name, pod] : world_.pods) {
      const MemberId member = *MemberOf(pod.meta.labels);
      if (member.role == JobRole::kWorker && pod.pod.phase == PodPhase::kRunning)
        world_.Exit(absl::StrCat("worker-", member.index), 0);
    }
  }

  std::minstd_rand random_;
  World world_;
  std::map<std::string, ObservedPod> earlier_;
  std::optional<CoordinatorReport> silent_;
  std::set<std::string> counted_uids_;
};

TEST(PlanModelTest, WhateverHappensNothingForbiddenDoesAndTheJobEnds) {
  const pushpull::Seeds seeds = pushpull::SeedsToRun(kSeeds);
  for (uint64_t seed = seeds.first; seed < seeds.end() && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Life(seed).Run();
  }
}

}  // namespace
}  // namespace pushpull_operator
