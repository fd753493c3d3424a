// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/api/training_runtime.h"
#include "runtime/job/parse.h"
#include "runtime/job/tree.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull_operator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;

std::string ReadManifest(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<std::filesystem::path> Manifests(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  const std::string root = std::string(PUSHPULL_TEST_DATA) + "/manifests/" + folder;
  for (const auto& entry : std::filesystem::directory_iterator(root)) paths.push_back(entry.path());
  return paths;
}

// The manifest as the API server would send it; nothing where it is no object.
std::optional<Object> AsObject(const std::string& manifest) {
  pushpull::Problems problems;
  const std::optional<pushpull::Tree> tree = pushpull::ReadYaml(manifest, problems);
  if (!tree.has_value() || !problems.empty()) return std::nullopt;
  absl::StatusOr<Object> object = ParseObject(pushpull::ToJson(*tree));
  return object.ok() ? std::optional<Object>(*object) : std::nullopt;
}

// The words of a YAML file, as `on` for true, are lost in JSON, the fields are not.
std::vector<std::string> FieldsOfSpec(const std::vector<pushpull::ManifestProblem>& problems) {
  std::vector<std::string> fields;
  for (const pushpull::ManifestProblem& problem : problems) {
    if (absl::StartsWith(problem.field, "spec")) fields.push_back(problem.field);
  }
  return fields;
}

std::vector<std::string> ProblemsOfSpec(const std::vector<pushpull::ManifestProblem>& problems) {
  std::vector<std::string> lines;
  for (const pushpull::ManifestProblem& problem : problems) {
    if (absl::StartsWith(problem.field, "spec")) lines.push_back(ToString(problem));
  }
  return lines;
}

TEST(TrainingJobTest, AManifestMeansTheSameHereAndToPushpullRun) {
  int num_manifests = 0;
  for (const std::filesystem::path& path : Manifests("valid")) {
    SCOPED_TRACE(path);
    const std::string text = ReadManifest(path);
    const std::optional<Object> object = AsObject(text);
    ASSERT_TRUE(object.has_value());

    const TrainingJobObject decoded = DecodeTrainingJobObject(*object);

    pushpull::TrainingJob expected = pushpull::ParseTrainingJob(text, {}).job;
    expected.metadata.annotations.clear();
    EXPECT_THAT(decoded.problems, IsEmpty());
    EXPECT_EQ(decoded.job, expected);
    ++num_manifests;
  }
  EXPECT_GE(num_manifests, 8);
}

TEST(TrainingJobTest, ABrokenSpecHasTheProblemsOfPushpullValidate) {
  int num_manifests = 0;
  for (const std::filesystem::path& path : Manifests("broken")) {
    SCOPED_TRACE(path);
    const std::string text = ReadManifest(path);
    const std::optional<Object> object = AsObject(text);
    const std::vector<std::string> expected =
        FieldsOfSpec(pushpull::ParseTrainingJob(text, {}).problems);
    if (!object.has_value() || expected.empty()) continue;

    EXPECT_THAT(FieldsOfSpec(DecodeTrainingJobObject(*object).problems),
                UnorderedElementsAreArray(expected));
    ++num_manifests;
  }
  EXPECT_GE(num_manifests, 15);
}

TEST(TrainingJobTest, MetadataOfANewerServerIsNoProblem) {
  const Object object = *ParseObject(
      R"({"metadata":{"name":"a","namespace":"n","labels":{"l":"1"},"annotations":{"x":"y"},
          "newField":{}},"spec":{},"status":{"phase":"Running"}})");

  const TrainingJobObject decoded = DecodeTrainingJobObject(object);

  EXPECT_THAT(decoded.problems, IsEmpty());
  EXPECT_EQ(decoded.job.metadata.name, "a");
  EXPECT_THAT(decoded.job.metadata.labels, SizeIs(1));
  EXPECT_EQ(decoded.status.phase, Phase::kRunning);
}

TEST(TrainingJobTest, ASpecOfANewerVersionIsAProblemItsStatusIsNot) {
  const Object object = *ParseObject(
      R"({"metadata":{"name":"a"},"spec":{"servers":{"replicass":3}},"status":{"phase":"Running"}})");

  const TrainingJobObject decoded = DecodeTrainingJobObject(object);

  EXPECT_THAT(ProblemsOfSpec(decoded.problems),
              ElementsAre("spec.servers.replicass: is not a known field; did you mean replicas?"));
  EXPECT_EQ(decoded.status.phase, Phase::kRunning);
}

