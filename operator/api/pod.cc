// SPDX-License-Identifier: Apache-2.0
#include "operator/api/pod.h"

#include <algorithm>
#include <limits>

#include "operator/api/member.h"
#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

std::optional<WallTime> TimeField(const Json& json, absl::string_view key) {
  return ParseWallTime(StringField(json, key));
}

bool IsTrueField(const Json& json, absl::string_view key) {
  const Json* value = Find(json, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
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
          .is_ready = IsTrueField(container, "ready"),
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
  if (type == "PodScheduled" && is_true)
    pod.scheduled_since = TimeField(condition, "lastTransitionTime");
  if (type == "PodScheduled" && !is_true && reason == "Unschedulable") {
    const std::string message = StringField(condition, "message");
    pod.unschedulable = message.empty() ? reason : message;
  }
  if (type == "DisruptionTarget" && is_true) pod.disruption = reason.empty() ? "Unknown" : reason;
}

// A sidecar that has ended, or cannot start, makes the pod unready but does not impair the member.
bool IsReadyButForSidecars(const Pod& pod) {
  int num_own = 0;
  int num_unready_sidecars = 0;
  for (const ContainerStatus& container : pod.containers) {
    const bool is_own = IsOfMember(container);
    if (is_own && !container.is_ready) return false;
    num_own += is_own ? 1 : 0;
    num_unready_sidecars += !is_own && !container.is_ready ? 1 : 0;
  }
  return num_own > 0 && num_unready_sidecars > 0;
}

}  // namespace

bool IsOfMember(const ContainerStatus& container) {
  constexpr pushpull::JobRole kRoles[] = {
      pushpull::JobRole::kCoordinator, pushpull::JobRole::kServer, pushpull::JobRole::kWorker};
  return !container.is_init && std::ranges::any_of(kRoles, [&container](pushpull::JobRole role) {
    return container.name == ComponentOf(role);
  });
}

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
  pod.is_ready = pod.is_ready || IsReadyButForSidecars(pod);
  return pod;
}

}  // namespace pushpull_operator
