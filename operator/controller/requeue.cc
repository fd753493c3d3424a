// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/requeue.h"

namespace pushpull_operator {

using When = Requeue::When;
using Trouble = Requeue::Trouble;

Requeue DecideRequeue(const absl::StatusOr<std::optional<std::chrono::seconds>>& result) {
  switch (result.status().code()) {
    case absl::StatusCode::kOk:
      if (result->has_value()) return {.when = When::kAfterDelay, .delay = **result};
      return {};
    // The watch delivers the newer version, mostly within the first backoff of a few milliseconds.
    case absl::StatusCode::kAborted:
      return {.when = When::kAfterFailure, .trouble = Trouble::kConflict};
    // The operator stops; the next leader begins with a reconcile of every job.
    case absl::StatusCode::kCancelled:
      return {};
    default:
      return {.when = When::kAfterFailure, .trouble = Trouble::kError};
  }
}

}  // namespace pushpull_operator
