// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/local_rules.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(LocallyIgnoredFieldsTest, AJobThatSetsNoneOfThemHasNone) {
  TrainingJob job;
  job.spec.command = {"train"};

  EXPECT_THAT(LocallyIgnoredFields(job), IsEmpty());
}

TEST(LocallyIgnoredFieldsTest, ANamespaceIsPartOfTheCheckpointsFolder) {
  TrainingJob job;
  job.metadata.namespace_name = "vision";
  job.spec.checkpoint.emplace();

  EXPECT_THAT(LocallyIgnoredFields(job), IsEmpty());
}

TEST(LocallyIgnoredFieldsTest, NamesEachThatIsSetInTheOrderOfTheManifest) {
  TrainingJob job;
  job.metadata.namespace_name = "vision";
  job.spec.image = "registry.example.com/train";
  job.spec.servers.image = "registry.example.com/server";
  job.spec.servers.resources_json = "{}";
  job.spec.servers.template_json = "{}";
  job.spec.workers.gpus_per_worker = 1;
  job.spec.workers.resources_json = "{}";
  job.spec.workers.template_json = "{}";
  job.spec.coordinator.resources_json = "{}";
  job.spec.coordinator.template_json = "{}";
  job.spec.pod_defaults.labels = {{"team", "a"}};
  job.spec.scaling.on_drain_timeout = DrainTimeoutPolicy::kForce;
  job.spec.ttl_after_finished = std::chrono::seconds(0);
  job.spec.cleanup = CleanupPolicy::kAll;
  job.spec.managed_by = "example.com/queue";
  job.spec.scheduling.emplace();
  job.spec.security.tls = TlsMode::kOff;
  job.spec.security.secret_name = "mine";
  job.spec.security.network_policy = NetworkPolicy::kIsolated;

  EXPECT_THAT(LocallyIgnoredFields(job),
              ElementsAre(StartsWith("metadata.namespace: is ignored, "),
                          StartsWith("spec.image: is ignored, "),
                          StartsWith("spec.servers.image: is ignored, "),
                          StartsWith("spec.servers.resources: is ignored, "),
                          StartsWith("spec.servers.template: is ignored, "),
                          StartsWith("spec.workers.gpusPerWorker: is ignored, "),
                          StartsWith("spec.workers.resources: is ignored, "),
                          StartsWith("spec.workers.template: is ignored, "),
                          StartsWith("spec.coordinator.resources: is ignored, "),
                          StartsWith("spec.coordinator.template: is ignored, "),
                          StartsWith("spec.podDefaults: is ignored, "),
                          StartsWith("spec.scaling: is ignored, "),
                          StartsWith("spec.ttlAfterFinishedSeconds: is ignored, "),
                          StartsWith("spec.cleanup: is ignored, "),
                          StartsWith("spec.managedBy: is ignored, "),
                          StartsWith("spec.scheduling: is ignored, "),
                          StartsWith("spec.security.tls: is ignored, "),
                          StartsWith("spec.security.secretName: is ignored, "),
                          StartsWith("spec.security.networkPolicy: is ignored, ")));
}

TEST(LocalProblemsTest, AProgramAndPlainValuesAreEnough) {
  TrainingJob job;
  job.spec.command = {"train"};
  job.spec.env = {{.name = "A", .value = "1"}};

  EXPECT_THAT(LocalProblems(job), IsEmpty());
}

TEST(LocalProblemsTest, TakesReplicatedServers) {
  TrainingJob job;
  job.spec.command = {"train"};
  job.spec.servers.replicas = 3;
  job.spec.servers.replication = 2;

  EXPECT_THAT(LocalProblems(job), IsEmpty());
}

TEST(LocalProblemsTest, NamesTheMissingProgramAndValuesOfACluster) {
  TrainingJob job;
  job.spec.env = {{.name = "A", .value = "1"}, {.name = "B", .value_from_json = "{}"}};

  const std::vector<ManifestProblem> problems = LocalProblems(job);

  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].field, "spec.command");
  EXPECT_EQ(problems[1].field, "spec.env[1].valueFrom");
}

TEST(LocalProblemsTest, RefusesWhatOnlyPodsCanDo) {
  TrainingJob job;
  job.spec.command = {"train"};
  job.spec.workers.colocated_server = true;
  job.spec.suspend = true;

  std::vector<std::string> fields;
  for (const ManifestProblem& problem : LocalProblems(job)) fields.push_back(problem.field);

  EXPECT_THAT(fields, testing::ElementsAre("spec.workers.colocatedServer", "spec.suspend"));
}

TEST(LocalProblemsTest, AWorkerHasAtMostTheGpusOfThisMachine) {
  TrainingJob job;
  job.spec.command = {"train"};
  job.spec.workers.gpus_per_worker = 2;

  EXPECT_THAT(LocalProblems(job, 0), testing::IsEmpty());
  EXPECT_THAT(LocalProblems(job, 2), testing::IsEmpty());
  EXPECT_THAT(LocallyIgnoredFields(job, 2), testing::IsEmpty());
  const std::vector<ManifestProblem> problems = LocalProblems(job, 1);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(ToString(problems.front()),
            "spec.workers.gpusPerWorker: this machine shows 1 GPU: must be at most that, is 2");
}

TEST(LocalProblemsTest, TakesGatedSteps) {
  TrainingJob job;
  job.spec.command = {"train"};
  job.spec.sync.gated = true;

  EXPECT_THAT(LocalProblems(job), testing::IsEmpty());
}

}  // namespace
}  // namespace pushpull
