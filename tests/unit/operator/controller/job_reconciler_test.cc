// SPDX-License-Identifier: Apache-2.0
//
// What is decided, carried out against an API server over HTTP.
#include "operator/controller/job_reconciler.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;

constexpr char kSpec[] =
    R"({"image":"i","servers":{"replicas":2},"checkpoint":{"uri":"file:///c"}})";

bool IsIn(const PlayedCluster& cluster, Phase phase) {
  return cluster.Status().phase == phase;
}

int CountPosts(const PlayedCluster& cluster, const std::string& plural) {
  int count = 0;
  for (const FakeRequest& request : cluster.server.requests())
    count += request.method == "POST" && request.path.ends_with("/" + plural) ? 1 : 0;
  return count;
}

TEST(JobReconcilerTest, ACacheThatIsBehindIsNotPlannedUpon) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.op->Step().ok());
  const int writes = cluster.num_writes();
  EXPECT_EQ(CountPosts(cluster, "pods"), 1);

  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cluster.op->StepWithoutLooking().ok());

  EXPECT_EQ(cluster.num_writes(), writes);
}

TEST(JobReconcilerTest, OfTwoOperatorsThatSeeTheSameOneActs) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  PlayedOperator second(cluster);
  cluster.ExitPod("worker-0", 1);
  ASSERT_TRUE(cluster.op->Look().ok());
  ASSERT_TRUE(second.Look().ok());

  EXPECT_TRUE(cluster.op->StepWithoutLooking().ok());
  EXPECT_TRUE(absl::IsAborted(second.StepWithoutLooking()));

  EXPECT_EQ(cluster.Status().restarts.counted, 1);
  EXPECT_EQ(cluster.server.CountRequests("DELETE"), 1);
}

TEST(JobReconcilerTest, AConflictIsToldAsOneAndHasNoConsequences) {
  PlayedCluster cluster(kSpec);
  bool has_changed = false;
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    const bool is_conflict = request.method == "PATCH" && !std::exchange(has_changed, true);
    return is_conflict ? Fault{.kind = Fault::Kind::kAnswer, .code = 409} : Fault{};
  });

  EXPECT_TRUE(absl::IsAborted(cluster.op->Step()));
  EXPECT_EQ(CountPosts(cluster, "pods"), 0);
  EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(CountPosts(cluster, "pods"), 1);
  EXPECT_EQ(cluster.Status().coordinator.term, 1);
}

TEST(JobReconcilerTest, APodThatTheServerRefusesFailsTheJobWithoutAHotLoop) {
  PlayedCluster cluster(kSpec);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_pod = request.method == "POST" && request.path.ends_with("/pods");
    return is_pod ? Fault{.kind = Fault::Kind::kAnswer, .code = 422} : Fault{};
  });

  EXPECT_TRUE(absl::IsInvalidArgument(cluster.op->Step()));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.Status().phase, Phase::kFailed);
  EXPECT_EQ(FindCondition(cluster.Status().conditions, "Failed")->reason, "InvalidSpec");
  EXPECT_EQ(CountPosts(cluster, "pods"), 1);
}

TEST(JobReconcilerTest, AStatusOfANewerVersionKeepsItsFields) {
  PlayedCluster cluster(kSpec);
  json job = cluster.Job();
  job["status"]["ofANewerVersion"] = 1;
  cluster.server.Put(TrainingJobType(), {.object_namespace = "n", .name = "mnist"}, job);

  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));

  EXPECT_EQ(cluster.Job()["status"]["ofANewerVersion"], 1);
}

TEST(JobReconcilerTest, AJobThatIsGoneIsForgotten) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.op->Step().ok());
  const int writes = cluster.num_writes();
  cluster.server.Remove(TrainingJobType(), {.object_namespace = "n", .name = "mnist"});

  EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.num_writes(), writes);
}

}  // namespace
}  // namespace pushpull_operator
