// SPDX-License-Identifier: Apache-2.0
//
// How Kubernetes tells of a member's end.
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/plan/parts.h"

namespace pushpull_operator {
namespace {

using pushpull::ExitReason;
using pushpull::JobRole;

ObservedPod EndedPod(PodPhase phase, std::optional<ContainerEnd> end) {
  ObservedPod pod;
  pod.meta.key.name = "mnist-worker-0";
  pod.pod.phase = phase;
  pod.pod.containers = {{.name = "worker", .end = std::move(end)}};
  return pod;
}

constexpr MemberId kWorker{.role = JobRole::kWorker};

TEST(MemberEndTest, ThePlatformsReasonsBecomeThoseOfTheRules) {
  struct Row {
    std::string condition, reason;
    std::optional<ExitReason> expected;
  };
  for (const Row& row : {Row{"PreemptionByScheduler", "", ExitReason::kPreempted},
                         Row{"DeletionByTaintManager", "", ExitReason::kNodeLost},
                         Row{"DeletionByPodGC", "", ExitReason::kNodeLost},
                         Row{"EvictionByEvictionAPI", "", ExitReason::kEvicted},
                         Row{"TerminationByKubelet", "", ExitReason::kEvicted},
                         Row{"OfANewerKubernetes", "", ExitReason::kEvicted},
                         Row{"", "Evicted", ExitReason::kEvicted},
                         Row{"", "NodeLost", ExitReason::kNodeLost},
                         Row{"", "OutOfcpu", ExitReason::kError}}) {
    ObservedPod pod = EndedPod(PodPhase::kFailed, std::nullopt);
    pod.pod.disruption = row.condition;
    pod.pod.reason = row.reason;

    EXPECT_EQ(EndOf(pod, kWorker).value().exit.reason, row.expected) << row.condition << row.reason;
  }
}

TEST(MemberEndTest, AContainerThatItsNodeLostIsNoFailure) {
  for (const char* reason : {"Unknown", "ContainerStatusUnknown"}) {
    const ObservedPod pod =
        EndedPod(PodPhase::kFailed, ContainerEnd{.exit_code = 255, .reason = reason});

    const MemberEnd end = EndOf(pod, kWorker).value();

    EXPECT_EQ(end.exit.reason, ExitReason::kNodeLost) << reason;
    EXPECT_TRUE(end.is_disruption()) << reason;
  }
  // A program may end with the same code.
  const ObservedPod own =
      EndedPod(PodPhase::kFailed, ContainerEnd{.exit_code = 255, .reason = "Error"});
  EXPECT_FALSE(EndOf(own, kWorker).value().is_disruption());
}

TEST(MemberEndTest, AServerWasReadyIfItsConditionChangedAfterItsStart) {
  constexpr MemberId kServer{.role = JobRole::kServer};
  const WallTime start{seconds(100)};
  ObservedPod pod = EndedPod(PodPhase::kFailed, ContainerEnd{.exit_code = 3, .started = start});
  pod.pod.containers.front().name = "server";
  EXPECT_TRUE(WasReady(pod, kServer, nullptr, start)) << "nobody says when it became unready";

  pod.pod.unready_since = start - seconds(1);
  EXPECT_FALSE(WasReady(pod, kServer, nullptr, start));
  pod.pod.unready_since = start + seconds(1);
  EXPECT_TRUE(WasReady(pod, kServer, nullptr, start));
}

TEST(MemberEndTest, AWorkerWasReadyIfItJoinedAfterItsPodCame) {
  const WallTime now{seconds(1000)};
  ObservedPod pod = EndedPod(PodPhase::kFailed, ContainerEnd{.exit_code = 3});
  pod.pod.creation_time = now - seconds(50);

  EXPECT_FALSE(WasReady(pod, kWorker, nullptr, now)) << "the coordinator has never heard of it";
  const WorkerReport before{.joined_ago = seconds(60)};
  EXPECT_FALSE(WasReady(pod, kWorker, &before, now));
  const WorkerReport since{.joined_ago = seconds(40)};
  EXPECT_TRUE(WasReady(pod, kWorker, &since, now));
}

TEST(MemberEndTest, AContainersEndIsTheMembersEnd) {
  const WallTime start{seconds(100)};
  const ObservedPod pod = EndedPod(PodPhase::kFailed,
                                   ContainerEnd{.exit_code = 137,
                                                .reason = "OOMKilled",
                                                .started = start,
                                                .finished = start + seconds(70)});

  const MemberEnd end = EndOf(pod, kWorker).value();

  EXPECT_EQ(end.exit.reason, ExitReason::kOomKilled);
  EXPECT_EQ(end.exit.ran_for, seconds(70));
  EXPECT_EQ(end.code, 137);
  EXPECT_FALSE(end.is_disruption());
}

TEST(MemberEndTest, TheLastLineOfAFailedProgramSaysWhy) {
  const auto detail_of = [](int code, const std::string& message) {
    return EndOf(EndedPod(PodPhase::kFailed, ContainerEnd{.exit_code = code, .message = message}),
                 kWorker)
        .value()
        .detail;
  };

  EXPECT_EQ(detail_of(1, "reading\nno such file: /data\n\n"), "no such file: /data");
  EXPECT_EQ(detail_of(1, "no such file"), "no such file");
  EXPECT_EQ(detail_of(1, std::string(2000, 'x')), std::string(297, 'x') + "...");
  EXPECT_EQ(detail_of(1, "a\n\x1b[2Jb\r"), "\\x1b[2Jb");
  EXPECT_EQ(detail_of(1, ""), "");
  EXPECT_EQ(detail_of(0, "well"), "");
}

TEST(MemberEndTest, AContainerBesideItDoesNotKeepAMemberAlive) {
  ObservedPod pod = EndedPod(PodPhase::kRunning, ContainerEnd{.exit_code = 0});
  pod.pod.containers.push_back({.name = "logs", .running_since = WallTime{}});

  EXPECT_EQ(EndOf(pod, kWorker).value().reason, "Completed");
}

TEST(MemberEndTest, AnInitContainerThatFailedIsNamed) {
  ObservedPod pod = EndedPod(PodPhase::kFailed, std::nullopt);
  pod.pod.containers.insert(pod.pod.containers.begin(),
                            {.name = "fetch",
                             .is_init = true,
                             .end = ContainerEnd{.exit_code = 4, .message = "no data"}});

  const MemberEnd end = EndOf(pod, kWorker).value();

  EXPECT_EQ(end.exit.exit_code, 4);
  EXPECT_EQ(end.detail, "container fetch failed no data");
}

TEST(MemberEndTest, WhoMayStillRunHasNotEnded) {
  EXPECT_EQ(EndOf(EndedPod(PodPhase::kRunning, std::nullopt), kWorker).has_value(), false);
  EXPECT_EQ(EndOf(EndedPod(PodPhase::kPending, std::nullopt), kWorker).has_value(), false);
  ObservedPod deleted = EndedPod(PodPhase::kFailed, ContainerEnd{.exit_code = 143});
  deleted.meta.is_deleting = true;
  EXPECT_FALSE(EndOf(deleted, kWorker).has_value());
  ObservedPod marked = EndedPod(PodPhase::kRunning, std::nullopt);
  marked.pod.disruption = "PreemptionByScheduler";
  EXPECT_FALSE(EndOf(marked, kWorker).has_value());
}

}  // namespace
}  // namespace pushpull_operator
