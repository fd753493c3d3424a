// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a job in the queue after a worker has looked at it. Pure.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"

namespace pushpull_operator {

struct NextLook {
  enum class When {
    kOnChange,      // it is well: nothing before a change is heard of
    kAfterDelay,    // it is well: after `delay`, too
    kAfterFailure,  // after a time that grows with each failure in a row, from milliseconds up
  };
  // What is said of it in log and metrics.
  enum class Trouble {
    kNone,
    kConflict,  // somebody wrote first, mostly this operator itself: what it planned on was old
    kError,
  };
  When when = When::kOnChange;
  std::chrono::seconds delay{0};
  Trouble trouble = Trouble::kNone;
  friend bool operator==(const NextLook&, const NextLook&) = default;
};

// `result` is that of JobReconciler::Reconcile.
NextLook DecideNextLook(const absl::StatusOr<std::optional<std::chrono::seconds>>& result);

}  // namespace pushpull_operator
