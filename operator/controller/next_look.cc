// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/next_look.h"

namespace pushpull_operator {

using When = NextLook::When;
using Trouble = NextLook::Trouble;

NextLook DecideNextLook(const absl::StatusOr<std::optional<std::chrono::seconds>>& result) {
  switch (result.status().code()) {
    case absl::StatusCode::kOk:
      if (result->has_value()) return {.when = When::kAfterDelay, .delay = **result};
      return {};
    // The watch brings what it is behind of, mostly before the first failure's few milliseconds are
    // over.
    case absl::StatusCode::kAborted:
      return {.when = When::kAfterFailure, .trouble = Trouble::kConflict};
    // The operator stops; who leads next begins with a look at every job.
    case absl::StatusCode::kCancelled:
      return {};
    default:
      return {.when = When::kAfterFailure, .trouble = Trouble::kError};
  }
}

}  // namespace pushpull_operator
