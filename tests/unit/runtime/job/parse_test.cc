// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/parse.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr char kMinimal[] =
    "{apiVersion: pushpull.dev/v1alpha1, kind: TrainingJob, metadata: {name: job}, spec: {}}";

TrainingJob ParseFile(const std::string& name) {
  std::ifstream file(absl::StrCat(PUSHPULL_TEST_DATA, "/manifests/valid/", name));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ParsedJob parsed = ParseTrainingJob(text, {});
  EXPECT_THAT(parsed.problems, IsEmpty());
  return parsed.job;
}

std::vector<std::string> ProblemsOf(absl::string_view text,
                                    const std::vector<std::string>& overrides) {
  std::vector<std::string> lines;
  for (const ManifestProblem& problem : ParseTrainingJob(text, overrides).problems) {
    lines.push_back(ToString(problem));
  }
  return lines;
}

TEST(ParseTrainingJobTest, StatusMeansNothingWhateverIsInIt) {
  const std::vector<std::string> status = {"status={anything: [1, 2], phase: NotYetInvented}"};

  EXPECT_THAT(ProblemsOf(kMinimal, status), IsEmpty());
}

TEST(ParseTrainingJobTest, WhatIsNotSetHasTheDefaultsOfTheDocumentation) {
  const TrainingJobSpec spec = ParseFile("minimal.yaml").spec;

  EXPECT_EQ(spec.servers.replicas, 1);
  EXPECT_EQ(spec.servers.min_replicas, 1);
  EXPECT_EQ(spec.servers.max_replicas, 1024);
  EXPECT_EQ(spec.servers.replication, 0);
  EXPECT_EQ(spec.servers.threads, 1);
  EXPECT_EQ(spec.workers.replicas, 1);
  EXPECT_EQ(spec.workers.max_replicas, 4096);
  EXPECT_EQ(spec.workers.global_batch, std::nullopt);
  EXPECT_EQ(spec.workers.topology_key, "");
  EXPECT_EQ(spec.sync.mode, SyncMode::kSync);
  EXPECT_EQ(spec.sync.local_reduce, LocalReduce::kNone);
  EXPECT_EQ(spec.sync.non_finite, NonFinitePolicy::kFail);
  EXPECT_EQ(spec.sync.stall, seconds(10));
  EXPECT_EQ(spec.sync.on_stall, StallPolicy::kWarn);
  EXPECT_FALSE(spec.checkpoint.has_value());
  EXPECT_EQ(spec.scaling.drain_timeout, seconds(300));
  EXPECT_EQ(spec.restart.backoff_limit, 6);
  EXPECT_EQ(spec.restart.role_limits, RoleLimits{});
  EXPECT_EQ(spec.restart.success_policy, SuccessPolicy::kAllWorkers);
  EXPECT_EQ(spec.restart.initial_delay, seconds(10));
  EXPECT_EQ(spec.restart.max_delay, seconds(300));
  EXPECT_EQ(spec.restart.healthy_after, seconds(600));
  EXPECT_EQ(spec.restart.node_lost_after, seconds(60));
  EXPECT_EQ(spec.restart.peer_timeout, seconds(20));
  EXPECT_EQ(spec.start_deadline, std::nullopt);
  EXPECT_EQ(spec.cleanup, CleanupPolicy::kRunning);
  EXPECT_FALSE(spec.scheduling.has_value());
  EXPECT_EQ(spec.security.tls, TlsMode::kAuto);
}

TEST(ParseTrainingJobTest, ACheckpointHasDefaultsOfItsOwn) {
  const TrainingJobSpec spec = ParseFile("limits.yaml").spec;

  ASSERT_TRUE(spec.checkpoint.has_value());
  EXPECT_EQ(spec.checkpoint->claim, "a");
  EXPECT_EQ(spec.checkpoint->path, "/");
  EXPECT_EQ(spec.checkpoint->every, seconds(600));
  EXPECT_EQ(spec.checkpoint->keep, 3);
  EXPECT_EQ(spec.checkpoint->restore_from, "latest");
}

TEST(ParseTrainingJobTest, ModeAllReduceHasNoServers) {
  const TrainingJobSpec spec = ParseFile("all_reduce.yaml").spec;

  EXPECT_EQ(spec.sync.mode, SyncMode::kAllReduce);
  EXPECT_TRUE(spec.sync.deterministic);
  EXPECT_EQ(spec.servers.replicas, 0);
  EXPECT_EQ(spec.workers.replicas, 3);
}

