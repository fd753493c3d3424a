// SPDX-License-Identifier: Apache-2.0
//
// How the ends of a channel track each other's clock: the connecting end pings every second and
// measures the offset; its pings carry the result to the other end.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "pushpull/deadline.h"

#include "runtime/transport/channel.h"

namespace pushpull {

// The wire format of durations and clocks.
inline int64_t NanosecondsOf(Duration duration) {
  return std::chrono::nanoseconds(duration).count();
}
inline int64_t NanosecondsOf(SteadyTime time) {
  return NanosecondsOf(time.time_since_epoch());
}

// One round trip: our clock, then the peer's twice, then ours.
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
// Source: the clock filter of NTP, RFC 5905 sections 8 and 10, with 16 samples instead of 8 and no
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

// Does no I/O. Thread-compatible.
class PeerClock {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  enum class Role {
    kShared,    // both ends read the same clock
    kMeasures,  // sends pings: the connecting side
    kFollows,   // takes the offset from the peer's pings: the accepting side
  };

  // `estimate` contains the handshake's sample.
  PeerClock(Role role, ClockEstimate estimate);

  Role role() const { return role_; }
  // Peer time = own time + offset.
  Duration offset() const { return offset_; }

  // The next ping; none while one is unanswered, so that a peer that does not answer is not
  // flooded.
  std::optional<OutgoingFrame> Ping();
  OutgoingFrame Answer(const ReceivedFrame& ping);
  void TakePong(const ReceivedFrame& pong);

 private:
  const Role role_;
  ClockEstimate estimate_;
  Duration offset_;
  bool is_ping_pending_ = false;
};

}  // namespace pushpull
