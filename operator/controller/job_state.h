// SPDX-License-Identifier: Apache-2.0
//
// What the operator remembers of one job between reconciles. All of it may be lost: a new operator
// starts without any. Pure.
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
// Kubernetes' controllers: a plan based on an older state would create a pod twice or count an end
// twice.
class Expectations {
 public:
  // How long to wait for a write to show. An object that is still missing then was deleted
  // meanwhile.
  static constexpr std::chrono::seconds kTimeout{10};

  // The job was patched: its version will differ from `replaced`.
  void ExpectUpdate(const std::string& replaced, WallTime now);
  void ExpectPod(const ObjectMeta& created, WallTime now);
  // Whether `job` shows all writes, or kTimeout has passed since the last one.
  bool AreMet(const ObservedJob& job);

 private:
  std::string replaced_version_;
  std::map<std::string, std::string> created_pods_;  // name -> uid
  WallTime expires_at_{};
};

// When to call a coordinator again that did not answer in time: each such call keeps a worker from
// other jobs until its deadline.
class CoordinatorBackoff {
 public:
  static constexpr std::chrono::seconds kPauseMin{4};
  static constexpr std::chrono::seconds kPauseMax{32};

  // Whether the coordinator in the pod with this uid may be called now.
  bool MayAsk(const std::string& pod_uid, WallTime now) const {
    return pod_uid != silent_uid_ || now >= ask_at_;
  }
  void OnAnswer() { silent_uid_.clear(); }
  // The pause doubles with each consecutive timeout of the same pod.
  void OnTimeout(const std::string& pod_uid, WallTime now);

 private:
  std::string silent_uid_;  // of the pod that did not answer last; empty: none
  std::chrono::seconds pause_{0};
  WallTime ask_at_{};
};

// How creating the job's pods went, for the next plan.
class CreationState {
 public:
  // A pod is about to be created; `term` is 0 except for a coordinator's.
  void Begin(int64_t term);
  // The request for the coordinator's pod is about to be sent: from now on its term may be in use.
  void OnCoordinatorRequest() { unused_term_.reset(); }
  void End(const absl::Status& created, int64_t term);
  // Whether a pod of each role has been accepted in a dry run.
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

// How to write an event.
struct EventWrite {
  std::string name;
  int count = 1;  // above 1: of the existing event with this name
  friend bool operator==(const EventWrite&, const EventWrite&) = default;
};

// The recent events of one job, so that a failing job does not flood the API server: an equal event
// increments the count of the first one, and writes per minute are limited.
class EventHistory {
 public:
  // Per job: one that flaps cannot flood the API server with events.
  static constexpr int kWritesAMinute = 10;
  // As in client-go's correlator: events this far apart are distinct.
  static constexpr std::chrono::minutes kSameFor{10};

  // `name` is used for a new event. Nothing: the limit for this minute is reached.
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

// The certificates as last read from the job's Secret: those that members trust, and a pair that
// lets the operator connect like a member. Kept by CertificateKeeper.
struct CertificateState {
  std::string secret = {};   // where they are from; empty: the job has none
  std::string version = {};  // VersionOf the Secret as last read or written
  std::shared_ptr<const pushpull::TlsFiles> files = {};  // null: no TLS
  // When to read the Secret again: renewal is due, or it may have been deleted or replaced.
  WallTime recheck_at{};
  // When a coordinator's refusal may next cause a read.
  WallTime reread_at{};
  // Why the last refresh failed, if that is worth a condition.
  std::optional<Obstacle> obstacle = {};
};

// The last write to the job's TrainingJobWorkers, which the cache must show before the next one.
class ScaleState {
 public:
  // `version` is the one in the cache; empty: there is none.
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

// The API server did not let the operator record a runtime in the job, because of a list of images
// for instance.
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
  std::optional<Obstacle> heal_obstacle = {};  // others' changes that could not be undone
  Expectations expectations = {};
  CertificateState certificates = {};
  bool has_no_keys = false;  // the job has ended, and its Secret is deleted
  CoordinatorBackoff backoff = {};
  std::optional<SyncRefusal> sync_refusal = {};  // Observation::sync_refusal
  CreationState creation = {};
  ScaleState scale = {};
  std::optional<Obstacle> scale_obstacle = {};  // about its TrainingJobWorkers
  EventHistory events = {};
  std::optional<uint64_t> save = {};           // Observation::save
  WallTime save_time{};                        // likewise
  std::optional<WallTime> progress_time = {};  // Observation::progress_time
};

// What the next plan is to report about an object that could not be created; nothing: it was
// created, or the error will pass.
std::optional<Obstacle> ObstacleOf(const absl::Status& created);

// The error, marked as one that users see in their job and correct there; it does not count as an
// error of the operator. Forbidden requests are not marked: the operator may lack a permission.
absl::Status AsUsersMistake(absl::Status status);
bool IsUsersMistake(const absl::Status& status);

// Whether the API server refused a write because its target is gone or being deleted: the job, or
// its whole namespace.
bool IsAboutDeleted(const absl::Status& status);

}  // namespace pushpull_operator
