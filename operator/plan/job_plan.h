// SPDX-License-Identifier: Apache-2.0
//
// What a plan says: the status to write, then what to do. Plain data.
//
// Whoever carries it out writes the status first, for the resource version that was observed, and
// does nothing when that is refused: what is counted, and a coordinator's term, are in the API
// server before anything comes of them. Each action does no harm when it is done twice.
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
  int64_t term = 0;  // of a coordinator; 0 of others
  friend bool operator==(const CreatePod&, const CreatePod&) = default;
};

struct DeletePod {
  enum class Grace { kPods, kNone };
  std::string name;
  std::string uid;  // of this pod and no other
  Grace grace = Grace::kPods;
  friend bool operator==(const DeletePod&, const DeletePod&) = default;
};

// The coordinator shall make the job this large.
struct AskSize {
  std::optional<int> servers = {};
  std::optional<int> workers = {};
  friend bool operator==(const AskSize&, const AskSize&) = default;
};

// The coordinator shall have pushes count like this from the next step on that can.
struct AskSync {
  SyncWord sync;
  friend bool operator==(const AskSync&, const AskSync&) = default;
};

// The coordinator shall save a checkpoint; the number it gives is Observation::save from then on.
struct AskSave {
  friend bool operator==(const AskSave&, const AskSave&) = default;
};

struct DeleteJob {
  std::string uid;
  friend bool operator==(const DeleteJob&, const DeleteJob&) = default;
};

using Action = std::variant<CreatePod, DeletePod, AskSize, AskSync, AskSave, DeleteJob>;

// The action of events that tell of a counted restart; their reason is that of the end.
inline constexpr char kRestartAction[] = "Restart";

struct JobPlan {
  TrainingJobStatus status;
  std::vector<Event> events;  // of what has changed
  std::vector<Action> actions;
  // When to plan again though nothing is heard; none: only a change matters.
  std::optional<WallTime> look_again;
};

}  // namespace pushpull_operator
