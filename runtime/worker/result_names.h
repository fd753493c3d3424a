// SPDX-License-Identifier: Apache-2.0
//
// The names of the results that a worker's program has reported: within the limits of a heartbeat,
// so that the coordinator can read it.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "runtime/base/mutex.h"

namespace pushpull {

// Thread-safe.
class ResultNames {
 public:
  // kInvalidArgument: the name is too long or one too many; it is not added.
  absl::Status Add(absl::string_view name) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::set<std::string> names_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
