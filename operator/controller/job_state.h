// SPDX-License-Identifier: Apache-2.0
//
// What the operator remembers of one job between two reconciles. All of it may be lost: a new
// operator begins with none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/controller/certificate_state.h"
#include "operator/controller/coordinator_backoff.h"
#include "operator/controller/event_history.h"
#include "operator/controller/expectations.h"
#include "operator/plan/observation.h"

namespace pushpull_operator {

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

struct JobState {
  std::string uid;  // of the job
  Expectations expectations = {};
  CertificateState certificates = {};
  CoordinatorBackoff backoff = {};
  CreationState creation = {};
  EventHistory events = {};
  std::optional<uint64_t> save = {};           // Observation::save
  std::optional<WallTime> progress_time = {};  // Observation::progress_time
};

}  // namespace pushpull_operator
