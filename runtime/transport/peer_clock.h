// SPDX-License-Identifier: Apache-2.0
//
// How a channel keeps to know its peer's clock: one end asks every second, and its questions tell
// the other.
#pragma once

#include <optional>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/clock_estimate.h"

namespace pushpull {

// Does no I/O. Thread-compatible.
class PeerClock {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  enum class Role {
    kShared,    // both ends read the same clock
    kMeasures,  // asks: the connecting side
    kIsTold,    // by the peer's questions: the accepting side
  };

  // `estimate`: what is known from the handshake.
  PeerClock(Role role, ClockEstimate estimate);

  Role role() const { return role_; }
  // Peer time = own time + offset.
  Duration offset() const { return offset_; }

  // The next question; none while one is under way, for a peer that does not answer must not be
  // sent ever more.
  std::optional<OutgoingFrame> Ask();
  OutgoingFrame Answer(const ReceivedFrame& ping);
  void TakeAnswer(const ReceivedFrame& pong);

 private:
  const Role role_;
  ClockEstimate estimate_;
  Duration offset_;
  bool is_asking_ = false;
};

}  // namespace pushpull
