// SPDX-License-Identifier: Apache-2.0
//
// The saves of a running job: turns the decisions of checkpoint_agreement.h into messages to the
// members that capture, and into commands for the thread that may block on the disk. Does nothing
// in a job without spec.checkpoint. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/coordinator/checkpoint_agreement.h"
#include "runtime/coordinator/job_members.h"
#include "runtime/coordinator/job_state.h"

namespace pushpull {

// Thread-compatible.
class CheckpointSaver {
 public:
  // Both are used, not owned, and outlive this object.
  CheckpointSaver(JobState& job, const JobMembers& members);

  // No save is under way.
  bool is_idle() const { return !agreement_ || agreement_->is_idle(); }
  CheckpointStatus status() const { return agreement_ ? agreement_->status() : CheckpointStatus{}; }
  // The job is running: saves become due from the first call on.
  void Start();
  // kFailedPrecondition: the job has no spec.checkpoint.
  absl::Status Request();
  void OnTick() {
    if (agreement_) Apply(agreement_->OnTick(View()));
  }
  void OnManifest(uint64_t attempt, const absl::Status& written);
  void OnCleared(uint64_t attempt) {
    if (agreement_) Apply(agreement_->OnCleared(View(), attempt));
  }
  void OnProbed(const absl::Status& written) {
    if (agreement_) Apply(agreement_->OnProbed(View(), written));
  }
  void OnCaptured(ServerId server, const Captured& message) {
    if (agreement_) Apply(agreement_->OnCaptured(View(), server, message));
  }
  void OnCaptured(WorkerId worker, const Captured& message);
  // Updates the save under way if members or view have changed; to be called after every event.
  void UpdateMembers();
  // Nobody takes another step for now, and the servers have all of the last one: a save does not
  // wait for a step that will never be taken.
  void SetStanding(bool is_standing);
  // Nobody takes another step, and the servers end: saves what stands, once.
  void SaveLast();
  // The save under way waits for a step that will never be taken.
  void Abandon(const std::string& why) {
    if (agreement_) Apply(agreement_->Abandon(why));
  }
  // What a job whose processes all end keeps of its steps. `obstacle`: to the last save; empty: it
  // is known from the last one, or time was short.
  Announce DescribeLast(const std::string& obstacle) const;
  // Follows the step that the job has reached, and has it noted now and then.
  void FollowStep();
  // The capture under way, for a member that has just registered.
  void SendCaptureTo(SessionId session);
  void EndJob();
  // Mode AllReduce: a worker that is done keeps its values until they are saved, because nobody
  // else may have them then; so does one whose process was told to end, if every other is leaving
  // too. True: `leave` is kept until TakeLeaves.
  bool KeepLeave(SessionId session, const Leave& leave);
  // The kept ones whose values are saved, or cannot be; to be called after every event.
  std::map<SessionId, Leave> TakeLeaves();
  // Every worker of a ring is leaving, or was told to end.
  bool IsRingLeaving() const;
  void GiveUp() {
    if (agreement_) Apply(agreement_->GiveUp());
  }

 private:
  struct KeptLeave {
    Leave leave;
    bool is_saving = false;
  };

  bool is_ring() const { return job_.options.consistency.is_ring(); }
  // A worker of the ring that neither leaves nor was told to end.
  bool Stays(const ViewMember& member) const;
  // Workers may have what is on no server: residuals of codecs, and state of programs.
  bool HaveWorkersPart() const;
  void UpdateRing(const pushpull::View& view);
  void SendParts(const Capture& order);
  CheckpointAgreement::Job View() const;
  void Apply(CheckpointChange change);

  JobState& job_;
  const JobMembers& members_;
  std::optional<CheckpointAgreement> agreement_;
  bool has_started_ = false;
  uint64_t servers_revision_ = 0;  // of the servers passed to agreement_
  uint64_t view_ = 0;              // whose workers were passed to agreement_
  bool is_over_ = false;           // the workers are done
  Step noted_;
  SteadyTime next_note_;
  bool is_standing_ = false;
  bool has_saved_last_ = false;  // since then
  // Mode AllReduce.
  std::vector<ViewMember> parts_;  // who captures which part of the attempt under way
  std::map<SessionId, KeptLeave> leaves_;
};

}  // namespace pushpull
