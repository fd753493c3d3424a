// SPDX-License-Identifier: Apache-2.0
#include "operator/children/job_objects.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::NetworkPolicy;
using pushpull::TrainingJobSpec;

const ObjectMeta kObjectsOwner{.key = {.object_namespace = "n", .name = "mnist"}, .uid = "job-1"};

// The object of this kind; null where the job has none.
json ObjectOf(const std::string& plural,
              const TrainingJobSpec& spec,
              const std::string& operator_namespace = "pushpull-system") {
  for (const JobObject& object : JobObjects(kObjectsOwner, spec, operator_namespace)) {
    if (object.type.plural == plural)
      return object.text.empty() ? json(nullptr) : json::parse(object.text);
  }
  ADD_FAILURE() << "no " << plural;
  return nullptr;
}

TEST(JobObjectsTest, EachIsTheJobs) {
  for (const JobObject& object : JobObjects(kObjectsOwner, {}, "")) {
    const json parsed = json::parse(object.text);

    EXPECT_EQ(parsed["metadata"]["name"], object.key.name);
    EXPECT_EQ(parsed["metadata"]["namespace"], "n");
    EXPECT_EQ(parsed["metadata"]["ownerReferences"][0]["uid"], "job-1");
    EXPECT_EQ(parsed["metadata"]["labels"]["pushpull.dev/job"], "mnist");
  }
}

TEST(JobObjectsTest, MendingTakesOutWhatOthersHaveAdded) {
  for (const JobObject& object : JobObjects(kObjectsOwner, {}, "")) {
    const json wanted = json::parse(object.text);
    json present = wanted;
    present["metadata"]["resourceVersion"] = "17";
    present["metadata"]["labels"]["pushpull.dev/job"] = "other";
    present["metadata"]["annotations"]["of"] = "others";
    present["spec"]["added"] = {{"by", "others"}};
    for (auto& [key, value] : present["spec"].items()) {
      if (wanted["spec"].contains(key)) value = json::array({"odd"});
    }

    const json patch = json::parse(HealPatchText(object, *DecodeObject(present, "")));

    EXPECT_EQ(patch["metadata"]["resourceVersion"], "17");
    present.merge_patch(patch);
    EXPECT_EQ(present["spec"], wanted["spec"]) << object.type.plural;
    EXPECT_EQ(present["metadata"]["labels"], wanted["metadata"]["labels"]);
    EXPECT_EQ(present["metadata"]["annotations"]["of"], "others");
  }
}

TEST(JobObjectsTest, TheServiceLeadsToTheCoordinatorAlone) {
  const json service = ObjectOf("services", {});

  EXPECT_EQ(service["metadata"]["name"], "mnist-coordinator");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(
      service["spec"]["selector"],
      json::parse(R"({"pushpull.dev/job":"mnist","app.kubernetes.io/component":"coordinator"})"));
}

TEST(JobObjectsTest, TheNetworkPolicyAdmitsJobOperatorAndMetrics) {
  const json spec = ObjectOf("networkpolicies", {})["spec"];

  const json members = json::parse(R"({"matchLabels":{"pushpull.dev/job":"mnist"}})");
  EXPECT_EQ(spec["podSelector"], members);
  EXPECT_EQ(spec["policyTypes"], json::parse(R"(["Ingress"])"));
  ASSERT_EQ(spec["ingress"].size(), 3U);
  EXPECT_EQ(spec["ingress"][0], json({{"from", json::array({{{"podSelector", members}}})}}));
  EXPECT_EQ(spec["ingress"][1], json::parse(R"({"ports":[{"protocol":"TCP","port":9464}]})"));
  const json& control = spec["ingress"][2];
  EXPECT_EQ(control["ports"], json::parse(R"([{"protocol":"TCP","port":7170}])"));
  EXPECT_EQ(control["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
            "pushpull-system");
  EXPECT_EQ(
      control["from"][0]["podSelector"]["matchLabels"],
      json::parse(
          R"({"app.kubernetes.io/component":"operator","app.kubernetes.io/part-of":"pushpull"})"));
}

TEST(JobObjectsTest, AnOperatorOutsideOfTheClusterIsNotLockedOut) {
  const json spec = ObjectOf("networkpolicies", {}, "")["spec"];

  EXPECT_EQ(spec["ingress"][2], json::parse(R"({"ports":[{"protocol":"TCP","port":7170}]})"));
}

TEST(JobObjectsTest, MetricsOfServersInPodsOfWorkersAreReachedToo) {
  TrainingJobSpec spec;
  spec.workers.colocated_server = true;

  EXPECT_EQ(ObjectOf("networkpolicies", spec)["spec"]["ingress"][1],
            json::parse(R"({"ports":[{"protocol":"TCP","port":9464},
                                     {"protocol":"TCP","port":9465}]})"));
}

TEST(JobObjectsTest, ADrainTakesOneServerAtATime) {
  const json spec = ObjectOf("poddisruptionbudgets", {})["spec"];

  EXPECT_EQ(spec["maxUnavailable"], 1);
  EXPECT_EQ(spec["selector"]["matchLabels"],
            json::parse(R"({"pushpull.dev/job":"mnist","app.kubernetes.io/component":"server"})"));
}

TEST(JobObjectsTest, AJobWithoutServersHasNoBudgetForThem) {
  TrainingJobSpec spec;
  spec.sync.mode = pushpull::SyncMode::kAllReduce;
  spec.servers.replicas = 0;

  EXPECT_TRUE(ObjectOf("poddisruptionbudgets", spec).is_null());
}

TEST(JobObjectsTest, WhatTheSpecSwitchesOffIsNotCreated) {
  TrainingJobSpec spec;
  spec.security.network_policy = NetworkPolicy::kOff;
  spec.scheduling = {.pdb = false};

  EXPECT_TRUE(ObjectOf("networkpolicies", spec).is_null());
  EXPECT_TRUE(ObjectOf("poddisruptionbudgets", spec).is_null());
  EXPECT_FALSE(ObjectOf("services", spec).is_null());
}

}  // namespace
}  // namespace pushpull_operator
