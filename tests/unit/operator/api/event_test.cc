// SPDX-License-Identifier: Apache-2.0
#include "operator/api/event.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull_operator {
namespace {

using nlohmann::json;

const ObjectMeta kJob{
    .key = {.object_namespace = "n", .name = "mnist"}, .uid = "u-1", .resource_version = "7"};

json Written(const Event& event) {
  const auto time =
      std::chrono::system_clock::time_point(std::chrono::microseconds(1'769'860'800'000'042));
  return json::parse(
      NewEventText({.object_namespace = "n", .name = "mnist.1"}, event, kJob, "pod-1", time));
}

TEST(EventTest, AnEventIsAboutTheJob) {
  const json event = Written({.kind = Event::Kind::kWarning,
                              .reason = "OOMKilled",
                              .action = "Restart",
                              .note = "worker 1 was killed"});

  EXPECT_EQ(event["metadata"], json({{"name", "mnist.1"}, {"namespace", "n"}}));
  EXPECT_EQ(event["regarding"]["uid"], "u-1");
  EXPECT_EQ(event["regarding"]["kind"], "TrainingJob");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(event["reason"], "OOMKilled");
  EXPECT_EQ(event["action"], "Restart");
  EXPECT_EQ(event["note"], "worker 1 was killed");
  EXPECT_EQ(event["eventTime"], "2026-01-31T12:00:00.000042Z");
  EXPECT_EQ(event["reportingInstance"], "pod-1");
}

TEST(EventTest, ALongNoteIsCutBetweenCharacters) {
  std::string note(1020, 'a');
  for (int i = 0; i < 10; ++i) note += "\u00e9";

  const std::string cut = Written({.note = note})["note"];

  EXPECT_LE(cut.size(), 1024U);
  EXPECT_EQ(cut, std::string(1020, 'a') + "...");
  EXPECT_EQ(Written({.note = std::string(1024, 'b')})["note"], std::string(1024, 'b'));
}

TEST(EventTest, WhatHappensAgainIsASeries) {
  const auto time = std::chrono::system_clock::time_point(std::chrono::seconds(1'769'860'800));

  EXPECT_EQ(
      json::parse(EventSeriesText(3, time)),
      json({{"series", {{"count", 3}, {"lastObservedTime", "2026-01-31T12:00:00.000000Z"}}}}));
}

}  // namespace
}  // namespace pushpull_operator
