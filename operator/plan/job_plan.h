// SPDX-License-Identifier: Apache-2.0
//
// A plan: the status to write, then the actions to take. Plain data.
//
// The reconciler writes the status first, for the resource version that was observed, and takes no
// action if that is refused: counts and a coordinator's term are in the API server before they have
// consequences. Every action is idempotent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "operator/api/event.h"
#include "operator/api/member.h"
#include "operator/api/training_job_status.h"
#include "operator/api/wall_time.h"
#include "operator/plan/observation.h"

namespace pushpull_operator {

struct CreatePod {
  MemberId member;
  int64_t term = 0;  // of a coordinator; 0 for others
  friend bool operator==(const CreatePod&, const CreatePod&) = default;
};

struct DeletePod {
  enum class Grace {
    kPods,
    kRestart,  // all members start again: short
    kNone
  };
  std::string name;
  std::string uid;  // of this pod and no other
  Grace grace = Grace::kPods;
  friend bool operator==(const DeletePod&, const DeletePod&) = default;
};

// Somebody changed the labels that say which job and member the pod belongs to.
struct HealLabels {
  MemberId member;
  std::string uid;  // of this pod and no other
  friend bool operator==(const HealLabels&, const HealLabels&) = default;
};

struct MemberRack {
  MemberId member;  // also a server in the pod of a worker, by its own index
  std::string rack;
  friend bool operator==(const MemberRack&, const MemberRack&) = default;
};

// A worker without which the job goes on.
struct LeftOutWorker {
  int index = 0;
  std::string why;
  friend bool operator==(const LeftOutWorker&, const LeftOutWorker&) = default;
};

// Asks the coordinator for this size of the job and of its steps.
struct RequestSize {
  std::optional<int> servers = {};
  std::optional<int> workers = {};
  std::optional<int> global_batch = {};
  std::vector<MemberRack> racks = {};  // that the coordinator does not know, or knows differently
  std::vector<LeftOutWorker> left_out = {};  // that the coordinator still waits for
  friend bool operator==(const RequestSize&, const RequestSize&) = default;
};

// Asks the coordinator to change to these settings at the next possible step.
struct RequestSync {
  SyncSettings sync;
  friend bool operator==(const RequestSync&, const RequestSync&) = default;
};

// Asks the coordinator for a checkpoint; the number in its answer becomes Observation::save.
struct RequestSave {
  friend bool operator==(const RequestSave&, const RequestSave&) = default;
};

struct DeleteJob {
  std::string uid;
  friend bool operator==(const DeleteJob&, const DeleteJob&) = default;
};

using Action = std::
    variant<CreatePod, DeletePod, HealLabels, RequestSize, RequestSync, RequestSave, DeleteJob>;

// The action of events about a counted restart; their reason is the reason of the end.
inline constexpr char kRestartAction[] = "Restart";

struct JobPlan {
  TrainingJobStatus status;
  std::vector<Event> events;  // for what has changed
  std::vector<Action> actions;
  // When to reconcile again without a change; none: only a change matters.
  std::optional<WallTime> requeue_at;
};

}  // namespace pushpull_operator
