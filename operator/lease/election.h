// SPDX-License-Identifier: Apache-2.0
//
// Leader election, decided from the Lease object and this machine's steady clock. Pure.
//
// Clocks. The times in the Lease are other machines' wall clocks; they are only compared for
// equality. A candidate counts the lease duration from when it observed the last renewal; a leader
// counts its renew deadline from before it sent the renewal. So the leader stops before any
// candidate starts, as long as the rates of their clocks differ by less than a third (15 s against
// 10 s), whatever time they show.
//
// Limits. A write sent before the renew deadline may arrive after it: the 5 s in between allow for
// that, and writes carry uids and resource versions. The steady clock stops while the machine is
// suspended, but not while the process is stopped.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "operator/api/lease.h"

namespace pushpull_operator {

struct LeaseTimes {
  // As client-go's: a candidate acquires a lease that was not renewed for lease_duration; a leader
  // that could not renew for renew_deadline steps down; retry_period is between attempts.
  std::chrono::seconds lease_duration{15};
  std::chrono::seconds renew_deadline{10};
  std::chrono::seconds retry_period{2};
};

// kInvalidArgument names the two that are inconsistent.
absl::Status Validate(const LeaseTimes& times);

// Thread-compatible.
class Election {
 public:
  enum class Step {
    kCreate,   // there is no Lease, and nobody holds a previous one
    kAcquire,  // it is free or has expired
    kRenew,    // it is ours
    kWait,     // another process holds it, or held it when it was deleted
    kLost,     // it was ours; final
  };

  // `identity` is unique to this process; a restart has another one. `was_seen`: the Lease has
  // existed, so a missing one was deleted. It is created again only once its holder must have
  // stepped down; after a release was uninstalled, nobody creates it again.
  Election(std::string identity, LeaseTimes times, bool was_seen = false)
      : identity_(std::move(identity)), times_(times), was_seen_(was_seen) {}

  // The Lease was read; no record: it does not exist.
  void Observe(const std::optional<LeaseRecord>& record, pushpull::SteadyTime now);
  Step Next(pushpull::SteadyTime now) const;

  // What to write for kCreate, kAcquire and kRenew. `wall_time` is for people only.
  LeaseRecord RecordToWrite(const std::string& wall_time) const;
  // What to write on shutdown, so that a standby need not wait.
  LeaseRecord RecordToRelease(const std::string& wall_time) const;

  // `record` was written by a request that was sent at `sent_at` or later.
  void OnWritten(const LeaseRecord& record, pushpull::SteadyTime sent_at, pushpull::SteadyTime now);
  // Gives up leadership; final.
  void StepDown() { is_over_ = true; }

  // As last seen: the Lease was never created, or was deleted.
  bool is_missing() const { return !record_.has_value(); }
  // Whether this process is the leader at `now`, and until when.
  bool IsLeader(pushpull::SteadyTime now) const;
  pushpull::SteadyTime leads_until() const { return leads_until_; }
  // When to read the Lease again: after retry_period, or earlier when it expires.
  pushpull::SteadyTime NextCheck(pushpull::SteadyTime now) const;

 private:
  pushpull::SteadyTime LeaseEnds() const;

  const std::string identity_;
  const LeaseTimes times_;
  bool was_seen_;
  std::optional<LeaseRecord> record_;               // as last read or written
  std::optional<pushpull::SteadyTime> changed_at_;  // when record_ was first observed
  bool has_led_ = false;
  bool is_over_ = false;
  pushpull::SteadyTime leads_until_;  // of has_led_
};

}  // namespace pushpull_operator
