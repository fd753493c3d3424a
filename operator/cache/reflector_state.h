// SPDX-License-Identifier: Apache-2.0
//
// What a reflector does next: list, or watch from the last resource version, now or after a
// backoff. Pure.
//
// Lists are expensive for the API server, so only two things cause a relist: the resource version
// is too old, or the stream is malformed. After an outage, an overload or a watch that ends early
// the watch is resumed.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

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
  pushpull::Duration OnListed(const std::string& version);
  pushpull::Duration OnListFailed(const absl::Status& status,
                                  double jitter,
                                  pushpull::SteadyTime now);
  pushpull::Duration OnWatchEnded(const absl::Status& status,
                                  double jitter,
                                  pushpull::SteadyTime now);

  // An event or a bookmark of this version was received.
  void OnProgress(const std::string& version);

  // Whether to log the last failure (retry_pace.h).
  bool is_warning_due() const { return pace_.is_warning_due(); }

 private:
  pushpull::Duration Backoff(const absl::Status& status, double jitter, pushpull::SteadyTime now);

  Step step_ = Step::kList;
  std::string version_;
  bool has_progressed_ = false;  // since the last backoff
  pushpull::RetryPace pace_{std::chrono::milliseconds(400), std::chrono::seconds(30)};
};

}  // namespace pushpull_operator
