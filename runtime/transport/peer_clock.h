// SPDX-License-Identifier: Apache-2.0
//
// How the ends of a channel track each other's clock: the connecting one pings every second and
// measures the offset; its pings carry the result to the other.
#pragma once

#include <optional>
#include <utility>

#include "pushpull/deadline.h"

#include "runtime/transport/channel.h"
#include "runtime/transport/clock_estimate.h"

namespace pushpull {

// Does no I/O. Thread-compatible.
class PeerClock {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  enum class Role {
    kShared,    // both ends read the same clock
    kMeasures,  // sends pings: the connecting side
    kFollows,   // takes the offset from the peer's pings: the accepting side
  };

  // `estimate` has the handshake's sample.
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
