// SPDX-License-Identifier: Apache-2.0
//
// When a job is requeued after a reconcile. Pure.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"

#include "operator/controller/job_state.h"

namespace pushpull_operator {

struct Requeue {
  enum class When {
    kOnChange,      // reconciled: only after a change
    kAfterDelay,    // reconciled: after `delay`, even without a change
    kAfterFailure,  // after a backoff that grows with each failure in a row, from milliseconds
  };
  // For log and metrics.
  enum class Trouble {
    kNone,
    kConflict,      // the plan was based on an old version, mostly of this operator's own writes
    kUsersMistake,  // reported in the job's conditions
    kError,
  };
  When when = When::kOnChange;
  std::chrono::seconds delay{0};
  Trouble trouble = Trouble::kNone;
  friend bool operator==(const Requeue&, const Requeue&) = default;
};

// `result` comes from JobReconciler::Reconcile.
inline Requeue DecideRequeue(const absl::StatusOr<std::optional<std::chrono::seconds>>& result) {
  using When = Requeue::When;
  switch (result.status().code()) {
    case absl::StatusCode::kOk:
      if (result->has_value()) return {.when = When::kAfterDelay, .delay = **result};
      return {};
    // The watch delivers the newer version, usually within the first backoff of a few milliseconds.
    case absl::StatusCode::kAborted:
      return {.when = When::kAfterFailure, .trouble = Requeue::Trouble::kConflict};
    // The operator is stopping; the next leader starts by reconciling every job.
    case absl::StatusCode::kCancelled:
      return {};
    default:
      return {.when = When::kAfterFailure,
              .trouble = IsUsersMistake(result.status()) ? Requeue::Trouble::kUsersMistake
                                                         : Requeue::Trouble::kError};
  }
}

}  // namespace pushpull_operator
