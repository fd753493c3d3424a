// SPDX-License-Identifier: Apache-2.0
//
// A worker's part in a checkpoint: what is on no server is pushed in the last step before it. That
// is what a codec has left out of gradients (docs/decisions/0038-error-feedback.md), and what a
// program keeps that runs an optimizer itself (docs/decisions/0096-state-of-programs.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/worker/state_saves.h"

namespace pushpull {

// Thread-compatible.
class CapturePart {
 public:
  // `state` outlives this object. `report` sends what it is passed, once for a capture.
  CapturePart(StateSaves& state, std::function<void(Captured)> report)
      : state_(state), report_(std::move(report)) {}

  void Begin(const Capture& order) {
    order_ = order;
    are_gradients_whole_.reset();
    state_.Order(WholeStep());
  }
  // Whether this capture was under way.
  bool End(uint64_t attempt) {
    const bool is_this = order_ && order_->attempt == attempt;
    if (!is_this) return false;
    order_.reset();
    state_.Order(std::nullopt);
    return true;
  }
  // The last step before the checkpoint; empty: no capture is under way.
  std::optional<Step> WholeStep() const {
    if (!order_) return std::nullopt;
    return Step{order_->step.value() - std::min<uint64_t>(order_->step.value(), 1)};
  }
  void SetGradients(bool are_whole) {
    are_gradients_whole_ = are_whole;
    ReportIfKnown();
  }
  // Once it is known whether both are pushed; to be called after every decision of `state`.
  void ReportIfKnown() {
    const std::optional<bool> state = state_.Verdict();
    const bool is_missing = are_gradients_whole_ == false || state == false;
    if (!order_ || (!is_missing && !(are_gradients_whole_ && state))) return;
    const Capture order = *std::exchange(order_, std::nullopt);
    Captured report{
        .attempt = order.attempt, .status = {}, .highest_version = order.step, .files = {}};
    if (is_missing) {
      report.status = absl::AbortedError(
          absl::StrCat("gradients or state of steps before ", order.step.value(), " are missing"));
    }
    report_(std::move(report));
  }

 private:
  StateSaves& state_;
  const std::function<void(Captured)> report_;
  std::optional<Capture> order_;
  std::optional<bool> are_gradients_whole_;
};

}  // namespace pushpull
