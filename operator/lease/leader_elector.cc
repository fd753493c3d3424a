// SPDX-License-Identifier: Apache-2.0
#include "operator/lease/leader_elector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using pushpull::Deadline;
using pushpull::MutexLock;
using pushpull::SteadyTime;

LeaderElector::LeaderElector(KubeClient& client, PausingTime& time, LeaderElectorOptions options)
    : client_(client),
      time_(time),
      options_(std::move(options)),
      pace_(options_.times.retry_period, options_.times.retry_period),
      election_(options_.identity, options_.times, options_.was_seen) {}

Deadline LeaderElector::AttemptDeadline() const {
  const SteadyTime soon = time_.Now() + options_.times.renew_deadline / 2;
  MutexLock lock(mu_);
  return Deadline(election_.IsLeader(time_.Now()) ? std::min(soon, election_.leads_until()) : soon);
}

absl::Status LeaderElector::Run(const std::function<void()>& on_leading,
                                const Cancellation& cancellation) {
  PUSHPULL_RETURN_IF_ERROR(Validate(options_.times));
  if (options_.identity.empty()) return absl::InvalidArgumentError("lease: the identity is empty");
  bool has_notified = false;
  for (;;) {
    const absl::Status status = TryAcquireOrRenew();
    Record(status);
    SteadyTime next;
    {
      MutexLock lock(mu_);
      if (election_.Next(time_.Now()) == Election::Step::kLost) {
        const char* taken = election_.is_missing() ? "it was deleted" : "another process holds it";
        return absl::FailedPreconditionError(absl::StrCat("the lease ",
                                                          ToString(options_.lease),
                                                          " is lost: ",
                                                          status.ok() ? taken : status.ToString()));
      }
      next = election_.NextCheck(time_.Now());
    }
    if (!has_notified && is_leader()) {
      has_notified = true;
      on_leading();
    }
    if (!time_.PauseUntil(next, cancellation)) {
      return absl::CancelledError("the election was cancelled");
    }
  }
}

void LeaderElector::Record(const absl::Status& attempt) {
  {
    MutexLock lock(mu_);
    last_error_ = attempt;
  }
  // Losing a race to another candidate is not an error.
  if (attempt.ok() || absl::IsAborted(attempt)) return pace_.Succeeded();
  pace_.Failed(time_.Now());
  if (pace_.is_warning_due() && options_.on_error) options_.on_error(attempt);
}

absl::Status LeaderElector::TryAcquireOrRenew() {
  Election::Step step = Election::Step::kLost;
  {
    MutexLock lock(mu_);
    step = election_.Next(time_.Now());
  }
  if (step == Election::Step::kLost)
    return absl::DeadlineExceededError("not renewed within the renew deadline");
  const Deadline deadline = AttemptDeadline();
  // A leader overwrites the version it wrote last, and reads the Lease only after a conflict.
  if (step == Election::Step::kRenew) {
    absl::Status status = Write(step, deadline);
    if (!absl::IsAborted(status) && !absl::IsNotFound(status)) return status;
  }
  PUSHPULL_ASSIGN_OR_RETURN(const std::optional<LeaseRecord> record, Read(deadline));
  {
    MutexLock lock(mu_);
    election_.Observe(record, time_.Now());
    step = election_.Next(time_.Now());
  }
  if (step == Election::Step::kWait || step == Election::Step::kLost) return absl::OkStatus();
  return Write(step, deadline);
}

absl::StatusOr<std::optional<LeaseRecord>> LeaderElector::Read(Deadline deadline) {
  absl::StatusOr<Object> read = client_.Get(LeaseType(), options_.lease, deadline);
  if (!read.ok() && !absl::IsNotFound(read.status())) return read.status();
  object_.reset();
  if (!read.ok()) return std::nullopt;
  PUSHPULL_ASSIGN_OR_RETURN(LeaseRecord record, DecodeLease(*read));
  object_ = *std::move(read);
  return record;
}

absl::Status LeaderElector::Write(Election::Step step, Deadline deadline) {
  LeaseRecord record;
  {
    MutexLock lock(mu_);
    record = election_.RecordToWrite(WallTime());
  }
  const SteadyTime sent_at = time_.Now();
  PUSHPULL_ASSIGN_OR_RETURN(Object written, Send(step, record, deadline));
  // Later reads are compared with what the server stored.
  PUSHPULL_ASSIGN_OR_RETURN(record, DecodeLease(written));
  object_ = std::move(written);
  MutexLock lock(mu_);
  election_.OnWritten(record, sent_at, time_.Now());
  return absl::OkStatus();
}

absl::StatusOr<Object> LeaderElector::Send(Election::Step step,
                                           const LeaseRecord& record,
                                           Deadline deadline) {
  if (step == Election::Step::kCreate) {
    PUSHPULL_RETURN_IF_ERROR(client_
                                 .Create(LeaseType(),
                                         options_.lease.object_namespace,
                                         NewLeaseText(options_.lease, record),
                                         DryRun::kNo,
                                         deadline)
                                 .status());
    return client_.Get(LeaseType(), options_.lease, deadline);
  }
  return client_.Replace(LeaseType(), options_.lease, ChangedLeaseText(*object_, record), deadline);
}

absl::Status LeaderElector::Release(Deadline deadline) {
  LeaseRecord record;
  {
    MutexLock lock(mu_);
    const bool led = election_.IsLeader(time_.Now());
    election_.StepDown();
    if (!led) return absl::OkStatus();
    record = election_.RecordToRelease(WallTime());
  }
  absl::Status released = Send(Election::Step::kRenew, record, deadline).status();
  if (absl::IsNotFound(released)) return absl::OkStatus();
  if (!absl::IsAborted(released)) return released;
  // Somebody wrote it meanwhile, or it is a different object by now.
  PUSHPULL_ASSIGN_OR_RETURN(const std::optional<LeaseRecord> now, Read(deadline));
  if (!now || now->holder != options_.identity) return absl::OkStatus();
  return Send(Election::Step::kRenew, record, deadline).status();
}

absl::StatusOr<SteadyTime> LeaderElector::MayWrite() const {
  MutexLock lock(mu_);
  if (election_.IsLeader(time_.Now())) return election_.leads_until();
  return absl::FailedPreconditionError(
      absl::StrCat("this process does not hold the lease ", ToString(options_.lease)));
}

absl::Status LeaderElector::last_error() const {
  MutexLock lock(mu_);
  return last_error_;
}

}  // namespace pushpull_operator
