// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/watch_event.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

TEST(WatchEventTest, DecodesMetadata) {
  const absl::StatusOr<WatchEvent> event = DecodeWatchEvent(
      R"({"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u",
          "resourceVersion":"7","generation":3,"deletionTimestamp":"2026-01-01T00:00:00Z",
          "labels":{"x":"y","odd":1},"ownerReferences":[{"uid":"other"},{"uid":"o","controller":true}]},
          "futureField":{}}})");

  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->type, WatchEventType::kModified);
  const ObjectMeta& meta = event->object.meta;
  EXPECT_EQ(meta.key, (ObjectKey{.object_namespace = "n", .name = "a"}));
  EXPECT_EQ(meta.uid, "u");
  EXPECT_EQ(meta.resource_version, "7");
  EXPECT_EQ(meta.generation, 3);
  EXPECT_TRUE(meta.is_deleting);
  EXPECT_EQ(meta.labels, (std::map<std::string, std::string>{{"x", "y"}}));
  EXPECT_EQ(meta.controller_uid, "o");
}

TEST(WatchEventTest, AnErrorEventHasTheServersCode) {
  const absl::StatusOr<WatchEvent> event = DecodeWatchEvent(
      R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}})");

  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->type, WatchEventType::kError);
  EXPECT_EQ(event->error.code, 410);
}

TEST(WatchEventTest, UnknownEventTypesAreSkipped) {
  const absl::StatusOr<WatchEvent> event = DecodeWatchEvent(R"({"type":"SPLIT","object":7})");

  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->type, WatchEventType::kUnknown);
}

TEST(WatchEventTest, MalformedFramesAreDataLoss) {
  const std::string deep(100'000, '[');
  for (const std::string& frame : {std::string("nonsense"),
                                   std::string("[]"),
                                   std::string(R"({"object":{}})"),
                                   std::string(R"({"type":"ADDED"})"),
                                   deep}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeWatchEvent(frame).status())) << frame.substr(0, 40);
  }
}

TEST(WatchEventTest, AnObjectThatCannotBeNamedIsToBeSkipped) {
  for (const char* object : {"[]", "null", "7", "{}", R"({"metadata":1})", R"({"metadata":{}})"}) {
    const std::string frame = R"({"type":"ADDED","object":)" + std::string(object) + "}";

    EXPECT_TRUE(absl::IsInvalidArgument(DecodeWatchEvent(frame).status())) << object;
  }
}

TEST(WatchEventTest, ADeepObjectHasItsNameAndAProblem) {
  const std::string deep = std::string(300, '[') + std::string(300, ']');

  const absl::StatusOr<WatchEvent> event =
      DecodeWatchEvent(R"({"type":"MODIFIED","object":{"spec":)" + deep +
                       R"(,"metadata":{"name":"a","resourceVersion":"7"}}})");

  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->type, WatchEventType::kModified);
  EXPECT_EQ(event->object.meta.key.name, "a");
  EXPECT_EQ(event->object.meta.resource_version, "7");
  EXPECT_EQ(event->object.problem, "spec nests deeper than 200 levels");
}

TEST(WatchEventTest, ABookmarkNeedsNoName) {
  const absl::StatusOr<WatchEvent> event =
      DecodeWatchEvent(R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}})");

  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->object.meta.resource_version, "7");
}

}  // namespace
}  // namespace pushpull_operator
