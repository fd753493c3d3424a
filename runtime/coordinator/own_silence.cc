// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/own_silence.h"

namespace pushpull {

Duration OwnSilence::OnEvent(SteadyTime now) {
  const Duration silence = now - last_event_.value_or(now);
  last_event_ = now;
  if (silence < shortest_) return Duration::zero();
  back_at_ = now;
  length_ = silence;
  return silence;
}

std::optional<Duration> OwnSilence::Recent(SteadyTime now) const {
  if (!back_at_ || now - *back_at_ > peer_timeout_) return std::nullopt;
  return length_;
}

}  // namespace pushpull
