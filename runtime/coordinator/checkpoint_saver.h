// SPDX-License-Identifier: Apache-2.0
//
// The saves of a running job: turns what checkpoint_agreement.h decides into messages to those that
// capture, and into commands for the thread that may wait for the disk. Nothing happens in a job
// without spec.checkpoint. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/checkpoint_agreement.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/job_members.h"
#include "runtime/coordinator/job_statistics.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class CheckpointSaver {
 public:
  // All are used, not owned, and outlive this object.
  CheckpointSaver(const JobCoreOptions& options,
                  const MemberRegistry& registry,
                  const JobMembers& members,
                  const JobStatistics& statistics,
                  Outbox& outbox);

  // No save is under way.
  bool is_idle() const { return !agreement_ || agreement_->is_idle(); }
  CheckpointStatus status() const { return agreement_ ? agreement_->status() : CheckpointStatus{}; }
  // The folder of the job's checkpoints; empty while it has none to rebuild shards from.
  std::string FolderInUse() const;

  // The job is running: from the first call on, saves are due.
  void Start(SteadyTime now);
  // The number of the save. kFailedPrecondition: the job has no spec.checkpoint.
  absl::StatusOr<uint64_t> Request(SteadyTime now);
  void OnTick(SteadyTime now);
  void OnManifest(SteadyTime now, uint64_t attempt, const absl::Status& written);
  void OnCleared(SteadyTime now, uint64_t attempt);
  void OnCaptured(SteadyTime now, ServerId server, const Captured& message);
  void OnCaptured(WorkerId worker, const Captured& message);
  // Compares members and view with those that the save under way knows; after every event.
  void UpdateMembers(SteadyTime now);
  // The capture under way, for a member that has just registered.
  void SendCaptureTo(SessionId session);
  void EndJob(SteadyTime now);
  void GiveUp();

 private:
  CheckpointAgreement::Job View() const;
  void Apply(CheckpointChange change);

  const JobCoreOptions& options_;
  const MemberRegistry& registry_;
  const JobMembers& members_;
  const JobStatistics& statistics_;
  Outbox& outbox_;
  std::optional<CheckpointAgreement> agreement_;
  bool has_started_ = false;
  uint64_t servers_revision_ = 0;  // of the servers that agreement_ knows
  uint64_t view_ = 0;              // whose workers agreement_ knows
  bool is_over_ = false;           // the workers are done
};

}  // namespace pushpull
