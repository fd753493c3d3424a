// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job_status.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/job/problems.h"
#include "runtime/job/tree.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using testing::IsEmpty;

constexpr char kCrd[] = "/../../charts/pushpull/files/crd/trainingjobs.yaml";

WallTime At(int seconds) {
  return WallTime(std::chrono::seconds(1'769'860'800 + seconds));
}

// Every field other than its default.
TrainingJobStatus FullStatus() {
  return {
      .observed_generation = 3,
      .phase = Phase::kScaling,
      .phase_time = At(1),
      .reason = "AllReady",
      .duration = "1h2m",
      .conditions = {{.type = "Ready",
                      .status = kConditionTrue,
                      .observed_generation = 2,
                      .last_transition = At(2),
                      .reason = "AllReady",
                      .message = "3 of 3"}},
      .servers = {.replicas = 4, .ready = 3, .draining = 1, .selector = "a=b"},
      .workers = {.replicas = 2, .ready = 1, .succeeded = 1, .selector = "a=c"},
      .coordinator = {.term = 5, .is_ready = true},
      .ring = RingStatus{.epoch = 9, .state = "Stable"},
      .restarts = {.counted = 2,
                   .job_counted = 1,
                   .disruptions = 1,
                   .next_at = At(3),
                   .last = LastRestart{.pod = "mnist-worker-0",
                                       .reason = "OOMKilled",
                                       .exit_code = 137,
                                       .time = At(4),
                                       .message = "mnist-worker-0 ended: OOMKilled"},
                   .members = {{.pod = "mnist-worker-0",
                                .uid = "u-1",
                                .counted = 1,
                                .in_a_row = 2,
                                .next_at = At(5),
                                .last_end = "1-00000000000000ff",
                                .alike = 2,
                                .left_out = "cannot join"}}},
      .losses = LossesStatus{.counted = 2,
                             .term = 4,
                             .told = 3,
                             .last = LastLoss{.message = "shard 4 lost", .time = At(10)}},
      .checkpoint = SavedCheckpoint{.step = 100, .time = At(6), .location = "/c"},
      .progress = ProgressStatus{.step = 120,
                                 .samples_per_second = "10.5",
                                 .sync_seconds_p50 = "0.1",
                                 .sync_seconds_p99 = "0.2",
                                 .results = {{"any", "0.9"}}},
      .runtime = RuntimeStatus{.name = "r", .uid = "u", .generation = 2, .spec = R"({"any":1})"},
      .start_time = At(7),
      .suspend_time = At(8),
      .suspended_seconds = 60,
      .completion_time = At(9)};
}

// "servers.ready", "conditions.type": what an object has, items of lists as the lists themselves.
void AddPaths(const json& object, const std::string& path, std::set<std::string>& paths) {
  if (object.is_array()) {
    for (const json& item : object) AddPaths(item, path, paths);
  } else if (object.is_object()) {
    for (const auto& [key, value] : object.items()) {
      AddPaths(value, absl::StrCat(path, path.empty() ? "" : ".", key), paths);
    }
  } else {
    paths.insert(path);
  }
}

void AddSchemaPaths(const pushpull::Tree& schema,
                    const std::string& path,
                    std::set<std::string>& paths) {
  const pushpull::Tree* items = pushpull::FindField(schema, "items");
  if (items != nullptr) return AddSchemaPaths(*items, path, paths);
  const pushpull::Tree* open = pushpull::FindField(schema, "x-kubernetes-preserve-unknown-fields");
  // A key that FullStatus has, where any is allowed.
  const pushpull::Tree* any = pushpull::FindField(schema, "additionalProperties");
  if (any != nullptr) return AddSchemaPaths(*any, path + ".any", paths);
  if (open != nullptr && open->boolean) {
    paths.insert(path + ".any");
    return;
  }
  const pushpull::Tree* properties = pushpull::FindField(schema, "properties");
  if (properties == nullptr) {
    paths.insert(path);
    return;
  }
  for (const pushpull::Tree::Field& field : properties->fields) {
    AddSchemaPaths(field.value, path.empty() ? field.key : path + "." + field.key, paths);
  }
}

std::set<std::string> SchemaPaths() {
  std::ifstream stream(std::string(PUSHPULL_TEST_DATA) + kCrd);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  pushpull::Problems problems;
  const std::optional<pushpull::Tree> crd = pushpull::ReadYaml(text, problems);
  const pushpull::Tree* at = pushpull::FindField(crd.value(), "spec");
  at = &pushpull::FindField(*at, "versions")->items.at(0);
  for (const char* key : {"schema", "openAPIV3Schema", "properties", "status"}) {
    at = pushpull::FindField(*at, key);
  }
  std::set<std::string> paths;
  AddSchemaPaths(*at, "", paths);
  return paths;
}

TEST(TrainingJobStatusTest, AStatusComesBackAsItWasWritten) {
  const json patch = json::parse(StatusPatchText({}, FullStatus(), "7"));

  EXPECT_EQ(DecodeStatus(patch), FullStatus());
  EXPECT_EQ(patch["metadata"], json({{"resourceVersion", "7"}}));
}

// The API server drops what the schema does not name.
TEST(TrainingJobStatusTest, TheFieldsAreThoseOfTheSchema) {
  std::set<std::string> written;

  AddPaths(json::parse(StatusPatchText({}, FullStatus(), "7"))["status"], "", written);

  EXPECT_EQ(written, SchemaPaths());
}

TEST(TrainingJobStatusTest, NothingIsWrittenWhereNothingHasChanged) {
  EXPECT_EQ(StatusPatchText(FullStatus(), FullStatus(), "7"), "");
}

TEST(TrainingJobStatusTest, APatchHasTheChangesAndNothingElse) {
  TrainingJobStatus now = FullStatus();
  now.servers.ready = 4;
  now.restarts.next_at.reset();
  now.progress.reset();

  const json patch = json::parse(StatusPatchText(FullStatus(), now, "7"));

  EXPECT_EQ(patch["status"],
            json::parse(R"({"servers":{"ready":4},"restarts":{"nextAt":null},"progress":null})"));
}

TEST(TrainingJobStatusTest, APatchLeavesWhatIsNotKnownHere) {
  json object = json::parse(StatusPatchText({}, FullStatus(), "7"));
  object["status"]["ofANewerVersion"] = 1;
  object["status"]["servers"]["ofANewerVersion"] = 2;
  TrainingJobStatus now = FullStatus();
  now.servers.ready = 0;

  object.merge_patch(json::parse(StatusPatchText(DecodeStatus(object), now, "7")));

  EXPECT_EQ(object["status"]["ofANewerVersion"], 1);
  EXPECT_EQ(object["status"]["servers"]["ofANewerVersion"], 2);
  EXPECT_EQ(DecodeStatus(object), now);
}

TEST(TrainingJobStatusTest, FieldsOfAnotherKindKeepTheirDefaults) {
  const json odd = json::parse(R"({"status":{"phase":"Odd","conditions":[7,{"type":8}],
      "servers":[],"coordinator":{"term":1.5,"ready":"yes"},"startTime":"yesterday",
      "restarts":{"members":{},"counted":99999999999999999999},"ring":7}})");

  TrainingJobStatus expected;
  expected.conditions = {Condition{}};
  EXPECT_EQ(DecodeStatus(odd), expected);
  EXPECT_EQ(DecodeStatus(json::parse(R"({"status":7})")), TrainingJobStatus{});
  EXPECT_EQ(DecodeStatus(json::parse("[]")), TrainingJobStatus{});
}

