// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/training_runtime.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/parse.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Tree Yaml(const std::string& text) {
  Problems problems;
  const std::optional<Tree> tree = ReadYaml(text, problems);
  EXPECT_TRUE(tree.has_value() && problems.empty()) << text;
  return tree.value_or(Tree{});
}

std::string MergedSpec(const std::string& runtime, const std::string& job) {
  const Tree merged = MergeRuntime(Yaml(runtime), Yaml(absl::StrCat("{spec: ", job, "}")));
  const Tree* spec = FindField(merged, "spec");
  return spec == nullptr ? "" : ToJson(*spec);
}

TEST(MergeRuntimeTest, ObjectsAreMergedAndTheJobsListsAndScalarsWin) {
  EXPECT_EQ(MergedSpec("{image: a, args: [x, y], servers: {replicas: 2, threads: 4}}",
                       "{args: [z], servers: {replicas: 1}, cleanup: All}"),
            R"({"args":["z"],"cleanup":"All","image":"a","servers":{"replicas":1,"threads":4}})");
  EXPECT_EQ(MergedSpec("{args: [x], servers: 3}", "{args: [], servers: {}}"),
            R"({"args":[],"servers":{}})");
}

TEST(MergeRuntimeTest, EmptyObjectsOfTheApiServerChangeNothing) {
  EXPECT_EQ(MergedSpec("{sync: {mode: Async}}", "{sync: {}}"), R"({"sync":{"mode":"Async"}})");
}

TEST(MergeRuntimeTest, TheReferenceIsGoneAndTheRestOfTheManifestStays) {
  const Tree job = Yaml("{kind: TrainingJob, metadata: {name: a}, spec: {runtimeRef: {name: r}}}");

  EXPECT_EQ(ToJson(MergeRuntime(Yaml("{image: a}"), job)),
            R"({"kind":"TrainingJob","metadata":{"name":"a"},"spec":{"image":"a"}})");
}

TEST(MergeRuntimeTest, ANullSaysNothingButInATemplate) {
  EXPECT_EQ(
      MergedSpec("{image: a, workers: {replicas: 2, template: {spec: {hostname: h}}}}",
                 "{image: null, workers: {replicas: null, template: {spec: {hostname: null}}}}"),
      R"({"image":"a","workers":{"replicas":2,"template":{"spec":{"hostname":null}}}})");
}

TEST(MergeRuntimeTest, WhatIsNoObjectIsLeftToTheCodec) {
  EXPECT_EQ(MergedSpec("{image: a}", "7"), "7");
  EXPECT_EQ(MergedSpec("[1]", "{image: b}"), R"({"image":"b"})");
  EXPECT_EQ(ToJson(MergeRuntime(Yaml("{image: a}"), Yaml("[1]"))), "[1]");
}

// Its field, behind it what was added to the text "is wrong".
std::string Named(const std::string& field) {
  const Tree runtime = Yaml("{sync: {staleness: 2}, env: [{name: A}, {value: b}], 'x y': {z: 1}}");
  const Tree job = Yaml("{spec: {servers: {replication: 1}, sync: {mode: Sync}}}");
  std::vector<ManifestProblem> problems{{field, "is wrong"}};
  NameRuntime("gpu", runtime, job, problems);
  return problems[0].text.substr(std::string("is wrong").size());
}

TEST(NameRuntimeTest, ProblemsSayWhereAFieldComesFrom) {
  constexpr char kFromRuntime[] = " (from the TrainingRuntime gpu)";
  EXPECT_EQ(Named("spec.sync.staleness"), kFromRuntime);
  EXPECT_EQ(Named("spec.env[1].name"), kFromRuntime);  // missing there
  EXPECT_EQ(Named("spec[\"x y\"].z"), kFromRuntime);
  EXPECT_EQ(Named("spec.servers.replication"), "");
  EXPECT_EQ(Named("spec.sync.mode"), "");
  EXPECT_EQ(Named("spec.workers.replicas"), "");  // in neither
  EXPECT_EQ(Named("metadata.name"), "");
}

constexpr char kRuntime[] =
    "{apiVersion: pushpull.dev/v1alpha1, kind: TrainingRuntime, metadata: {name: gpu}, spec: "
    "{servers: {replicas: 2}, sync: {staleness: 3}}}";

std::string JobText(const std::string& spec) {
  return absl::StrCat(
      "{apiVersion: pushpull.dev/v1alpha1, kind: TrainingJob, metadata: {name: a}, spec: ",
      spec,
      "}");
}

std::vector<std::string> Lines(const std::vector<ManifestProblem>& problems) {
  std::vector<std::string> lines;
  for (const ManifestProblem& problem : problems) lines.push_back(ToString(problem));
  return lines;
}

TEST(ParseWithRuntimeTest, BothTogetherAreTheJob) {
  const std::vector<std::string> overrides{"spec.workers.replicas=4"};
  const ParsedJob parsed = ParseTrainingJob(
      JobText("{runtimeRef: {name: gpu}, sync: {mode: Bounded}}"), overrides, kRuntime);

  EXPECT_THAT(Lines(parsed.problems), IsEmpty());
  EXPECT_EQ(parsed.job.spec.servers.replicas, 2);
  EXPECT_EQ(parsed.job.spec.workers.replicas, 4);
  EXPECT_EQ(parsed.job.spec.sync.staleness, 3);
  EXPECT_EQ(ParseTrainingJob(parsed.merged, {}).job, parsed.job);
}

TEST(ParseWithRuntimeTest, TheWholeIsJudged) {
  const ParsedJob parsed = ParseTrainingJob(
      JobText("{runtimeRef: {name: gpu}, servers: {replication: 2}}"), {}, kRuntime);

  EXPECT_THAT(Lines(parsed.problems),
              ElementsAre("spec.servers.replication: must be less than spec.servers.replicas (2), "
                          "is 2",
                          "spec.sync.staleness: needs spec.sync.mode Bounded, which is Sync (from "
                          "the TrainingRuntime gpu)"));
}

TEST(ParseWithRuntimeTest, ItMustBeTheOneThatIsNamed) {
  EXPECT_THAT(Lines(ParseTrainingJob(JobText("{runtimeRef: {name: cpu}}"), {}, kRuntime).problems),
              ElementsAre("spec.runtimeRef.name: is \"cpu\", the runtime given is \"gpu\""));
  EXPECT_THAT(Lines(ParseTrainingJob(JobText("{}"), {}, kRuntime).problems),
              ElementsAre("spec.runtimeRef: must be set: a runtime is given"));
  EXPECT_THAT(
      Lines(ParseTrainingJob(JobText("{runtimeRef: {name: gpu}}"), {}, JobText("{}")).problems),
      ElementsAre("spec.runtimeRef: its runtime: kind: must be TrainingRuntime, is "
                  "\"TrainingJob\""));
}

TEST(ParseManifestTest, TellsTheKindsApart) {
  EXPECT_TRUE(ParseManifest(kRuntime, {}).is_runtime);
  EXPECT_FALSE(ParseManifest(JobText("{}"), {}).is_runtime);
  EXPECT_FALSE(ParseManifest("[1]", {}).is_runtime);
  EXPECT_FALSE(ParseManifest("{", {}).problems.empty());
}

}  // namespace
}  // namespace pushpull