TEST(TrainingJobTest, ACheckpointFolderOutsideAClaimIsAProblem) {
  const Object object =
      *ParseObject(R"({"metadata":{"name":"a"},"spec":{"checkpoint":{"uri":"file:///c"}}})");

  EXPECT_THAT(ProblemsOfSpec(DecodeTrainingJobObject(object).problems),
              ElementsAre("spec.checkpoint.uri: is for `pushpull run`; use spec.checkpoint.claim "
                          "on Kubernetes"));
}

TEST(TrainingJobTest, AJobIsMergedOverTheRuntimeThatIsNoted) {
  const Object object = *ParseObject(
      R"({"metadata":{"name":"a"},"spec":{"runtimeRef":{"name":"r"},"workers":{"replicas":1}},
          "status":{"runtime":{"name":"r","spec":{"image":"i","workers":{"replicas":3},
                                                  "servers":{"replication":2}}}}})");

  const TrainingJobObject decoded = DecodeTrainingJobObject(object);

  EXPECT_EQ(decoded.runtime, "r");
  EXPECT_TRUE(HasRuntime(decoded));
  EXPECT_FALSE(decoded.states_size);
  EXPECT_EQ(decoded.job.spec.image, "i");
  EXPECT_EQ(decoded.job.spec.workers.replicas, 1);
  EXPECT_EQ(decoded.job.spec.runtime_ref, "");
  EXPECT_EQ(pushpull::ParseTrainingJob(decoded.manifest, {}).job.spec, decoded.job.spec);
  EXPECT_THAT(ProblemsOfSpec(decoded.problems),
              ElementsAre("spec.servers.replication: must be less than spec.servers.replicas (1), "
                          "is 2 (from the TrainingRuntime r)"));
}

TEST(TrainingJobTest, WithoutItsRuntimeOnlyWhatItSaysItselfIsJudged) {
  const Object object = *ParseObject(
      R"({"metadata":{"name":"a"},"spec":{"runtimeRef":{"name":"r"},"sync":{"staleness":1},
          "servers":{"replicas":1},"workers":{"replicas":2,"maxReplicas":1}},
          "status":{"runtime":{"name":"other","spec":{"image":"i"}}}})");

  const TrainingJobObject decoded = DecodeTrainingJobObject(object);

  EXPECT_FALSE(HasRuntime(decoded));
  EXPECT_TRUE(decoded.states_size);
  EXPECT_EQ(decoded.job.spec.image, "");
  EXPECT_THAT(FieldsOfSpec(decoded.problems), ElementsAre("spec.workers.replicas"));
}

TEST(TrainingRuntimeTest, ItIsNotedAsTheApiServerWillKeepIt) {
  const Object object = *ParseObject(
      R"({"metadata":{"name":"r","uid":"u","generation":4},
          "spec":{"image":null,"args":[{"a":null}],"servers":{"template":{"x":null,"y":1}}}})");

  const TrainingRuntime runtime = DecodeTrainingRuntimeObject(object);

  EXPECT_EQ(runtime.problem, "");
  EXPECT_EQ(runtime.record,
            (RuntimeStatus{.name = "r",
                           .uid = "u",
                           .generation = 4,
                           .spec = R"({"args":[{}],"servers":{"template":{"y":1}}})"}));
}

TEST(TrainingRuntimeTest, OneThatIsTooLargeToBeNotedIsAProblem) {
  const std::string args = R"(","metadata":{"name":"r"},"spec":{"image":")" +
                           std::string(size_t{1} << 18, 'i') + R"("}})";
  const Object object = *ParseObject(R"({"kind":")" + args);

  const TrainingRuntime runtime = DecodeTrainingRuntimeObject(object);

  EXPECT_EQ(runtime.problem, "has 262156 bytes, at most 262144");
  EXPECT_EQ(runtime.record.spec, "");
}

TEST(TrainingJobTest, AnObjectWithoutASpecIsAProblem) {
  for (const char* text :
       {R"({"metadata":{"name":"a"}})",
        R"({"metadata":{"name":"a"},"spec":[1,2.5,true,null,18446744073709551615]})",
        R"({"metadata":{},"spec":7})"}) {
    EXPECT_THAT(DecodeTrainingJobObject(*ParseObject(text)).problems, testing::Not(IsEmpty()))
        << text;
  }
}

}  // namespace
}  // namespace pushpull_operator
