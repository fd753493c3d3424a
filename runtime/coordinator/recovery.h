// SPDX-License-Identifier: Apache-2.0
//
// The start of a coordinator that replaces an earlier one: members report their state until enough
// is known to continue the job (docs/protocol.md section 6). collection.h combines the reports;
// this file decides when to stop waiting for missing ones. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/collection.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class Recovery {
 public:
  // Both are used, not owned, and outlive this object.
  Recovery(const JobCoreOptions& options, const MemberRegistry& members);

  bool is_under_way() const { return collection_.has_value(); }
  // False for answers to an earlier coordinator, which are ignored until this one has asked its own
  // questions.
  static bool IsUnderstood(const FromMember& message);

  // kFailedPrecondition: a member has promised a higher term, so another coordinator has taken
  // over.
  absl::Status CheckTerm(Term promised);
  // A member has registered: the time within which others must follow starts with the first one.
  void OnRegistered(SteadyTime now) {
    if (!first_registered_at_) first_registered_at_ = now;
  }
  // Reports and departures count only while is_under_way().
  void Add(ServerId server, const ServerReport& report) { collection_->Add(server, report); }
  void Add(const RegisterWorker& worker, const WorkerReport& report) {
    collection_->Add(worker, report);
  }
  void Remove(ServerId server) { collection_->Remove(server); }
  void Remove(WorkerId worker) {
    collection_->Remove(worker);
    deferred_leaves_.erase(worker);
  }
  // A worker announced its last step before the view is known: kept for TakeLeaves.
  void Defer(WorkerId worker, const Leave& leave) { deferred_leaves_[worker] = leave; }
  std::map<WorkerId, Leave> TakeLeaves() { return std::exchange(deferred_leaves_, {}); }

  struct Wait {
    std::string warning;  // for the log; may be empty
  };
  struct StartNew {};  // no member knows of a job under way
  // The job continues from here or, if it had not begun, starts with these tensors and sizes.
  struct GoOn {
    CollectedJob job;
  };
  using Decision = std::variant<Wait, StartNew, GoOn>;
  // The newest size reported; revision 0: none.
  DesiredSize desired() const { return collection_->Decide().desired; }
  // To be called after every report and tick. Anything but Wait ends the recovery.
  // `desired_servers` according to the newest size known.
  Decision Advance(SteadyTime now, uint32_t desired_servers);

 private:
  Decision Decide(SteadyTime now, uint32_t desired_servers);
  bool IsComplete() const;
  Decision DecideWithoutState(Duration waited, uint32_t desired_servers, CollectedJob job) const;

  const JobCoreOptions& options_;
  const MemberRegistry& members_;
  std::optional<Collection> collection_;  // while under way
  Term highest_term_;                     // that any member promised
  std::optional<SteadyTime> first_registered_at_;
  bool has_named_missing_ = false;
  std::map<WorkerId, Leave> deferred_leaves_;
};

}  // namespace pushpull
