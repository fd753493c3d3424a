// SPDX-License-Identifier: Apache-2.0
//
// The other workers that this worker waits for, as the coordinator has told it last: for the errors
// of its waits.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/mutex.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-safe.
class AwaitedWorkers {
 public:
  void Set(const StepWaits& waits) ABSL_LOCKS_EXCLUDED(mu_);
  // "it waits for worker-0, worker-2: ..."; empty: for nobody, as far as is known. `step`: of the
  // push that waits, if it is one.
  std::string Describe(std::optional<Step> step) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  StepWaits waits_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
