// SPDX-License-Identifier: Apache-2.0
//
// A worker's part in a checkpoint (docs/decisions/0038-error-feedback.md): values that a codec has
// left out of gradients are on no server. They are sent in the last step before the checkpoint, so
// that the checkpoint contains them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class CapturePart {
 public:
  void Begin(const Capture& order) { order_ = order; }
  // Whether this capture was under way.
  bool End(uint64_t attempt) {
    const bool is_this = order_ && order_->attempt == attempt;
    if (is_this) order_.reset();
    return is_this;
  }
  // The last step before the checkpoint; empty: no capture is under way.
  std::optional<Step> WholeStep() const {
    if (!order_) return std::nullopt;
    return Step{order_->step.value() - std::min<uint64_t>(order_->step.value(), 1)};
  }
  // The report to send now that it is known whether the gradients are whole; empty: no capture is
  // under way.
  std::optional<Captured> TakeReport(bool is_whole) {
    if (!order_) return std::nullopt;
    const Capture order = *std::exchange(order_, std::nullopt);
    Captured report{
        .attempt = order.attempt, .status = {}, .highest_version = order.step, .files = {}};
    if (!is_whole) {
      report.status = absl::AbortedError(
          absl::StrCat("gradients of steps before ", order.step.value(), " are not whole"));
    }
    return report;
  }

 private:
  std::optional<Capture> order_;
};

}  // namespace pushpull
