// SPDX-License-Identifier: Apache-2.0
//
// What others do to the objects of a running job, and that it is undone.
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "operator/children/job_objects.h"
#include "operator/children/tls_secret.h"
#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr char kHealedSpec[] = R"({"image":"i","servers":{"replicas":1}})";

bool Runs(const PlayedCluster& cluster) {
  return cluster.Status().phase == Phase::kRunning;
}

ObjectKey ChildKey(const std::string& name) {
  return {.object_namespace = "n", .name = name};
}

// Without what the API server counts.
json Content(json object) {
  for (const char* field : {"uid", "resourceVersion"}) object["metadata"].erase(field);
  return object;
}

int CountEvents(const PlayedCluster& cluster) {
  int count = 0;
  for (const FakeRequest& request : cluster.server.requests()) {
    const bool is_event = request.method == "POST" && request.path.ends_with("/events");
    if (is_event && json::parse(request.body)["reason"] == "Healed") ++count;
  }
  return count;
}

class HealingTest : public testing::TestWithParam<std::pair<const char*, ResourceType>> {
 protected:
  json Find(const PlayedCluster& cluster) { return cluster.server.Find(type, ChildKey(name)); }
  // As in a running operator, where the watch reports the object's last version by then.
  static void Settle(PlayedCluster& cluster) {
    ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(cluster.op->Step().ok());
  }
  const std::string name = GetParam().first;
  const ResourceType type = GetParam().second;
};

TEST_P(HealingTest, WhatIsDeletedIsThereAgain) {
  PlayedCluster cluster(kHealedSpec);
  Settle(cluster);
  const json before = Find(cluster);
  cluster.server.Remove(type, ChildKey(name));
  cluster.now += seconds(3);

  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(Content(Find(cluster)), Content(before));
  EXPECT_EQ(CountEvents(cluster), 1);
  EXPECT_TRUE(Runs(cluster));
}

TEST_P(HealingTest, WhatIsChangedIsAsItWas) {
  PlayedCluster cluster(kHealedSpec);
  Settle(cluster);
  const json before = Find(cluster);
  json odd = before;
  odd["metadata"]["labels"]["pushpull.dev/job"] = "other";
  odd["spec"]["selector"] = {{"odd", "yes"}};
  odd["spec"]["more"] = {{"odd", "yes"}};
  cluster.server.Put(type, ChildKey(name), odd);

  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(Content(Find(cluster)), Content(before));
  EXPECT_EQ(CountEvents(cluster), 1);
}

TEST_P(HealingTest, AnOperatorThatStartsAnewUndoesWhatItMissed) {
  PlayedCluster cluster(kHealedSpec);
  Settle(cluster);
  const json before = Find(cluster);
  json odd = before;
  odd["spec"]["more"] = {{"odd", "yes"}};
  cluster.server.Put(type, ChildKey(name), odd);
  cluster.op = std::make_unique<PlayedOperator>(cluster);
  ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_NE(Content(Find(cluster)), Content(before));

  cluster.now += std::chrono::minutes(10);
  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(Content(Find(cluster)), Content(before));
}

TEST_P(HealingTest, WhoChangesItAgainAndAgainCostsAFewWrites) {
  PlayedCluster cluster(kHealedSpec);
  Settle(cluster);
  const int before = cluster.num_writes();

  for (int second = 0; second < 60; ++second) {
    json odd = Find(cluster);
    odd["spec"]["more"] = {{"at", second}};
    cluster.server.Put(type, ChildKey(name), odd);
    ASSERT_TRUE(cluster.op->Step().ok());
    cluster.now += seconds(1);
  }

  // A write and its event each, after 0, 1, 3, 7, 15 and 31 s.
  EXPECT_LE(cluster.num_writes() - before, 16);
  EXPECT_TRUE(Runs(cluster));
}

TEST_P(HealingTest, ACacheThatIsVeryLateIsNoDamage) {
  PlayedCluster cluster(kHealedSpec);
  ASSERT_TRUE(cluster.op->Step().ok());  // which made it; the caches do not know yet
  ASSERT_FALSE(Find(cluster).is_null());
  const json before = Find(cluster);
  cluster.Play();
  cluster.now += seconds(30);

  ASSERT_TRUE(cluster.op->SyncPods().ok());
  ASSERT_TRUE(cluster.op->ReconcileOnly().ok());

  EXPECT_EQ(Find(cluster), before);
  EXPECT_EQ(CountEvents(cluster), 0);
}

TEST_P(HealingTest, AnotherOwnersIsToldAndNotTouched) {
  PlayedCluster cluster(kHealedSpec);
  Settle(cluster);
  json foreign = Find(cluster);
  foreign["metadata"].erase("ownerReferences");
  cluster.server.Put(type, ChildKey(name), foreign);

  EXPECT_TRUE(absl::IsAlreadyExists(cluster.op->Step()));
  EXPECT_TRUE(absl::IsAlreadyExists(cluster.op->Step()));

  const std::vector<Condition> conditions = cluster.Status().conditions;
  EXPECT_EQ(FindCondition(conditions, "Reconciled")->reason, "NameConflict");
  EXPECT_EQ(Content(Find(cluster)), Content(foreign));
  cluster.server.Remove(type, ChildKey(name));
  ASSERT_TRUE(cluster.op->Step().ok());
  const std::vector<Condition> after = cluster.Status().conditions;
  EXPECT_EQ(FindCondition(after, "Reconciled")->reason, "Reconciled");
}