TEST(ParseTrainingJobTest, ReadsMetadataAndProgram) {
  const TrainingJob job = ParseFile("every_field.yaml");

  EXPECT_EQ(job.metadata.name, "every-field");
  EXPECT_EQ(job.metadata.namespace_name, "vision");
  EXPECT_THAT(job.metadata.labels,
              ElementsAre(Pair("app.kubernetes.io/name", "resnet"), Pair("team", "7")));
  EXPECT_THAT(job.metadata.annotations, ElementsAre(Pair("example.com/Why", "to have them all")));
  EXPECT_EQ(job.spec.image, "registry.example.com/train:1.2");
  EXPECT_THAT(job.spec.command, ElementsAre("python3", "train.py"));
  EXPECT_THAT(job.spec.args, ElementsAre("--epochs", "90"));
  ASSERT_THAT(job.spec.env, SizeIs(2));
  EXPECT_EQ(job.spec.env[0].name, "DATA");
  EXPECT_EQ(job.spec.env[0].value, "/data");
  EXPECT_EQ(job.spec.env[1].value_from_json, R"({"secretKeyRef":{"key":"token","name":"hub"}})");
}

TEST(ParseTrainingJobTest, ReadsServersAndWorkers) {
  const TrainingJobSpec spec = ParseFile("every_field.yaml").spec;

  EXPECT_EQ(spec.servers.replicas, 4);
  EXPECT_EQ(spec.servers.min_replicas, 2);
  EXPECT_EQ(spec.servers.max_replicas, 8);
  EXPECT_EQ(spec.servers.replication, 2);
  EXPECT_EQ(spec.servers.threads, 3);
  EXPECT_EQ(spec.servers.loss_grace, seconds(45));
  EXPECT_EQ(spec.servers.image, "registry.example.com/server:1.2");
  EXPECT_EQ(spec.servers.resources_json, R"({"limits":{"cpu":2,"memory":"8Gi"}})");
  EXPECT_EQ(spec.servers.template_json, R"({"spec":{"nodeSelector":{"disk":"ssd"}}})");
  EXPECT_EQ(spec.workers.replicas, 16);
  EXPECT_EQ(spec.workers.min_replicas, 12);
  EXPECT_EQ(spec.workers.max_replicas, 32);
  EXPECT_EQ(spec.workers.gpus_per_worker, 8);
  EXPECT_EQ(spec.workers.global_batch, 4096);
  EXPECT_EQ(spec.workers.topology_key, "topology.kubernetes.io/rack");
  EXPECT_TRUE(spec.workers.colocated_server);
  EXPECT_EQ(spec.workers.resources_json, R"({"requests":{"cpu":0.5}})");
  EXPECT_EQ(spec.workers.template_json, R"({"metadata":{"labels":{"tier":"gold"}}})");
}

// It goes with no backup workers, which the file of every field has.
TEST(ParseTrainingJobTest, ReadsTheGate) {
  EXPECT_TRUE(ParseFile("gated.yaml").spec.sync.gated);
}

// Likewise.
TEST(ParseTrainingJobTest, ReadsTheGroupsThatSumFirst) {
  EXPECT_EQ(ParseFile("local_reduce.yaml").spec.sync.local_reduce, LocalReduce::kRack);
  EXPECT_EQ(ParseFile("every_field.yaml").spec.sync.local_reduce, LocalReduce::kNone);
}

TEST(ParseTrainingJobTest, ReadsSyncCheckpointAndScaling) {
  const TrainingJobSpec spec = ParseFile("every_field.yaml").spec;

  EXPECT_EQ(spec.sync.mode, SyncMode::kSync);
  EXPECT_EQ(spec.sync.backup_workers, 2);
  EXPECT_TRUE(spec.sync.deterministic);
  EXPECT_TRUE(spec.sync.scale_by_staleness);
  EXPECT_FALSE(spec.sync.gated);
  EXPECT_TRUE(spec.sync.noise_scale);
  EXPECT_EQ(spec.sync.non_finite, NonFinitePolicy::kDrop);
  EXPECT_EQ(spec.sync.stall, seconds(25));
  EXPECT_EQ(spec.sync.on_stall, StallPolicy::kDropWorker);
  ASSERT_TRUE(spec.checkpoint.has_value());
  EXPECT_EQ(spec.checkpoint->claim, "checkpoints");
  EXPECT_EQ(spec.checkpoint->path, "/resnet");
  EXPECT_EQ(spec.checkpoint->every, seconds(1200));
  EXPECT_EQ(spec.checkpoint->keep, 5);
  EXPECT_EQ(spec.checkpoint->restore_from, "step-1000");
  EXPECT_EQ(spec.scaling.drain_timeout, seconds(120));
  EXPECT_EQ(spec.scaling.on_drain_timeout, DrainTimeoutPolicy::kForce);
  EXPECT_EQ(spec.scaling.cooldown, seconds(15));
}

