// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/worker_scaler.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;

constexpr char kScaledSpec[] =
    R"({"image":"i","servers":{"replicas":1},"workers":{"replicas":1,"maxReplicas":4}})";
const ObjectKey kKey{.object_namespace = "n", .name = "mnist"};

json Workers(const PlayedCluster& cluster) {
  return cluster.server.Find(TrainingJobWorkersType(), kKey);
}

int JobReplicas(const PlayedCluster& cluster) {
  return cluster.Job()["spec"]["workers"]["replicas"].get<int>();
}

bool Runs(const PlayedCluster& cluster) {
  return cluster.Status().phase == Phase::kRunning;
}

// As the API server does it for a write of /scale.
void Scale(PlayedCluster& cluster, int replicas) {
  json workers = Workers(cluster);
  workers["spec"]["replicas"] = replicas;
  workers["metadata"]["generation"] = workers["metadata"].value("generation", 1) + 1;
  cluster.server.Put(TrainingJobWorkersType(), kKey, workers);
}

bool HasEvent(const PlayedCluster& cluster, const std::string& words) {
  for (const FakeRequest& request : cluster.server.requests()) {
    const bool is_event = request.method == "POST" && request.path.ends_with("/events");
    if (is_event && request.body.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(WorkerScalerTest, AJobHasOneThatItOwnsAndWhichCountsItsPods) {
  PlayedCluster cluster(kScaledSpec);

  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cluster.op->Step().ok());

  const json workers = Workers(cluster);
  EXPECT_EQ(workers["spec"], json({{"replicas", 1}, {"minReplicas", 1}, {"maxReplicas", 4}}));
  EXPECT_EQ(workers["metadata"]["ownerReferences"][0]["uid"], cluster.Job()["metadata"]["uid"]);
  EXPECT_EQ(workers["status"]["replicas"], 1);
  EXPECT_EQ(workers["status"]["agreedReplicas"], 1);
  EXPECT_EQ(workers["status"]["selector"],
            "pushpull.dev/job=mnist,app.kubernetes.io/component=worker");
}

TEST(WorkerScalerTest, ANumberThatIsScaledToBecomesTheJobs) {
  PlayedCluster cluster(kScaledSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));

  Scale(cluster, 3);

  ASSERT_TRUE(cluster.Until([&] { return Workers(cluster)["status"]["agreedReplicas"] == 3; }));
  EXPECT_EQ(JobReplicas(cluster), 3);
  ASSERT_TRUE(cluster.Until([&] { return cluster.coordinator.report.desired_workers == 3; }));
}

TEST(WorkerScalerTest, AChangeOfTheJobReachesIt) {
  PlayedCluster cluster(kScaledSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));

  cluster.Change([](json& spec) { spec["workers"]["replicas"] = 2; });

  ASSERT_TRUE(cluster.Until([&] { return Workers(cluster)["status"]["agreedReplicas"] == 2; }));
  EXPECT_EQ(Workers(cluster)["spec"]["replicas"], 2);
  EXPECT_EQ(JobReplicas(cluster), 2);
}

TEST(WorkerScalerTest, WhatTheApiServerRefusesIsTakenBackAndTold) {
  PlayedCluster cluster(kScaledSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_job = request.method == "PATCH" && request.path.ends_with("/trainingjobs/mnist");
    return is_job ? Fault{.kind = Fault::Kind::kAnswer, .code = 422} : Fault{};
  });

  Scale(cluster, 3);

  ASSERT_TRUE(cluster.Until([&] { return Workers(cluster)["spec"]["replicas"] == 1; }));
  EXPECT_EQ(JobReplicas(cluster), 1);
  EXPECT_TRUE(HasEvent(cluster, "scaled to 3 workers, which the job cannot have; it stays at 1"));
}

TEST(WorkerScalerTest, OneOfAnotherOwnerIsReportedAndTheJobRuns) {
  PlayedCluster cluster(kScaledSpec);
  const json foreign{{"metadata", {{"generation", 1}}}, {"spec", {{"replicas", 4}}}};
  cluster.server.Put(TrainingJobWorkersType(), kKey, foreign);

  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));

  EXPECT_EQ(Workers(cluster)["spec"], foreign["spec"]);
  EXPECT_EQ(JobReplicas(cluster), 1);
  bool is_told = false;
  for (const Condition& condition : cluster.Status().conditions)
    is_told |= condition.type == "Reconciled" && condition.reason == "NameConflict";
  EXPECT_TRUE(is_told);
}

TEST(WorkerScalerTest, NumbersThatNobodyNamedAreWrittenIntoTheJob) {
  PlayedCluster cluster(R"({"runtimeRef":{"name":"shared"}})");
  cluster.PutRuntime("shared", 1, R"({"image":"i","servers":{"replicas":2}})");

  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));

  EXPECT_EQ(cluster.Job()["spec"],
            json({{"runtimeRef", {{"name", "shared"}}},
                  {"servers", {{"replicas", 2}}},
                  {"workers", {{"replicas", 1}}}}));
}

TEST(WorkerScalerTest, AJobRunsWhereItsNumbersCannotBeWritten) {
  constexpr char kSpec[] = R"({"runtimeRef":{"name":"shared"},"servers":{"replicas":2}})";
  PlayedCluster cluster(kSpec);
  cluster.PutRuntime("shared", 1, R"({"image":"i","workers":{"replicas":1}})");
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_job = request.method == "PATCH" && request.path.ends_with("/trainingjobs/mnist");
    return is_job ? Fault{.kind = Fault::Kind::kAnswer, .code = 422} : Fault{};
  });

  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));

  EXPECT_EQ(cluster.Job()["spec"], json::parse(kSpec));
}

TEST(WorkerScalerTest, OneThatIsDeletedIsThereAgain) {
  PlayedCluster cluster(kScaledSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
  cluster.server.Remove(TrainingJobWorkersType(), kKey);

  ASSERT_TRUE(cluster.Until([&] { return !Workers(cluster).is_null(); }));
}

}  // namespace
}  // namespace pushpull_operator
