// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/reflection.h"

#include <algorithm>
#include <optional>

#include "operator/kube/api_error.h"

namespace pushpull_operator {

using pushpull::Duration;
using pushpull::SteadyTime;

Duration Reflection::Pause(const absl::Status& status, double jitter, SteadyTime now) {
  // What worked for a while does not pay for old failures.
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

Duration Reflection::Listed(const std::string& version) {
  step_ = Step::kWatch;
  version_ = version;
  // Not yet progress: a server whose every list is too old for its watch must not be listed in a
  // hot loop.
  return Duration::zero();
}

Duration Reflection::ListFailed(const absl::Status& status, double jitter, SteadyTime now) {
  return Pause(status, jitter, now);
}

Duration Reflection::WatchEnded(const absl::Status& status, double jitter, SteadyTime now) {
  const bool is_too_old = absl::IsOutOfRange(status);
  // A stream that is broken at this place would break there again.
  const bool is_garbled = absl::IsDataLoss(status) ||
                          (absl::IsResourceExhausted(status) && !ApiErrorOf(status).has_value());
  if (is_too_old || is_garbled) step_ = Step::kList;
  if ((status.ok() || is_too_old) && has_progressed_) {
    has_progressed_ = false;
    pace_.Succeeded();
    return Duration::zero();
  }
  return Pause(status, jitter, now);
}

void Reflection::Progressed(const std::string& version) {
  if (!version.empty()) version_ = version;
  has_progressed_ = true;
}

}  // namespace pushpull_operator
