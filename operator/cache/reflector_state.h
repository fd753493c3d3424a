// SPDX-License-Identifier: Apache-2.0
//
// What a reflector does next: list, or watch from the last resource version, now or after a
// backoff. Pure.
//
// Lists are expensive for the API server, so only two things cause a relist: the resource version
// is too old, or the stream is malformed. After an outage, an overload or an early end, the watch
// is resumed.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "operator/kube/api_error.h"
#include "runtime/base/retry_pace.h"

namespace pushpull_operator {

// Thread-compatible.
class ReflectorState {
 public:
  enum class Step { kList, kWatch };

  Step step() const { return step_; }
  // Where kWatch resumes.
  const std::string& version() const { return version_; }

  // Each returns the pause before the next step. `jitter` in [0, 1) spreads the calls of many
  // clients after an outage.
  pushpull::Duration OnListed(const std::string& version) {
    step_ = Step::kWatch;
    version_ = version;
    // Not progress yet: if a server's lists are always too old for its watches, it must not be
    // listed in a hot loop.
    return pushpull::Duration::zero();
  }
  pushpull::Duration OnListFailed(const absl::Status& status,
                                  double jitter,
                                  pushpull::SteadyTime now) {
    return Backoff(status, jitter, now);
  }
  pushpull::Duration OnWatchEnded(const absl::Status& status,
                                  double jitter,
                                  pushpull::SteadyTime now) {
    const bool is_too_old = absl::IsOutOfRange(status);
    // A malformed stream would be malformed at the same place again.
    const bool is_malformed = absl::IsDataLoss(status) || (absl::IsResourceExhausted(status) &&
                                                           !ApiErrorOf(status).has_value());
    if (is_too_old || is_malformed) step_ = Step::kList;
    if ((status.ok() || is_too_old) && has_progressed_) {
      has_progressed_ = false;
      pace_.Succeeded();
      return pushpull::Duration::zero();
    }
    return Backoff(status, jitter, now);
  }

  // An event or a bookmark of this version was received.
  void OnProgress(const std::string& version) {
    if (!version.empty()) version_ = version;
    has_progressed_ = true;
  }

  // Whether to log the last failure (retry_pace.h).
  bool is_warning_due() const { return pace_.is_warning_due(); }

 private:
  pushpull::Duration Backoff(const absl::Status& status, double jitter, pushpull::SteadyTime now) {
    // Progress resets the backoff.
    if (has_progressed_) pace_.Succeeded();
    has_progressed_ = false;
    pushpull::Duration pause = pace_.Failed(now);
    pause += pushpull::FromSeconds(pushpull::ToSeconds(pause) * 0.5 * jitter);
    const std::optional<ApiError> error = ApiErrorOf(status);
    if (error.has_value() && error->retry_after.has_value()) {
      pause = std::max<pushpull::Duration>(pause, *error->retry_after);
    }
    return pause;
  }

  Step step_ = Step::kList;
  std::string version_;
  bool has_progressed_ = false;  // since the last backoff
  pushpull::RetryPace pace_{std::chrono::milliseconds(400), std::chrono::seconds(30)};
};

}  // namespace pushpull_operator
