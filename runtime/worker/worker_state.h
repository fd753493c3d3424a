// SPDX-License-Identifier: Apache-2.0
//
// The program's side of StateSaves.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "pushpull/program_state.h"

#include "runtime/worker/departure.h"
#include "runtime/worker/operation_table.h"
#include "runtime/worker/state_saves.h"

namespace pushpull {

// Thread-safe.
class WorkerState final : public ProgramState {
 public:
  // All outlive this object. `on_decided` is called after every decision.
  WorkerState(const OperationTable& operations,
              const Departure& departure,
              StateSaves& saves,
              std::function<void()> on_decided)
      : operations_(operations),
        departure_(departure),
        saves_(saves),
        on_decided_(std::move(on_decided)) {}

  void Use() override { saves_.Use(); }
  absl::Status Check() const override {
    const Consistency consistency = saves_.consistency();
    if (consistency.is_sync() && !consistency.is_ring() && !consistency.is_led())
      return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("the program keeps state of its own, which needs spec.sync.mode Sync without "
                     "backupWorkers and gated; the mode is ",
                     Describe(consistency)));
  }
  bool has_whole_steps() const override {
    const Consistency consistency = saves_.consistency();
    return consistency.is_led() || consistency.is_ring();
  }
  bool has_joined_others() const override { return saves_.has_joined_others(); }
  bool TakeSave(bool is_last) override {
    const Step next = operations_.next_step(OperationTable::Counted::kOnWire);
    if (next == operations_.start_step()) return false;
    const bool is_pushed =
        saves_.TakeSave(Step{next.value() - 1}, is_last || departure_.must_leave());
    on_decided_();
    return is_pushed;
  }

 private:
  const OperationTable& operations_;
  const Departure& departure_;
  StateSaves& saves_;
  const std::function<void()> on_decided_;
};

}  // namespace pushpull