TEST(ConditionTest, TheTransitionIsThatOfTheStatusNotOfTheReason) {
  std::vector<Condition> conditions;
  SetCondition(
      conditions,
      {.type = "Ready", .status = kConditionFalse, .last_transition = At(1), .reason = "A"});
  SetCondition(
      conditions,
      {.type = "Ready", .status = kConditionFalse, .last_transition = At(2), .reason = "B"});

  EXPECT_EQ(FindCondition(conditions, "Ready")->last_transition, At(1));
  EXPECT_EQ(FindCondition(conditions, "Ready")->reason, "B");
  SetCondition(
      conditions,
      {.type = "Ready", .status = kConditionTrue, .last_transition = At(3), .reason = "C"});
  EXPECT_EQ(FindCondition(conditions, "Ready")->last_transition, At(3));
  EXPECT_TRUE(IsTrue(conditions, "Ready"));
  EXPECT_FALSE(IsTrue(conditions, "Complete"));
  EXPECT_THAT(conditions, testing::SizeIs(1));
}

TEST(WallTimeTest, TimesAreReadInEveryFormOfTheApiAndWrittenInOne) {
  EXPECT_EQ(ToText(At(0)), "2026-01-31T12:00:00Z");
  EXPECT_EQ(ParseWallTime("2026-01-31T12:00:00Z"), At(0));
  EXPECT_EQ(ParseWallTime("2026-01-31T12:00:00.999999Z"), At(0));
  EXPECT_EQ(ParseWallTime("2026-01-31T14:00:00+02:00"), At(0));
  for (const char* odd : {"", "soon", "infinite-future", "2026-01-31", "2026-13-31T12:00:00Z"}) {
    EXPECT_EQ(ParseWallTime(odd), std::nullopt) << odd;
  }
}

}  // namespace
}  // namespace pushpull_operator
