// SPDX-License-Identifier: Apache-2.0
//
// The status of a TrainingJob: all that the operator remembers of a job. Its fields are those of
// the CRD's schema (charts/pushpull/files/crd/trainingjobs.yaml); the API server drops all others.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include <nlohmann/json_fwd.hpp>

#include "operator/api/wall_time.h"

namespace pushpull_operator {

// For printing, and for the CRD's rules about what may change when: Pending and Suspended have no
// pods.
enum class Phase { kPending, kStarting, kRunning, kScaling, kSuspended, kSucceeded, kFailed };

absl::string_view NameOf(Phase phase);

// How the API spells the status of a condition.
inline constexpr char kConditionTrue[] = "True";
inline constexpr char kConditionFalse[] = "False";

// As metav1.Condition; an object has a list with one entry per type.
struct Condition {
  std::string type;
  std::string status;
  int64_t observed_generation = 0;  // of the spec that it refers to
  WallTime last_transition{};       // since when it has this status
  std::string reason;               // CamelCase
  std::string message;
  friend bool operator==(const Condition&, const Condition&) = default;
};

// Null if there is none.
const Condition* FindCondition(const std::vector<Condition>& conditions, absl::string_view type);

bool IsTrue(const std::vector<Condition>& conditions, absl::string_view type);

// Adds `condition`, or replaces the one of its type. Its last_transition is used only if the status
// has changed; otherwise the old one stays.
void SetCondition(std::vector<Condition>& conditions, Condition condition);

struct ServersStatus {
  int64_t replicas = 0;  // existing pods
  int64_t ready = 0;
  int64_t draining = 0;
  std::string selector;
  friend bool operator==(const ServersStatus&, const ServersStatus&) = default;
};

struct WorkersStatus {
  int64_t replicas = 0;
  int64_t ready = 0;
  int64_t succeeded = 0;
  std::string selector;
  friend bool operator==(const WorkersStatus&, const WorkersStatus&) = default;
};

struct CoordinatorStatus {
  int64_t term = 0;  // of the newest coordinator; 0: none yet
  bool is_ready = false;
  friend bool operator==(const CoordinatorStatus&, const CoordinatorStatus&) = default;
};

struct RingStatus {
  int64_t epoch = 0;
  std::string state;  // "Stable", "Resharding"
  friend bool operator==(const RingStatus&, const RingStatus&) = default;
};

struct LastRestart {
  std::string pod;
  std::string reason;
  std::optional<int64_t> exit_code = {};
  std::optional<WallTime> time = {};
  std::string message = {};  // how it ended, and its own last words about that
  friend bool operator==(const LastRestart&, const LastRestart&) = default;
};

// A member whose restart was counted, or that has not been healthy for long enough since.
struct MemberRestart {
  std::string pod;
  std::string uid;       // of the pod whose end was handled last, so that it counts once
  int64_t counted = 0;   // towards backoffLimit
  int64_t in_a_row = 0;  // 0: healthy
  std::optional<WallTime> next_at = {};
  // As of pushpull::RestartHistory.
  std::string last_end = {};
  int64_t alike = 0;
  std::string left_out = {};  // why the job goes on without this worker; empty: it does not
  friend bool operator==(const MemberRestart&, const MemberRestart&) = default;
};

struct RestartsStatus {
  int64_t counted = 0;      // of all members together
  int64_t job_counted = 0;  // of these, restarts of all members at once
  int64_t disruptions = 0;
  std::optional<WallTime> next_at = {};  // when all members restart; set until their pods are gone
  std::optional<LastRestart> last = {};
  std::vector<MemberRestart> members = {};  // in the order of their pods' names
  friend bool operator==(const RestartsStatus&, const RestartsStatus&) = default;
};

struct SavedCheckpoint {
  int64_t step = 0;
  std::optional<WallTime> time = {};
  std::string location;
  friend bool operator==(const SavedCheckpoint&, const SavedCheckpoint&) = default;
};

struct ProgressStatus {
  int64_t step = 0;
  std::string samples_per_second;  // decimal numbers as text, as in the schema
  std::string sync_seconds_p50;
  std::string sync_seconds_p99;
  std::map<std::string, std::string> results = {};  // "accuracy": reported by the workers' programs
  friend bool operator==(const ProgressStatus&, const ProgressStatus&) = default;
};

struct LastLoss {
  std::string message;
  std::optional<WallTime> time = {};
  friend bool operator==(const LastLoss&, const LastLoss&) = default;
};

// Losses of shards together with all servers that held them.
struct LossesStatus {
  int64_t counted = 0;  // rebuilt from older data
  // How many losses in this term's list have been reported.
  int64_t term = 0;
  int64_t told = 0;
  std::optional<LastLoss> last = {};
  friend bool operator==(const LossesStatus&, const LossesStatus&) = default;
};

// The TrainingRuntime that the job is merged over, as it was when the operator recorded it.
struct RuntimeStatus {
  std::string name;
  std::string uid;
  int64_t generation = 0;
  std::string spec = {};  // a JSON object
  friend bool operator==(const RuntimeStatus&, const RuntimeStatus&) = default;
};

struct TrainingJobStatus {
  int64_t observed_generation = 0;
  std::optional<Phase> phase = {};          // none: the operator has not seen the job yet
  std::optional<WallTime> phase_time = {};  // since when
  std::string reason = {};                  // of the most telling condition, for printing
  std::string duration = {};  // "1h5m": from start to now, or to the end; for printing
  std::vector<Condition> conditions = {};
  ServersStatus servers = {};
  WorkersStatus workers = {};
  CoordinatorStatus coordinator = {};
  std::optional<RingStatus> ring = {};
  RestartsStatus restarts = {};
  std::optional<LossesStatus> losses = {};
  std::optional<SavedCheckpoint> checkpoint = {};
  std::optional<ProgressStatus> progress = {};
  std::optional<RuntimeStatus> runtime = {};  // none: it names none, or has not begun
  std::optional<WallTime> start_time = {};    // when it first left Pending
  std::optional<WallTime> suspend_time = {};  // since when it is suspended, saving included
  int64_t suspended_seconds = 0;              // in total, before that
  std::optional<WallTime> completion_time = {};
  friend bool operator==(const TrainingJobStatus&, const TrainingJobStatus&) = default;
};

// The status of the object `json`. Fields that are missing or of another type keep their defaults.
TrainingJobStatus DecodeStatus(const nlohmann::json& json);

// The body of a merge patch of the subresource status that turns `from` into `to`, in the object at
// this resource version only; fields unknown to this program stay. Empty: nothing has changed.
std::string StatusPatchText(const TrainingJobStatus& from,
                            const TrainingJobStatus& to,
                            const std::string& resource_version);

}  // namespace pushpull_operator
