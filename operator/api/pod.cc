// SPDX-License-Identifier: Apache-2.0
#include "operator/api/pod.h"

#include <algorithm>
#include <limits>

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

std::optional<WallTime> TimeField(const Json& json, absl::string_view key) {
  return ParseWallTime(StringField(json, key));
}

PodPhase PhaseOf(const std::string& name) {
  if (name == "Pending") return PodPhase::kPending;
  if (name == "Running") return PodPhase::kRunning;
  if (name == "Succeeded") return PodPhase::kSucceeded;
  if (name == "Failed") return PodPhase::kFailed;
  return PodPhase::kUnknown;
}

std::optional<ContainerEnd> DecodeEnd(const Json& state) {
  if (Find(state, "terminated") == nullptr) return std::nullopt;
  const Json& terminated = ObjectField(state, "terminated");
  const int64_t code = IntField(terminated, "exitCode").value_or(0);
  return ContainerEnd{
      .exit_code = static_cast<int>(std::clamp<int64_t>(code, 0, std::numeric_limits<int>::max())),
      .reason = StringField(terminated, "reason"),
      .message = StringField(terminated, "message"),
      .started = TimeField(terminated, "startedAt"),
      .finished = TimeField(terminated, "finishedAt")};
}

ContainerStatus DecodeContainer(const Json& container, bool is_init) {
  const Json& state = ObjectField(container, "state");
  const Json& waiting = ObjectField(state, "waiting");
  return {.name = StringField(container, "name"),
          .image = StringField(container, "image"),
          .is_init = is_init,
          .waiting_reason = StringField(waiting, "reason"),
          .waiting_message = StringField(waiting, "message"),
          .running_since = TimeField(ObjectField(state, "running"), "startedAt"),
          .end = DecodeEnd(state)};
}

void AddContainers(const Json& status, absl::string_view key, bool is_init, Pod& pod) {
  for (const Json& container : ListField(status, key)) {
    pod.containers.push_back(DecodeContainer(container, is_init));
  }
}

void TakeCondition(const Json& condition, Pod& pod) {
  const std::string type = StringField(condition, "type");
  const bool is_true = StringField(condition, "status") == "True";
  const std::string reason = StringField(condition, "reason");
  if (type == "Ready") {
    pod.is_ready = is_true;
    (is_true ? pod.ready_since : pod.unready_since) = TimeField(condition, "lastTransitionTime");
  }
  if (type == "PodScheduled" && !is_true && reason == "Unschedulable") {
    const std::string message = StringField(condition, "message");
    pod.unschedulable = message.empty() ? reason : message;
  }
  if (type == "DisruptionTarget" && is_true) pod.disruption = reason.empty() ? "Unknown" : reason;
}

}  // namespace

Pod DecodePod(const Object& object) {
  const Json& metadata = ObjectField(*object.json, "metadata");
  const Json& status = ObjectField(*object.json, "status");
  Pod pod{.phase = PhaseOf(StringField(status, "phase")),
          .reason = StringField(status, "reason"),
          .message = StringField(status, "message"),
          .node = StringField(ObjectField(*object.json, "spec"), "nodeName"),
          .ip = StringField(status, "podIP"),
          .creation_time = TimeField(metadata, "creationTimestamp"),
          .deletion_time = TimeField(metadata, "deletionTimestamp")};
  AddContainers(status, "initContainerStatuses", true, pod);
  AddContainers(status, "containerStatuses", false, pod);
  for (const Json& condition : ListField(status, "conditions")) TakeCondition(condition, pod);
  return pod;
}

}  // namespace pushpull_operator
