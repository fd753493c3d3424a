// SPDX-License-Identifier: Apache-2.0
//
// The end of all processes of a job at once
// (docs/decisions/0101-a-job-that-is-taken-down-is-saved.md): its last step is saved when nobody
// takes another one. Pure.
#pragma once

#include "absl/status/status.h"

#include "runtime/coordinator/checkpoint_saver.h"
#include "runtime/coordinator/command.h"
#include "runtime/coordinator/job_members.h"
#include "runtime/coordinator/job_state.h"

namespace pushpull {

// Thread-compatible.
class Takedown {
 public:
  // All are used, not owned, and outlive this object.
  Takedown(JobState& job, JobMembers& members, CheckpointSaver& saver)
      : job_(job), members_(members), saver_(saver) {}

  // The coordinator's own process was told to end.
  void Begin();
  bool has_begun() const { return has_begun_; }
  // Whoever has the job's values is about to end.
  bool IsOfWholeJob() const { return members_.resizer().AreAllLeaving() || saver_.IsRingLeaving(); }
  // To be called after every event, once the saver knows the members.
  void Settle();
  void OnTick();
  // kFailedPrecondition: a save would find nothing whole.
  absl::Status CheckHasValues() const;
  // What the job keeps of its steps.
  Announce Describe() const;

 private:
  // Whether any worker of a job with servers will take another step.
  enum class Standstill {
    kNone,   // one will
    kWhole,  // none will, and the servers have everything of the last step
    kBroken  // none will, and what only the last ones' programs knew of it is lost with them
  };
  Standstill standstill() const;
  void SaveBeforeServersLeave();
  void DropStalled();

  JobState& job_;
  JobMembers& members_;
  CheckpointSaver& saver_;
  bool has_begun_ = false;
  bool has_saved_for_servers_ = false;  // since all of them are about to end
};

}  // namespace pushpull
