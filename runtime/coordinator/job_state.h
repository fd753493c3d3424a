// SPDX-License-Identifier: Apache-2.0
//
// State shared by the parts of the coordinator's core: the options, the members, the statistics,
// and the commands that follow from an event. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/command.h"
#include "runtime/coordinator/culprit_watch.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/job_lifecycle.h"
#include "runtime/coordinator/job_statistics.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/coordinator/saved_state.h"
#include "runtime/coordinator/stall_watch.h"

namespace pushpull {

// The commands that follow from one event, in the order in which they are carried out: a member
// receives decisions in the order in which the parts made them. Thread-compatible.
class Outbox {
 public:
  // `members` is used, not owned, and outlives this object.
  Outbox(const MemberRegistry& members, Term term) : members_(members), term_(term) {}

  void Send(SessionId session, ToMember message) { Add(SendMessage{session, std::move(message)}); }
  // Dropped if the member has no session.
  void Send(ServerId server, ToMember message);
  void Send(WorkerId worker, ToMember message);
  void SendToServers(const ToMember& message);
  void SendToWorkers(const ToMember& message);
  void SendToMembers(const ToMember& message) {
    SendToServers(message);
    SendToWorkers(message);
  }
  // Ends a session that may not continue, with a message that says why.
  void Refuse(SessionId session, absl::Status why);
  void Log(std::string text) { Add(Announce{false, std::move(text)}); }
  void Warn(std::string text) { Add(Announce{true, std::move(text)}); }
  void Add(Command command) { commands_.push_back(std::move(command)); }

  // Everything since the last call.
  std::vector<Command> Take() { return std::exchange(commands_, {}); }

 private:
  const MemberRegistry& members_;
  const Term term_;
  std::vector<Command> commands_;
};

// Thread-compatible.
struct JobState {
  explicit JobState(JobCoreOptions its_options)
      : options(std::move(its_options)), reached(options.step_before) {
    if (!options.restore) return;
    const bool values_only = options.restores_values_only;
    saved = {.folder = options.restore->folder,
             .step = values_only ? Step{} : StepAfter(options.restore->manifest),
             .values_only = values_only};
  }

  // It has a checkpoint of its own.
  bool can_resume() const { return !saved.folder.empty() && !saved.values_only; }
  // The first view with workers is in force, and not because a coordinator before this one has
  // brought it about.
  void Begin() {
    lifecycle.Start(now);
    // A ring says at which step it begins.
    if (!options.consistency.is_ring()) BeginAt(saved.step);
  }
  // All members begin together at this step.
  void BeginAt(Step step);
  void Fail(JobFailure failure) { lifecycle.Fail(now, std::move(failure)); }

  const JobCoreOptions options;
  SteadyTime now;  // of the event under way
  MemberRegistry members;
  Outbox outbox{members, options.term};
  JobLifecycle lifecycle{options.settings.job, options.failure_grace};
  JobStatistics statistics;
  StallWatch stalls{options.settings.stall};
  CulpritWatch culprits;
  // The checkpoint that the job has saved last, else the one that it started from. Others in its
  // folder may belong to another history.
  SavedState saved;
  Step reached;  // the highest step so far, of earlier coordinators too
  // As of JobStatus.
  std::optional<Step> began_step;
  Step step_before;
  uint64_t steps_lost = 0;
};

}  // namespace pushpull
