// SPDX-License-Identifier: Apache-2.0
//
// Detects that the coordinator itself was away: stopped, starved of CPU time, or cut off from the
// network. Members cannot tell that from its death: after a while they close their connections and
// look for a coordinator, and it must not declare them lost because of that
// (docs/decisions/0068-a-coordinator-that-was-away-steps-down.md). Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "pushpull/deadline.h"

namespace pushpull {

// Thread-compatible.
class OwnSilence {
 public:
  explicit OwnSilence(Duration peer_timeout)
      : peer_timeout_(peer_timeout), shortest_(std::min(kShortest, peer_timeout / 2)) {}

  // To be called on every event, and a few times per peer_timeout. Returns how long the coordinator
  // has just stood still; zero if it has not.
  Duration OnEvent(SteadyTime now);

  // How long it stood still, for one peer_timeout afterwards: connections that end until then may
  // have been closed by live members.
  std::optional<Duration> Recent(SteadyTime now) const;

  // So many members have been silent for most of the timeout that more likely this coordinator
  // cannot be reached.
  static bool IsCutOff(size_t silent, size_t members) { return silent > 1 && 2 * silent > members; }

 private:
  // Members wait 5 to 10 s for an answer to their keepalive (control_client.cc).
  static constexpr Duration kShortest = std::chrono::seconds(5);

  const Duration peer_timeout_;
  const Duration shortest_;
  std::optional<SteadyTime> last_event_;
  std::optional<SteadyTime> back_at_;
  Duration length_{0};
};

}  // namespace pushpull
