// SPDX-License-Identifier: Apache-2.0
//
// What the operator remembers of one job between two reconciles. All of it may be lost: a new
// operator begins with none. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "operator/api/event.h"
#include "operator/controller/child_state.h"
#include "operator/controller/observed_job.h"
#include "operator/controller/status_memory.h"
#include "operator/plan/observation.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull_operator {

// Writes that the caches must show before a job is planned again, like the expectations of
// client-go's controllers: a plan on an older state would make a pod twice or count an end twice.
class Expectations {
 public:
  // How long a write is waited for. An object that is still missing then was deleted meanwhile.
  static constexpr std::chrono::seconds kTimeout{10};

  // The job was patched: it will have another version than `replaced`.
  void ExpectUpdate(const std::string& replaced, WallTime now);
  void ExpectPod(const ObjectMeta& created, WallTime now);
  // Whether `job` shows all of it, or kTimeout has passed since the last write.
  bool AreMet(const ObservedJob& job);

 private:
  std::string replaced_version_;
  std::map<std::string, std::string> created_pods_;  // name -> uid
  WallTime expires_at_{};
};

// When to ask a coordinator again that did not answer in time: each such call keeps a worker from
// the other jobs until its deadline.
class CoordinatorBackoff {
 public:
  static constexpr std::chrono::seconds kPauseMin{4};
  static constexpr std::chrono::seconds kPauseMax{32};

  // Whether the coordinator in the pod of this uid may be asked now.
  bool MayAsk(const std::string& pod_uid, WallTime now) const {
    return pod_uid != silent_uid_ || now >= ask_at_;
  }
  void OnAnswer() { silent_uid_.clear(); }
  // The pause doubles with each timeout in a row of the same pod.
  void OnTimeout(const std::string& pod_uid, WallTime now);

 private:
  std::string silent_uid_;  // of the pod that did not answer last; empty: none
  std::chrono::seconds pause_{0};
  WallTime ask_at_{};
};

// What creating the job's pods has come to, for the next plan.
class CreationState {
 public:
  // A pod is about to be created; `term` is 0 but for a coordinator's.
  void Begin(int64_t term);
  // The request for the coordinator's pod is sent: from now on its term may be in use.
  void OnCoordinatorRequest() { unused_term_.reset(); }
  void End(const absl::Status& created, int64_t term);
  // Pods of each role were accepted once in a dry run.
  bool is_tried() const { return is_tried_; }
  void OnTried() { is_tried_ = true; }

  const std::string& refusal() const { return refusal_; }
  const std::optional<Obstacle>& obstacle() const { return obstacle_; }
  const std::optional<int64_t>& unused_term() const { return unused_term_; }

 private:
  std::string refusal_;
  std::optional<Obstacle> obstacle_;
  std::optional<int64_t> unused_term_;
  bool is_tried_ = false;
};

// What to write of an event.
struct EventWrite {
  std::string name;
  int count = 1;  // above 1: of the existing event of this name
  friend bool operator==(const EventWrite&, const EventWrite&) = default;
};

// The recent events of one job, so that a failing job does not flood the API server: an equal event
// increments the count of the first one, and writes a minute are limited.
class EventHistory {
 public:
  // Per job: one that flaps cannot flood the API server with events.
  static constexpr int kWritesAMinute = 10;
  // As in client-go's correlator: events this far apart are two.
  static constexpr std::chrono::minutes kSameFor{10};

  // `name` is that of a new event. Nothing: the limit of this minute is reached.
  std::optional<EventWrite> Record(const Event& event, const std::string& name, WallTime now);

 private:
  struct Recorded {
    Event event;
    std::string name;
    int count = 0;
    WallTime last{};
  };
  std::deque<Recorded> recorded_;  // of the last ten minutes
  std::deque<WallTime> times_;     // of the writes of the last minute
};

// The certificates of the job's members as last read from its Secret: what members show and trust;
// with it the operator is one of them. CertificateKeeper keeps them.
struct CertificateState {
  std::string secret = {};   // where they are from; empty: the job has none
  std::string version = {};  // VersionOf the Secret as it was read or written last
  std::shared_ptr<const pushpull::TlsFiles> files = {};  // null: no TLS
  // When to read the Secret again: its renewal is due, or it may have been deleted or replaced.
  WallTime recheck_at{};
  // Not before this time because a coordinator refuses them.
  WallTime reread_at{};
  // Why the last refresh failed, where that is worth a condition.
  std::optional<Obstacle> obstacle = {};
};

// The last write of the job's TrainingJobWorkers, which the cache must show before the next one.
class ScaleState {
 public:
  // `version` is what the cache shows; empty: there is none.
  bool MayWrite(const std::string& version, WallTime now) const {
    return now >= expires_at_ || version != replaced_;
  }
  void OnWritten(const std::string& replaced, WallTime now) {
    replaced_ = replaced;
    expires_at_ = now + Expectations::kTimeout;
  }

 private:
  std::string replaced_;
  WallTime expires_at_{};
};

// The API server did not let the operator note a runtime in the job, as a list of images does.
struct RuntimeRefusal {
  RuntimeStatus record;
  std::string message;
  WallTime retry_at{};
};

struct JobState {
  std::string uid;  // of the job
  std::optional<RuntimeRefusal> runtime_refusal = {};
  StatusMemory status = {};
  ChildState children = {};
  std::optional<Obstacle> heal_obstacle = {};  // of what others changed and could not be undone
  Expectations expectations = {};
  CertificateState certificates = {};
  bool has_no_keys = false;  // the job has ended, and its Secret is deleted
  CoordinatorBackoff backoff = {};
  std::optional<SyncRefusal> sync_refusal = {};  // Observation::sync_refusal
  CreationState creation = {};
  ScaleState scale = {};
  std::optional<Obstacle> scale_obstacle = {};  // of its TrainingJobWorkers
  EventHistory events = {};
  std::optional<uint64_t> save = {};           // Observation::save
  WallTime save_time{};                        // likewise
  std::optional<WallTime> progress_time = {};  // Observation::progress_time
};

// What the next plan is told of an object that could not be created; nothing: it was, or the error
// is no lasting one.
std::optional<Obstacle> ObstacleOf(const absl::Status& created);

// The error, marked as what users read in their job and correct there: none of the operator's, nor
// of its log. What is forbidden is not marked: it may be a right that the operator lacks.
absl::Status AsUsersMistake(absl::Status status);
bool IsUsersMistake(const absl::Status& status);

// Whether the API server refused a write because what it is for is gone or is about to be: the job,
// or its whole namespace.
bool IsAboutDeleted(const absl::Status& status);

}  // namespace pushpull_operator
