// SPDX-License-Identifier: Apache-2.0
#include "operator/api/pod.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Pod Decode(const std::string& text) {
  return DecodePod(*ParseObject(text));
}

WallTime At(const char* text) {
  return ParseWallTime(text).value();
}

TEST(PodTest, APodThatRunsAndIsReady) {
  const Pod pod = Decode(R"({"metadata":{"creationTimestamp":"2026-01-31T12:00:00Z"},
      "spec":{"nodeName":"node-1"},
      "status":{"phase":"Running",
        "conditions":[{"type":"PodScheduled","status":"True"},
                      {"type":"Ready","status":"True","lastTransitionTime":"2026-01-31T12:00:09Z"}],
        "containerStatuses":[{"name":"server","image":"i:1",
            "state":{"running":{"startedAt":"2026-01-31T12:00:05Z"}}}]}})");

  EXPECT_EQ(
      pod,
      (Pod{.phase = PodPhase::kRunning,
           .node = "node-1",
           .is_ready = true,
           .ready_since = At("2026-01-31T12:00:09Z"),
           .creation_time = At("2026-01-31T12:00:00Z"),
           .containers = {
               {.name = "server", .image = "i:1", .running_since = At("2026-01-31T12:00:05Z")}}}));
}

TEST(PodTest, AContainerThatWasKilledForItsMemory) {
  const Pod pod = Decode(R"({"metadata":{},"status":{"phase":"Failed",
      "containerStatuses":[{"name":"worker","state":{"terminated":{"exitCode":137,
          "reason":"OOMKilled","message":"m","startedAt":"2026-01-31T12:00:00Z",
          "finishedAt":"2026-01-31T12:01:00Z"}}}]}})");

  EXPECT_EQ(pod.phase, PodPhase::kFailed);
  EXPECT_THAT(
      pod.containers,
      ElementsAre(ContainerStatus{.name = "worker",
                                  .end = ContainerEnd{.exit_code = 137,
                                                      .reason = "OOMKilled",
                                                      .message = "m",
                                                      .started = At("2026-01-31T12:00:00Z"),
                                                      .finished = At("2026-01-31T12:01:00Z")}}));
}

std::string WithSidecar(const char* ready, const char* member, const char* sidecar) {
  return absl::StrCat(
      R"({"metadata":{},"status":{"phase":"Running","conditions":[
          {"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-31T12:00:01Z"},
          {"type":"Ready","status":")",
      ready,
      R"("}],"containerStatuses":[{"name":"logs","ready":)",
      sidecar,
      R"(},{"name":"worker","ready":)",
      member,
      "}]}}");
}

TEST(PodTest, ASidecarThatIsNotReadyMakesNoMemberUnready) {
  EXPECT_TRUE(Decode(WithSidecar("False", "true", "false")).is_ready);
  EXPECT_FALSE(Decode(WithSidecar("False", "false", "false")).is_ready);
  EXPECT_FALSE(Decode(WithSidecar("False", "false", "true")).is_ready);
  // A readiness gate of the template: somebody else says when it is ready.
  EXPECT_FALSE(Decode(WithSidecar("False", "true", "true")).is_ready);
  EXPECT_TRUE(Decode(WithSidecar("True", "true", "true")).is_ready);
}

TEST(PodTest, AnInitContainerThatGoesOnIsASidecar) {
  const Pod pod = Decode(R"({"metadata":{},"status":{"phase":"Running",
      "initContainerStatuses":[{"name":"server","ready":false}],
      "containerStatuses":[{"name":"worker","ready":true}]}})");

  EXPECT_TRUE(pod.is_ready);
  EXPECT_FALSE(IsOfMember(pod.containers[0]));
  EXPECT_TRUE(IsOfMember(pod.containers[1]));
}

TEST(PodTest, SinceWhenItHasANode) {
  EXPECT_EQ(Decode(WithSidecar("True", "true", "true")).scheduled_since,
            At("2026-01-31T12:00:01Z"));
}

TEST(PodTest, WhatKeepsAPodFromStarting) {
  const Pod waiting = Decode(R"({"metadata":{},"status":{"phase":"Pending",
      "initContainerStatuses":[{"name":"init","state":{"waiting":{"reason":"ImagePullBackOff",
          "message":"no such image"}}}],
      "containerStatuses":[{"name":"worker","state":{"waiting":{"reason":"PodInitializing"}}}]}})");
  const Pod unschedulable = Decode(R"({"metadata":{},"status":{"phase":"Pending","conditions":[
      {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes"}]}})");

  ASSERT_THAT(waiting.containers, testing::SizeIs(2));
  EXPECT_TRUE(waiting.containers[0].is_init);
  EXPECT_EQ(waiting.containers[0].waiting_reason, "ImagePullBackOff");
  EXPECT_EQ(waiting.containers[0].waiting_message, "no such image");
  EXPECT_EQ(waiting.containers[1].waiting_reason, "PodInitializing");
  EXPECT_EQ(unschedulable.unschedulable, "0/3 nodes");
}

TEST(PodTest, ADisruptionTargetIsRead) {
  const Pod pod = Decode(R"({"metadata":{"deletionTimestamp":"2026-01-31T12:00:30Z"},
      "status":{"phase":"Running","reason":"NodeLost","conditions":[
        {"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI"},
        {"type":"Ready","status":"False","lastTransitionTime":"2026-01-31T12:00:20Z"}]}})");

  EXPECT_EQ(pod.disruption, "EvictionByEvictionAPI");
  EXPECT_EQ(pod.reason, "NodeLost");
  EXPECT_EQ(pod.deletion_time, At("2026-01-31T12:00:30Z"));
  EXPECT_FALSE(pod.is_ready);
  EXPECT_EQ(pod.unready_since, At("2026-01-31T12:00:20Z"));
}

TEST(PodTest, FieldsOfAnotherKindKeepTheirDefaults) {
  EXPECT_EQ(Decode(R"({"metadata":{"deletionTimestamp":7},"spec":7,"status":[]})"), Pod{});
  const Pod odd = Decode(R"({"metadata":{},"status":{"phase":"New","conditions":[1,{"type":2}],
      "containerStatuses":[3,{"state":{"terminated":{"exitCode":-5}}},
                           {"state":{"terminated":{"exitCode":99999999999}}}]}})");

  EXPECT_EQ(odd.phase, PodPhase::kUnknown);
  ASSERT_THAT(odd.containers, testing::SizeIs(3));
  EXPECT_EQ(odd.containers[1].end->exit_code, 0);
  EXPECT_GT(odd.containers[2].end->exit_code, 255);
}

}  // namespace
}  // namespace pushpull_operator
