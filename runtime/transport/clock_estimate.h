// SPDX-License-Identifier: Apache-2.0
//
// The offset of a peer's steady clock, from messages that went there and back.
#pragma once

#include <cstddef>
#include <deque>

#include "pushpull/deadline.h"

namespace pushpull {

// One exchange: our clock, then the peer's two, then ours.
struct ClockSample {
  SteadyTime sent;
  SteadyTime peer_received;
  SteadyTime peer_sent;
  SteadyTime received;
};

// Keeps the last samples and uses the one with the shortest round trip, because queueing only ever
// adds to it. The error is at most half of that round trip; drift is bounded by how long a sample
// is kept. Thread-compatible.
//
// Source: the clock filter of NTP, RFC 5905 sections 8 and 10, with 16 samples in place of 8 and no
// dispersion.
class ClockEstimate {
 public:
  void Add(const ClockSample& sample);
  // Peer time = our time + offset; zero before the first sample.
  Duration offset() const;

 private:
  struct Measurement {
    Duration round_trip;
    Duration offset;
  };
  static constexpr size_t kSamplesKept = 16;
  std::deque<Measurement> measurements_;
};

}  // namespace pushpull
