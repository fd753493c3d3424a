// SPDX-License-Identifier: Apache-2.0
//
// When a job is requeued after a reconcile. Pure.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"

namespace pushpull_operator {

struct Requeue {
  enum class When {
    kOnChange,      // reconciled: not before a change
    kAfterDelay,    // reconciled: after `delay` also without a change
    kAfterFailure,  // after a backoff that grows with each failure in a row, from milliseconds up
  };
  // For log and metrics.
  enum class Trouble {
    kNone,
    kConflict,  // the plan was based on an old version, mostly of this operator's own writes
    kError,
  };
  When when = When::kOnChange;
  std::chrono::seconds delay{0};
  Trouble trouble = Trouble::kNone;
  friend bool operator==(const Requeue&, const Requeue&) = default;
};

// `result` is that of JobReconciler::Reconcile.
Requeue DecideRequeue(const absl::StatusOr<std::optional<std::chrono::seconds>>& result);

}  // namespace pushpull_operator