INSTANTIATE_TEST_SUITE_P(EachKind,
                         HealingTest,
                         testing::Values(std::pair{"mnist-coordinator", ServiceType()},
                                         std::pair{"mnist",
                                                   ResourceType{.group = "networking.k8s.io",
                                                                .version = "v1",
                                                                .plural = "networkpolicies"}},
                                         std::pair{"mnist-servers",
                                                   ResourceType{.group = "policy",
                                                                .version = "v1",
                                                                .plural = "poddisruptionbudgets"}}),
                         [](const auto& test) { return test.param.second.plural; });

TEST(SecretHealingTest, WhatIsDeletedOrChangedIsThereAgain) {
  PlayedCluster cluster(kHealedSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
  ASSERT_TRUE(cluster.op->PollSecrets());
  ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_EQ(CountEvents(cluster), 0);
  const json before = cluster.Secret();

  json odd = before;
  odd["metadata"]["labels"].erase("pushpull.dev/job");
  odd["data"]["server-0.key"] = "b2Rk";
  cluster.server.Put(SecretType(), ChildKey("mnist-tls"), odd);
  ASSERT_TRUE(cluster.op->PollSecrets());
  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.Secret()["metadata"]["labels"], before["metadata"]["labels"]);
  EXPECT_EQ(cluster.Secret()["data"]["ca.crt"], before["data"]["ca.crt"]);
  EXPECT_NE(cluster.Secret()["data"]["server-0.key"], "b2Rk");
  EXPECT_EQ(CountEvents(cluster), 1);

  cluster.server.Remove(SecretType(), ChildKey("mnist-tls"));
  cluster.now += seconds(2);
  ASSERT_TRUE(cluster.op->PollSecrets());
  ASSERT_TRUE(cluster.op->Step().ok());

  ASSERT_FALSE(cluster.Secret().is_null());
  EXPECT_EQ(cluster.Secret()["metadata"]["labels"], before["metadata"]["labels"]);
  EXPECT_EQ(cluster.Secret()["data"].size(), before["data"].size());
  EXPECT_EQ(CountEvents(cluster), 2);
}

TEST(SecretHealingTest, OwnWritesAndNotesOfOthersAreNoDamage) {
  PlayedCluster cluster(kHealedSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
  ASSERT_TRUE(cluster.op->Step().ok());  // which counts the workers for /scale
  json noted = cluster.Secret();
  noted["metadata"]["annotations"]["of"] = "others";
  cluster.server.Put(SecretType(), ChildKey("mnist-tls"), noted);
  const int before = cluster.num_writes();

  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(cluster.op->PollSecrets());
    ASSERT_TRUE(cluster.op->Step().ok());
  }

  EXPECT_EQ(cluster.num_writes(), before);
  EXPECT_EQ(CountEvents(cluster), 0);
}

// Without it the pod is in no cache and no NetworkPolicy.
TEST(LabelHealingTest, ALabelThatIsTakenAwayIsThereAgain) {
  for (const char* label : {kManagedByLabel, kJobLabel, kComponentLabel, kIndexLabel}) {
    PlayedCluster cluster(kHealedSpec);
    ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
    json odd = cluster.server.Find(PodType(), ChildKey("mnist-server-0"));
    const json before = odd["metadata"]["labels"];
    odd["metadata"]["labels"].erase(label);
    cluster.server.Put(PodType(), ChildKey("mnist-server-0"), odd);

    ASSERT_TRUE(cluster.op->Step().ok());

    const json after = cluster.server.Find(PodType(), ChildKey("mnist-server-0"));
    EXPECT_EQ(after["metadata"]["labels"], before) << label;
    ASSERT_TRUE(cluster.op->Step().ok());
    EXPECT_EQ(cluster.Status().servers.ready, 1);
    EXPECT_EQ(cluster.Status().restarts, RestartsStatus{});
  }
}

TEST(StatusHealingTest, WhatOthersWriteIsCorrectedAndNotBelieved) {
  PlayedCluster cluster(kHealedSpec);
  ASSERT_TRUE(cluster.Until([&] { return Runs(cluster); }));
  ASSERT_TRUE(cluster.op->Step().ok());
  const TrainingJobStatus before = cluster.Status();
  json odd = cluster.Job();
  odd["status"]["phase"] = "Succeeded";
  odd["status"]["completionTime"] = "2026-01-01T00:00:00Z";
  odd["status"]["coordinator"]["term"] = 90;
  odd["status"]["restarts"]["counted"] = 6;
  odd["status"].erase("conditions");
  cluster.server.Put(TrainingJobType(), ChildKey("mnist"), odd);

  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.Status(), before);
  EXPECT_EQ(cluster.server.CountRequests("DELETE"), 0);
  EXPECT_EQ(CountEvents(cluster), 1);
}

TEST(StatusHealingTest, AnotherControllersStatusIsItsOwn) {
  PlayedCluster cluster(R"({"image":"i","servers":{"replicas":1},"managedBy":"example.com/q"})");
  for (const char* phase : {"Pending", "Running", "Succeeded"}) {
    json job = cluster.Job();
    job["status"]["phase"] = phase;
    cluster.server.Put(TrainingJobType(), ChildKey("mnist"), job);

    ASSERT_TRUE(cluster.op->Step().ok());

    EXPECT_EQ(cluster.Job()["status"]["phase"], phase);
  }
}

}  // namespace
}  // namespace pushpull_operator
