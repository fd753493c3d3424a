// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a worker's steps goes: its program, the link to each server, each server,
// waiting for other workers. Sums since the start, from which the coordinator finds which member
// holds the others up (coordinator/culprit_watch.h).
#pragma once

#include <cstdint>
#include <map>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/transport/frame.h"
#include "runtime/worker/sync_meter.h"

namespace pushpull {

// The length of a union of intervals that are added roughly in order. Thread-compatible.
class BusyTime {
 public:
  // In nanoseconds of one clock; an interval that ends before it begins is empty. Time before the
  // latest end so far does not count, so an out-of-order interval may be lost.
  void Add(int64_t begin, int64_t end);
  double seconds() const { return static_cast<double>(total_) * 1e-9; }

 private:
  int64_t until_ = 0;
  int64_t total_ = 0;
};

// Thread-confined to the worker's executor. Bounded: one entry per server.
class LinkMeter {
 public:
  // A push of `bytes` has been answered, gradient and value together. `offset` is the server's
  // clock minus the worker's.
  void OnAnswer(ServerId server,
                SteadyTime received,
                const PublishedTiming& timing,
                Duration offset,
                uint64_t bytes);
  void OnStep(const SyncObservation& observation);

  StepCosts costs() const;

 private:
  struct Link {
    uint64_t bytes = 0;
    BusyTime up;  // by the worker's clock
    BusyTime down;
    BusyTime queue;    // by the server's clock
    int64_t work = 0;  // adding and applying, in nanoseconds
  };

  uint64_t steps_ = 0;
  Duration step_{0};
  Duration own_{0};
  Duration wait_{0};
  std::map<ServerId, Link> links_;
};

}  // namespace pushpull
