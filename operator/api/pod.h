// SPDX-License-Identifier: Apache-2.0
//
// The parts of a Pod that the operator reads: its progress, its end, and what keeps it from
// starting. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/api/wall_time.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

inline const ResourceType& PodType() {
  static const ResourceType type{.group = "", .version = "v1", .plural = "pods"};
  return type;
}

enum class PodPhase { kUnknown, kPending, kRunning, kSucceeded, kFailed };

// A container that has ended.
struct ContainerEnd {
  int exit_code = 0;
  std::string reason;  // "Error", "OOMKilled", "ContainerCannotRun"
  std::string message;
  std::optional<WallTime> started = {};
  std::optional<WallTime> finished = {};
  friend bool operator==(const ContainerEnd&, const ContainerEnd&) = default;
};

struct ContainerStatus {
  std::string name;
  std::string image;
  bool is_init = false;
  bool is_ready = false;
  std::string waiting_reason;  // "ImagePullBackOff", "ContainerCreating"; empty: it is not waiting
  std::string waiting_message;
  std::optional<WallTime> running_since = {};
  std::optional<ContainerEnd> end = {};
  friend bool operator==(const ContainerStatus&, const ContainerStatus&) = default;
};

struct Pod {
  PodPhase phase = PodPhase::kUnknown;
  std::string reason;  // "Evicted", "NodeLost"; mostly empty
  std::string message;
  std::string node;  // empty: not scheduled
  std::string ip;    // empty: none yet
  // Whether the member's own containers are ready; those added by a template do not count.
  bool is_ready = false;
  std::optional<WallTime> ready_since = {};
  std::optional<WallTime> unready_since = {};  // since when it is not ready; none: not reported
  std::optional<WallTime> scheduled_since = {};
  std::string unschedulable;  // the scheduler's message; empty: scheduled, or not tried yet
  // Reason of the condition DisruptionTarget if it is true: another component removes the pod.
  std::string disruption;
  std::optional<WallTime> creation_time = {};
  // When its grace period ends; set once the pod is being deleted.
  std::optional<WallTime> deletion_time = {};
  std::vector<ContainerStatus> containers = {};  // init containers first
  friend bool operator==(const Pod&, const Pod&) = default;
};

// Whether the operator added the container; the others are sidecars from a template.
bool IsOfMember(const ContainerStatus& container);

// Fields that are missing or of another type keep their defaults.
Pod DecodePod(const Object& object);

}  // namespace pushpull_operator
