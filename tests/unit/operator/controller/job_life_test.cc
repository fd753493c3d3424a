// SPDX-License-Identifier: Apache-2.0
//
// A whole life of a job against an API server over HTTP, and the same with the operator killed at
// each of its writes.
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;

constexpr char kLifeSpec[] = R"({"image":"i","servers":{"replicas":2},"checkpoint":{"claim":"c"}})";

// The same, with all of it from a runtime.
constexpr char kRuntimeLifeSpec[] = R"({"runtimeRef":{"name":"shared"}})";

// Every write without sanitizers; with them a life takes ten times as long, and what they look for
// does not depend on which write it is.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kWritesApart = 6;
#else
constexpr int kWritesApart = 1;
#endif

bool IsIn(const PlayedCluster& cluster, Phase phase) {
  return cluster.Status().phase == phase;
}

int CountEvents(const PlayedCluster& cluster) {
  int count = 0;
  for (const FakeRequest& request : cluster.server.requests())
    count += request.path.ends_with("/events") ? 1 : 0;
  return count;
}

// From the first pod to the last: up, down, suspended, resumed, done.
void LiveThrough(PlayedCluster& cluster) {
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.Change([](json& spec) { spec["servers"]["replicas"] = 4; });
  ASSERT_TRUE(cluster.Until(
      [&] { return IsIn(cluster, Phase::kRunning) && cluster.Status().servers.ready == 4; }));
  cluster.Change([](json& spec) { spec["servers"]["replicas"] = 1; });
  ASSERT_TRUE(cluster.Until(
      [&] { return IsIn(cluster, Phase::kRunning) && cluster.Status().servers.replicas == 1; }));
  cluster.Change([](json& spec) { spec["suspend"] = true; });
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kSuspended); }));
  EXPECT_EQ(cluster.Status().checkpoint->step > 0, true);
  cluster.Change([](json& spec) { spec["suspend"] = false; });
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.ExitPod("worker-0", 0);
  ASSERT_TRUE(cluster.Until([&] {
    return IsIn(cluster, Phase::kSucceeded) && !cluster.Has("coordinator") &&
           !cluster.Has("server-0");
  }));
}

TEST(JobLifeTest, AJobRunsFromItsFirstPodToItsLast) {
  PlayedCluster cluster(kLifeSpec);

  LiveThrough(cluster);

  EXPECT_TRUE(cluster.Has("worker-0"));
  EXPECT_EQ(cluster.Status().restarts, RestartsStatus{});
  EXPECT_EQ(cluster.Status().coordinator.term, 2);
  EXPECT_EQ(cluster.coordinator.endpoint.address, "10.0.0.7:7170");
  EXPECT_NE(cluster.coordinator.endpoint.tls, nullptr);
  EXPECT_FALSE(
      cluster.server.Find(ServiceType(), {.object_namespace = "n", .name = "mnist-coordinator"})
          .is_null());
  EXPECT_GE(CountEvents(cluster), 6);
}

// "Killed" is right before a write is done, or right after it, with nothing more heard or said.
TEST(JobLifeTest, ACrashAtAnyWriteLeadsToTheSameEnd) {
  PlayedCluster undisturbed(kRuntimeLifeSpec);
  undisturbed.PutRuntime("shared", 1, kLifeSpec);
  LiveThrough(undisturbed);
  undisturbed.Play();
  ASSERT_GT(undisturbed.num_writes(), 30);

  for (const Fault::Kind side : {Fault::Kind::kDropBefore, Fault::Kind::kDropAfter}) {
    for (int write = 1; write <= undisturbed.num_writes(); write += kWritesApart) {
      SCOPED_TRACE(testing::Message() << "write " << write << ", side " << static_cast<int>(side));
      PlayedCluster cluster(kRuntimeLifeSpec);
      cluster.PutRuntime("shared", 1, kLifeSpec);
      cluster.KillAtWrite(write, side);
      LiveThrough(cluster);
      if (HasFatalFailure()) return;
      cluster.Play();

      EXPECT_LE(cluster.num_kills(), 1);
      EXPECT_EQ(cluster.Status().phase, Phase::kSucceeded);
      EXPECT_EQ(cluster.Status().restarts, RestartsStatus{});
      EXPECT_TRUE(cluster.Has("worker-0"));
      EXPECT_EQ(cluster.coordinator.certificates.size(), 1U);
      for (const auto& [member, uids] : undisturbed.pods) {
        EXPECT_EQ(cluster.pods[member].size(), uids.size()) << member << " was made more than once";
      }
    }
  }
}

}  // namespace
}  // namespace pushpull_operator
