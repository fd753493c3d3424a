// SPDX-License-Identifier: Apache-2.0
//
// Who leads, decided from what the Lease says and from this machine's steady clock. Pure.
//
// Clocks. The times in the Lease are other machines' wall clocks: they are compared for being
// different and nothing else. A candidate counts the holder's time from the moment when it saw the
// Lease change; a leader counts its own from before it sent the renewal that succeeded. So the
// leader stops before any candidate begins, if their clocks run at the same speed to within a third
// (15 s against 10 s), wherever their hands stand.
//
// What this does not do: a write that left before the end may arrive after it. The five seconds
// between are for that, and writes carry uids and resource versions. A machine that is suspended
// stops its steady clock with it; a process that is stopped does not.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "operator/api/lease.h"
#include "runtime/base/deadline.h"

namespace pushpull_operator {

struct LeaseTimes {
  std::chrono::seconds lease{15};  // a candidate leads after it has heard nothing for this long
  std::chrono::seconds renew{10};  // a leader that could not renew for this long is none any more
  std::chrono::seconds retry{2};   // between looks, and between renewals
};

// kInvalidArgument names the two that do not go together.
absl::Status Validate(const LeaseTimes& times);

// Thread-compatible.
class Election {
 public:
  enum class Step {
    kCreate,  // there is no lease: make one
    kTake,    // it is free, or its holder is gone
    kRenew,   // it is ours
    kWait,    // it is another's
    kLost,    // it was ours; for good
  };

  // `identity` is this process's, like no other's and like no earlier one's.
  Election(std::string identity, LeaseTimes times)
      : identity_(std::move(identity)), times_(times) {}

  // The Lease was read; no record: there is none.
  void Observe(const std::optional<LeaseRecord>& record, pushpull::SteadyTime now);
  Step Next(pushpull::SteadyTime now) const;

  // What to write for kCreate, kTake and kRenew. `wall_time` is only shown to people.
  LeaseRecord RecordToWrite(const std::string& wall_time) const;
  // What to write when the leader goes: nobody has to wait.
  LeaseRecord RecordToRelease(const std::string& wall_time) const;

  // `record` was written by a request that was sent at `sent_at` or later.
  void Written(const LeaseRecord& record, pushpull::SteadyTime sent_at, pushpull::SteadyTime now);
  // It was released, or is to be taken for lost.
  void GiveUp() { is_over_ = true; }

  // Whether this process leads at `now`, and until when.
  bool Leads(pushpull::SteadyTime now) const;
  pushpull::SteadyTime leads_until() const { return leads_until_; }
  // When to look again: at the latest after `retry`, and as soon as the holder's time is over.
  pushpull::SteadyTime NextLook(pushpull::SteadyTime now) const;

  const std::string& identity() const { return identity_; }
  const LeaseTimes& times() const { return times_; }

 private:
  pushpull::SteadyTime HolderEnds() const;

  const std::string identity_;
  const LeaseTimes times_;
  std::optional<LeaseRecord> record_;  // as last seen or written
  pushpull::SteadyTime changed_at_;    // when record_ was first seen so
  bool has_led_ = false;
  bool is_over_ = false;
  pushpull::SteadyTime leads_until_;  // of has_led_
};

}  // namespace pushpull_operator
