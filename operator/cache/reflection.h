// SPDX-License-Identifier: Apache-2.0
//
// What a reflector does next: list, or watch from where it was, now or after a pause. Pure.
//
// A listing is dear for the server, so only two things cause one: the version to go on from is too
// old, or the stream cannot be trusted. A server that is away, too busy, or ends watches early
// causes watches only.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "runtime/base/deadline.h"
#include "runtime/base/retry_pace.h"

namespace pushpull_operator {

// Thread-compatible.
class Reflection {
 public:
  enum class Step { kList, kWatch };

  Step step() const { return step_; }
  // Events after this one are wanted; of kWatch.
  const std::string& version() const { return version_; }

  // Each returns how long to pause before the next step. `jitter` in [0, 1) spreads the calls of
  // many clients after an outage.
  pushpull::Duration Listed(const std::string& version);
  pushpull::Duration ListFailed(const absl::Status& status,
                                double jitter,
                                pushpull::SteadyTime now);
  pushpull::Duration WatchEnded(const absl::Status& status,
                                double jitter,
                                pushpull::SteadyTime now);

  // An event or a bookmark of this version has come.
  void Progressed(const std::string& version);

  // Whether the last failure is worth a line in the log (retry_pace.h).
  bool is_warning_due() const { return pace_.is_warning_due(); }

 private:
  pushpull::Duration Pause(const absl::Status& status, double jitter, pushpull::SteadyTime now);

  Step step_ = Step::kList;
  std::string version_;
  bool has_progressed_ = false;  // since the last pause
  pushpull::RetryPace pace_{std::chrono::milliseconds(400), std::chrono::seconds(30)};
};

}  // namespace pushpull_operator
