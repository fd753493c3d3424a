// SPDX-License-Identifier: Apache-2.0
//
// How a member ended, and what keeps one from starting, as Kubernetes tells it. Pure.
#pragma once

#include <optional>
#include <string>

#include "operator/api/member.h"
#include "operator/plan/observation.h"
#include "runtime/job/restart_policy.h"

namespace pushpull_operator {

struct MemberEnd {
  pushpull::MemberExit exit;  // for DecideAfterExit
  std::string reason;         // "OOMKilled", "Evicted", "Error", "Completed"
  std::optional<int> code;    // of the member's container, where it has ended
  std::string detail;         // Kubernetes' own words; may be empty
  bool is_disruption() const;
};

// Nothing while the member may still run, and of a pod that somebody deletes without a cause: what
// its container does then is no failure, and the next pod comes when this one is gone.
//
// Source: the reasons of the condition DisruptionTarget (Kubernetes, "Pod disruption conditions").
std::optional<MemberEnd> EndOf(const ObservedPod& pod, const MemberId& member);

// How the server in a worker's pod ended (spec.workers.colocatedServer), where that ends the
// member: in trouble, for no container starts again in a pod, and the worker would go on without
// it.
std::optional<MemberEnd> EndByServerBeside(const ObservedPod& pod, const MemberId& worker);

// The server in a worker's pod; null where there is none, or nothing is known of it yet.
const ContainerStatus* ServerBeside(const ObservedPod& pod);

// Since when the member's container runs; nothing while it does not.
std::optional<WallTime> RunningSince(const ObservedPod& pod, const MemberId& member);

struct StartProblem {
  std::string reason;   // "ImagePullBackOff", "Unschedulable"
  std::string message;  // with pod, container and image
};

// What a pod waits for that it may wait for in vain.
std::optional<StartProblem> StartProblemOf(const ObservedPod& pod);

}  // namespace pushpull_operator
