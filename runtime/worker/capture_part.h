// SPDX-License-Identifier: Apache-2.0
//
// A worker's part in a checkpoint: what is on no server is pushed in the last step before it. That
// is what a codec has left out of gradients (docs/decisions/0038-error-feedback.md), and what a
// program keeps that runs an optimizer itself (docs/decisions/0096-state-of-programs.md).
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
  void Begin(const Capture& order) {
    order_ = order;
    are_gradients_whole_.reset();
  }
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
  void SetGradients(bool are_whole) { are_gradients_whole_ = are_whole; }
  // The report to send. Empty: no capture is under way, or one of the two is not known yet.
  // `state`: whether the program's has been pushed in that step, or somebody else's was; empty: not
  // known.
  std::optional<Captured> TakeReport(std::optional<bool> state) {
    const bool is_missing = are_gradients_whole_ == false || state == false;
    if (!order_ || (!is_missing && !(are_gradients_whole_ && state))) return std::nullopt;
    const Capture order = *std::exchange(order_, std::nullopt);
    Captured report{
        .attempt = order.attempt, .status = {}, .highest_version = order.step, .files = {}};
    if (is_missing) {
      report.status = absl::AbortedError(
          absl::StrCat("gradients or state of steps before ", order.step.value(), " are missing"));
    }
    return report;
  }

 private:
  std::optional<Capture> order_;
  std::optional<bool> are_gradients_whole_;
};

}  // namespace pushpull
