// SPDX-License-Identifier: Apache-2.0
//
// Takes part in the election for one Lease, and answers before every write whether this process
// may. One elector leads once: when the lease is lost all that was done under it has to end, so
// that no half of the work goes on under another leader.
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
  std::string identity;  // of this process, like no other's and like no earlier one's
  LeaseTimes times;
  // Shown in the Lease for people. A test puts clocks there that are wrong.
  std::function<std::chrono::system_clock::time_point()> wall_clock =
      std::chrono::system_clock::now;
  // For the log: a look at the Lease failed, and that is worth a line. May be empty.
  std::function<void(const absl::Status&)> on_trouble;
};

// Run belongs to one thread; MayWrite and leads are thread-safe.
class LeaderElector {
 public:
  // `client` has no write guard of this elector, or it could never begin. Both must outlive it.
  LeaderElector(KubeClient& client, PausingTime& time, LeaderElectorOptions options);
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  // Waits until this process leads, calls `on_leading` once on this thread, which must not block,
  // and renews.
  //
  // kFailedPrecondition   the lease is lost: end everything, without another write.
  // kCancelled            cancelled; Release is next.
  // kInvalidArgument      the options, before anything was done.
  // Everything else is waited out: an API server that is away, a refusal.
  absl::Status Run(const std::function<void()>& on_leading, const Cancellation& cancellation);

  // Gives the lease back so that a standby need not wait for its end. After everything that writes
  // has stopped; writes are refused from the first moment on. OK where this process does not lead.
  absl::Status Release(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // For ClientOptions::may_write. kFailedPrecondition when this process does not lead now.
  absl::StatusOr<pushpull::SteadyTime> MayWrite() const ABSL_LOCKS_EXCLUDED(mu_);
  bool leads() const { return MayWrite().ok(); }

  // Why the last look at the Lease, or the last write of it, failed; OK when it did not.
  absl::Status last_error() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Reads the Lease, and writes it if that is what Election says.
  absl::Status Look() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Write(Election::Step step, pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Object> Send(Election::Step step,
                              const LeaseRecord& record,
                              pushpull::Deadline deadline);
  void Note(const absl::Status& looked) ABSL_LOCKS_EXCLUDED(mu_);
  // A try must leave time for another one.
  pushpull::Deadline TryDeadline() const ABSL_LOCKS_EXCLUDED(mu_);
  std::string WallTime() const { return MicroTimeText(options_.wall_clock()); }

  KubeClient& client_;
  PausingTime& time_;
  const LeaderElectorOptions options_;
  std::optional<Object> object_;  // the Lease as last read or written; of the thread of Run
  pushpull::RetryPace pace_;      // of warnings; likewise

  mutable pushpull::Mutex mu_;
  Election election_ ABSL_GUARDED_BY(mu_);
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
