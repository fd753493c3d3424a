// SPDX-License-Identifier: Apache-2.0
//
// A job that names a runtime, against an API server over HTTP.
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;

constexpr char kNamesShared[] = R"({"runtimeRef":{"name":"shared"}})";
constexpr char kShared[] = R"({"image":"i","servers":{"replicas":1},"workers":{"replicas":1}})";
const ObjectKey kWorkerPod{.object_namespace = "n", .name = "mnist-worker-0"};

bool HasBegun(const PlayedCluster& cluster) {
  return cluster.Status().phase == Phase::kRunning;
}

std::string ReasonOf(const PlayedCluster& cluster) {
  const std::vector<Condition> conditions = cluster.Status().conditions;
  const Condition* condition = FindCondition(conditions, "Reconciled");
  return condition == nullptr ? "" : condition->reason + ": " + condition->message;
}

bool IsNoting(const FakeRequest& request) {
  return request.method == "PATCH" && request.path.ends_with("/status") &&
         request.body.find("\"runtime\"") != std::string::npos;
}

TEST(RuntimeReconcileTest, WhatIsNotedOutlivesTheOperatorAndTheRuntime) {
  PlayedCluster cluster(kNamesShared);
  cluster.PutRuntime("shared", 1, kShared);
  ASSERT_TRUE(cluster.Until([&] { return HasBegun(cluster); }));
  cluster.server.Remove(TrainingRuntimeType(), {.object_namespace = "n", .name = "shared"});
  cluster.op = std::make_unique<PlayedOperator>(cluster);
  cluster.server.Remove(PodType(), kWorkerPod);

  ASSERT_TRUE(cluster.Until([&] { return cluster.pods["worker-0"].size() == 2; }));

  const json pod = cluster.server.Find(PodType(), kWorkerPod);
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "i");
  EXPECT_EQ(cluster.Status().runtime->generation, 1);
}

TEST(RuntimeReconcileTest, OneThatComesLaterIsAwaited) {
  PlayedCluster cluster(kNamesShared);
  ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_TRUE(ReasonOf(cluster).starts_with("RuntimeNotFound: ")) << ReasonOf(cluster);
  const int writes = cluster.num_writes();
  ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_EQ(cluster.num_writes(), writes);

  cluster.PutRuntime("shared", 1, kShared);

  ASSERT_TRUE(cluster.Until([&] { return HasBegun(cluster); }));
}

TEST(RuntimeReconcileTest, ARefusedOneIsToldAndTriedAgain) {
  PlayedCluster cluster(kNamesShared);
  cluster.PutRuntime("shared", 1, kShared);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    return IsNoting(request) ? Fault{.kind = Fault::Kind::kAnswer, .code = 422} : Fault{};
  });
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_TRUE(
      ReasonOf(cluster).starts_with("InvalidSpec: spec.runtimeRef.name: the "
                                    "TrainingRuntime shared cannot be used: "))
      << ReasonOf(cluster);
  int num_tries = 0;
  for (const FakeRequest& request : cluster.server.requests()) num_tries += IsNoting(request);
  EXPECT_EQ(num_tries, 1);
  cluster.server.InjectFaults([](const FakeRequest&) { return Fault{}; });

  cluster.now += std::chrono::seconds(31);

  ASSERT_TRUE(cluster.Until([&] { return HasBegun(cluster); }));
}

TEST(RuntimeReconcileTest, ARecordThatSomebodyChangesIsUndone) {
  PlayedCluster cluster(kNamesShared);
  cluster.PutRuntime("shared", 1, kShared);
  ASSERT_TRUE(cluster.Until([&] { return HasBegun(cluster); }));
  json job = cluster.Job();
  job["status"]["runtime"]["spec"]["image"] = "strange";
  cluster.server.Put(TrainingJobType(), {.object_namespace = "n", .name = "mnist"}, job);
  cluster.server.Remove(PodType(), kWorkerPod);

  ASSERT_TRUE(cluster.Until([&] { return cluster.pods["worker-0"].size() == 2; }));

  const json pod = cluster.server.Find(PodType(), kWorkerPod);
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "i");
  EXPECT_EQ(json::parse(cluster.Status().runtime->spec)["image"], "i");
}

}  // namespace
}  // namespace pushpull_operator
