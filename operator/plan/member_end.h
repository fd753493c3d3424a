// SPDX-License-Identifier: Apache-2.0
//
// Why a member ended, and why one does not start, by the status of its pod. Pure.
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
  std::string detail;         // Kubernetes' message; may be empty
  bool is_disruption() const;
};

// Nothing while the member may still run, and for a pod that a user deletes: its exit is no failure
// then, and the next pod is created when this one is gone.
//
// Source: the reasons of the condition DisruptionTarget (Kubernetes, "Pod disruption conditions").
std::optional<MemberEnd> EndOf(const ObservedPod& pod, const MemberId& member);

// How the server in a worker's pod ended (spec.workers.colocatedServer), where that ends the
// member: in trouble, for no container starts again in a pod, and the worker would go on without
// it.
std::optional<MemberEnd> EndOfColocatedServer(const ObservedPod& pod, const MemberId& worker);

// The server in a worker's pod; null where there is none, or nothing is known of it yet.
const ContainerStatus* ColocatedServerOf(const ObservedPod& pod);

// Whether the member ever was ready since its pod was created: a server or coordinator by its
// readiness probe, which says whether it is registered; a worker, whose program nobody probes, if
// `worker`, what the coordinator says of its index, is of a process that is no older than the pod.
// Where that cannot be told, it was.
bool WasReady(const ObservedPod& pod,
              const MemberId& member,
              const WorkerReport* worker,
              WallTime now);

// Since when the member's container runs; nothing while it does not.
std::optional<WallTime> RunningSince(const ObservedPod& pod, const MemberId& member);

struct StartProblem {
  std::string reason;   // "ImagePullBackOff", "Unschedulable"
  std::string message;  // with pod, container and image
};

// Why a pod has not started, where it may wait forever.
std::optional<StartProblem> StartProblemOf(const ObservedPod& pod);

// A container of a template that has failed while the member goes on.
std::optional<StartProblem> SidecarProblemOf(const ObservedPod& pod);

}  // namespace pushpull_operator
