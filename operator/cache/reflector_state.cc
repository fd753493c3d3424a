// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/reflector_state.h"

#include <algorithm>
#include <optional>

#include "operator/kube/api_error.h"

namespace pushpull_operator {

using pushpull::Duration;
using pushpull::SteadyTime;

Duration ReflectorState::Backoff(const absl::Status& status, double jitter, SteadyTime now) {
  // Progress resets the backoff.
  if (has_progressed_) pace_.Succeeded();
  has_progressed_ = false;
  Duration pause = pace_.Failed(now);
  pause += pushpull::FromSeconds(pushpull::ToSeconds(pause) * 0.5 * jitter);
  const std::optional<ApiError> error = ApiErrorOf(status);
  if (error.has_value() && error->retry_after.has_value()) {
    pause = std::max<Duration>(pause, *error->retry_after);
  }
  return pause;
}

Duration ReflectorState::OnListed(const std::string& version) {
  step_ = Step::kWatch;
  version_ = version;
  // Not progress yet: a server whose lists are always too old for its watches must not be listed in
  // a hot loop.
  return Duration::zero();
}

Duration ReflectorState::OnListFailed(const absl::Status& status, double jitter, SteadyTime now) {
  return Backoff(status, jitter, now);
}

Duration ReflectorState::OnWatchEnded(const absl::Status& status, double jitter, SteadyTime now) {
  const bool is_too_old = absl::IsOutOfRange(status);
  // A malformed stream would be malformed at the same place again.
  const bool is_malformed = absl::IsDataLoss(status) ||
                            (absl::IsResourceExhausted(status) && !ApiErrorOf(status).has_value());
  if (is_too_old || is_malformed) step_ = Step::kList;
  if ((status.ok() || is_too_old) && has_progressed_) {
    has_progressed_ = false;
    pace_.Succeeded();
    return Duration::zero();
  }
  return Backoff(status, jitter, now);
}

void ReflectorState::OnProgress(const std::string& version) {
  if (!version.empty()) version_ = version;
  has_progressed_ = true;
}

}  // namespace pushpull_operator
