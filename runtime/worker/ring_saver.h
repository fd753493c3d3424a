// SPDX-License-Identifier: Apache-2.0
//
// A worker's part in the checkpoints of a job in mode AllReduce (docs/protocol.md section 8). At
// the step of the order the worker copies its part of the state, which takes about as long as
// applying a step to it, and continues; a thread that may wait for the disk writes the copy.
//
//   Begin --the state is at the step--> copied --written--> Captured
//     '----- it is already past it -----------------------> Captured, kAborted
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"

#include "runtime/base/executor.h"
#include "runtime/membership/control.h"
#include "runtime/ring/ring_checkpoint.h"
#include "runtime/worker/disk_thread.h"

namespace pushpull {

// Confined to its executor. Its thread starts with the first copy. The destructor waits for what is
// being written as that of DiskThread does.
class RingSaver {
 public:
  // `executor` outlives this object. `report` is called on it.
  RingSaver(Executor& executor, std::function<void(Captured)> report);
  RingSaver(const RingSaver&) = delete;
  RingSaver& operator=(const RingSaver&) = delete;

  // Takes the order, replacing an earlier one.
  void Begin(const Capture& order) { order_ = order; }
  // What is not written yet of this attempt is dropped.
  void End(uint64_t attempt);

  // The state is before step `next`. The order for that step: its part is to be copied, and passed
  // to Write. None if there is none, or if it is for a later step. One for an earlier step is
  // reported as aborted.
  std::optional<Capture> AdvanceTo(Step next);
  // Ends the order of this attempt: writes the part, or reports why there is none. Does nothing if
  // the attempt has ended while the part was copied.
  void Write(uint64_t attempt, absl::StatusOr<StatePart> part);

 private:
  const std::function<void(Captured)> report_;
  std::optional<Capture> order_;            // not carried out yet
  uint64_t writing_ = 0;                    // attempt; 0: none
  const std::shared_ptr<RingSaver*> self_;  // expires with this object, for posted tasks
  DiskThread disk_;
};

}  // namespace pushpull