TEST(ParseTrainingJobTest, ReadsRestartRulesInTheirOrder) {
  const RestartSpec restart = ParseFile("every_field.yaml").spec.restart;

  EXPECT_EQ(restart.backoff_limit, 3);
  EXPECT_EQ(restart.role_limits, (RoleLimits{.servers = 20, .workers = 4, .coordinator = 0}));
  EXPECT_EQ(restart.success_policy, SuccessPolicy::kWorker0);
  EXPECT_EQ(restart.initial_delay, seconds(1));
  EXPECT_EQ(restart.max_delay, seconds(60));
  EXPECT_EQ(restart.healthy_after, seconds(120));
  EXPECT_EQ(restart.node_lost_after, seconds(90));
  EXPECT_EQ(restart.peer_timeout, seconds(30));
  ASSERT_THAT(restart.rules, SizeIs(3));
  EXPECT_EQ(restart.rules[0].role, JobRole::kWorker);
  EXPECT_THAT(restart.rules[0].exit_codes->in, ElementsAre(42, 137));
  EXPECT_EQ(restart.rules[0].action, RestartAction::kRestartJob);
  EXPECT_THAT(restart.rules[1].exit_codes->not_in, ElementsAre(1));
  EXPECT_EQ(restart.rules[1].action, RestartAction::kFailJob);
  EXPECT_EQ(restart.rules[2].reason, ExitReason::kOomKilled);
  EXPECT_EQ(restart.rules[2].action, RestartAction::kIgnore);
}

TEST(ParseTrainingJobTest, ReadsDeadlinesSchedulingAndSecurity) {
  const TrainingJobSpec spec = ParseFile("every_field.yaml").spec;

  EXPECT_EQ(spec.start_deadline, seconds(600));
  EXPECT_EQ(spec.active_deadline, seconds(86400));
  EXPECT_EQ(spec.ttl_after_finished, seconds(3600));
  EXPECT_EQ(spec.cleanup, CleanupPolicy::kAll);
  EXPECT_TRUE(spec.suspend);
  EXPECT_EQ(spec.managed_by, "example.com/queue");
  ASSERT_TRUE(spec.scheduling.has_value());
  EXPECT_EQ(spec.scheduling->priority_class, "high");
  EXPECT_FALSE(spec.scheduling->spread_servers);
  EXPECT_FALSE(spec.scheduling->pdb);
  EXPECT_EQ(spec.security.secret_name, "my-certificates");
  EXPECT_EQ(spec.security.network_policy, NetworkPolicy::kOff);
}

TEST(ParseTrainingJobTest, AnOverrideIsCheckedLikeTheFile) {
  EXPECT_THAT(ProblemsOf(kMinimal, {"spec.servers.replicas=-1", "spec.servers.replica=2"}),
              ElementsAre("spec.servers.replicas: must be between 0 and 1024, is -1",
                          "spec.servers.replica: is not a known field; did you mean replicas?"));
}

TEST(ParseTrainingJobTest, OverridesApplyInTheirOrder) {
  const ParsedJob parsed =
      ParseTrainingJob(kMinimal,
                       std::vector<std::string>{"spec.servers.replicas=2",
                                                R"(spec.command=["python3","train.py"])",
                                                "spec.servers.replicas=4"});

  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.job.spec.servers.replicas, 4);
  EXPECT_THAT(parsed.job.spec.command, ElementsAre("python3", "train.py"));
}

TEST(ParseTrainingJobTest, AnOverrideCanMendAWrongField) {
  const std::string text =
      "{apiVersion: pushpull.dev/v1alpha1, kind: TrainingJob, metadata: {name: job},"
      " spec: {servers: {replicas: many}}}";

  EXPECT_THAT(ProblemsOf(text, {"spec.servers.replicas=3"}), IsEmpty());
}

TEST(ParseTrainingJobTest, ThousandsOfProblemsAreCountedNotListed) {
  std::string text = "spec:\n";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&text, "  replicaz", i, ": 1\n");

  const std::vector<ManifestProblem> problems = ParseTrainingJob(text, {}).problems;

  ASSERT_THAT(problems, SizeIs(Problems::kMax + 1));
  EXPECT_EQ(ToString(problems.back()), "and 9903 more problems");
}

TEST(ParseTrainingJobTest, EveryProblemIsOnePrintableLine) {
  const std::vector<std::string> problems =
      ProblemsOf("{\"a\\n\\x1b[31m\": 1, kind: \"x\\ny\"}", {"spec.\x1b[0m=1", "\n"});

  ASSERT_FALSE(problems.empty());
  for (const std::string& problem : problems) {
    for (const char c : problem) EXPECT_GE(c, ' ') << problem;
  }
}

TEST(ParseManifestTest, AFileMayHaveTheRuntimeThatItsJobNames) {
  const std::string text = absl::StrCat(
      "{apiVersion: pushpull.dev/v1alpha1, kind: TrainingRuntime, metadata: {name: gpu}, spec: "
      "{image: i}}\n---\n{apiVersion: pushpull.dev/v1alpha1, kind: TrainingJob, metadata: {name: "
      "job}, spec: {runtimeRef: {name: gpu}}}\n");

  const ParsedJob parsed = ParseTrainingJob(text, {}, text);

  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.job.spec.image, "i");
  EXPECT_THAT(parsed.ignored, ElementsAre("TrainingRuntime gpu"));
}

}  // namespace
}  // namespace pushpull
