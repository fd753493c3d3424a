// SPDX-License-Identifier: Apache-2.0
//
// Why a member ended or does not start, according to the status of its pod. Pure.
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
  std::optional<int> code;    // of the member's container, if it has ended
  std::string detail;         // Kubernetes' message; may be empty
  bool was_released = false;  // a worker, normally; as its program says
  bool is_disruption() const;
};

// Nothing while the member may still be running, and for a pod that a user deletes: then its exit
// is not a failure, and the next pod is created once this one is gone.
//
// Source: the reasons of the condition DisruptionTarget (Kubernetes, "Pod disruption conditions").
std::optional<MemberEnd> EndOf(const ObservedPod& pod, const MemberId& member);

// How the server in a worker's pod (spec.workers.colocatedServer) ended, if that ends the member:
// with an error, because containers of a pod do not restart, and the worker would continue without
// it.
std::optional<MemberEnd> EndOfColocatedServer(const ObservedPod& pod, const MemberId& worker);

// The server in a worker's pod; null if there is none, or nothing is known of it yet.
const ContainerStatus* ColocatedServerOf(const ObservedPod& pod);

// Whether the member has been ready since its pod was created. A server or coordinator: by its
// readiness probe, which says whether it is registered. A worker, whose program has no probe: if
// `worker`, the coordinator's report on its index, is about a process no older than the pod. True
// if that cannot be determined.
bool WasReady(const ObservedPod& pod,
              const MemberId& member,
              const WorkerReport* worker,
              WallTime now);

// Since when the member's container has been running; nothing while it is not.
std::optional<WallTime> RunningSince(const ObservedPod& pod, const MemberId& member);

struct StartProblem {
  std::string reason;   // "ImagePullBackOff", "Unschedulable"
  std::string message;  // with pod, container and image
};

// Why a pod has not started, if it may wait forever.
std::optional<StartProblem> StartProblemOf(const ObservedPod& pod);

// A container from a template that has failed while the member continues.
std::optional<StartProblem> SidecarProblemOf(const ObservedPod& pod);

}  // namespace pushpull_operator
