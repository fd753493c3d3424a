// SPDX-License-Identifier: Apache-2.0
//
// Takes part in the election for one Lease and guards writes. One elector leads at most once: when
// the lease is lost, everything that ran under it must end before a new elector starts.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "operator/kube/cancellation.h"
#include "operator/kube/client.h"
#include "operator/kube/pausing_time.h"
#include "operator/lease/election.h"
#include "runtime/base/mutex.h"
#include "runtime/base/retry_pace.h"

namespace pushpull_operator {

struct LeaderElectorOptions {
  ObjectKey lease;       // of the Lease object
  std::string identity;  // unique to this process; a restart has another one
  LeaseTimes times;
  bool was_seen = false;  // see Election
  // For the times in the Lease, which are for people only.
  std::function<std::chrono::system_clock::time_point()> wall_clock =
      std::chrono::system_clock::now;
  // For the log; called for failures worth a line (retry_pace.h). May be empty.
  std::function<void(const absl::Status&)> on_error;
};

// Run is for one thread; MayWrite and is_leader are thread-safe.
class LeaderElector {
 public:
  // `client` must not be guarded by this elector, or it could never acquire. Both must outlive it.
  LeaderElector(KubeClient& client, PausingTime& time, LeaderElectorOptions options);
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  // Waits until this process leads, calls `on_leading` once on this thread, which must not block,
  // and renews. Outages and refusals of the API server are retried.
  //
  //   kFailedPrecondition  the lease is lost: stop everything without another write
  //   kCancelled           cancelled: call Release next
  //   kInvalidArgument     invalid options; nothing was done
  absl::Status Run(const std::function<void()>& on_leading, const Cancellation& cancellation);

  // Releases the lease so that a standby need not wait for it to expire. Call after everything that
  // writes has stopped: writes are refused from now on. OK if this process does not lead, or if the
  // Lease is gone or another's.
  absl::Status Release(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // For ClientOptions::may_write. kFailedPrecondition if this process is not the leader.
  absl::StatusOr<pushpull::SteadyTime> MayWrite() const ABSL_LOCKS_EXCLUDED(mu_);
  bool is_leader() const { return MayWrite().ok(); }

  // The result of the last attempt to read and write the Lease.
  absl::Status last_error() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Reads the Lease, and writes it as the election decides.
  absl::Status TryAcquireOrRenew() ABSL_LOCKS_EXCLUDED(mu_);
  // Into object_. Nothing: there is no Lease.
  absl::StatusOr<std::optional<LeaseRecord>> Read(pushpull::Deadline deadline);
  absl::Status Write(Election::Step step, pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Object> Send(Election::Step step,
                              const LeaseRecord& record,
                              pushpull::Deadline deadline);
  void Record(const absl::Status& attempt) ABSL_LOCKS_EXCLUDED(mu_);
  // An attempt must leave time for another one.
  pushpull::Deadline AttemptDeadline() const ABSL_LOCKS_EXCLUDED(mu_);
  std::string WallTime() const { return MicroTimeText(options_.wall_clock()); }

  KubeClient& client_;
  PausingTime& time_;
  const LeaderElectorOptions options_;
  // For the thread of Run:
  std::optional<Object> object_;  // the Lease as last read or written
  pushpull::RetryPace pace_;      // of warnings

  mutable pushpull::Mutex mu_;
  Election election_ ABSL_GUARDED_BY(mu_);
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
