// SPDX-License-Identifier: Apache-2.0
//
// A worker's tensors from Job::Register until their values are in place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/job.h"

#include "runtime/base/ids.h"
#include "runtime/store/placed_tensor.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/request_table.h"

namespace pushpull {

// A tensor as registered; the caller owns the memory.
struct RegisteredTensor {
  TensorSpec spec;
  TensorValues value;
  uint8_t priority = 0;
  bool keeps_value = true;
  std::span<const float> optimizer_state = {};
  uint64_t updates = 0;
  std::shared_ptr<const RowRequest> first_rows = {};  // row-sparse tensors, which have no value
};

// kInvalidArgument: a name is reserved, or a shape does not fit the memory of the value or of the
// optimizer's state. kResourceExhausted: as for CutFirstRows.
absl::StatusOr<std::vector<RegisteredTensor>> CheckTensors(
    std::span<const TensorRegistration> tensors);

// Thread-confined to the worker's executor, apart from the constructor.
class Registration : public std::enable_shared_from_this<Registration> {
 public:
  Registration(std::vector<RegisteredTensor> tensors, std::shared_ptr<PendingOperation> pending)
      : tensors_(std::move(tensors)), pending_(std::move(pending)) {}

  const std::vector<RegisteredTensor>& tensors() const { return tensors_; }
  std::vector<TensorSpec> specs() const;
  PendingOperation& pending() { return *pending_; }

  // Sets each tensor's position in the job's list, by which requests identify it.
  void SetPlaces(const std::vector<PlacedTensor>& job);
  const std::vector<size_t>& places() const { return places_; }

  // One request of `type` (kInit or kPull) for each tensor, with its memory as the target. Calls
  // `on_all_here` when all have succeeded; the first failure fails the registration.
  std::vector<TensorRequest> Requests(FrameType type,
                                      Step step,
                                      SteadyTime now,
                                      std::function<void()> on_all_here);

 private:
  const std::vector<RegisteredTensor> tensors_;
  const std::shared_ptr<PendingOperation> pending_;
  std::vector<size_t> places_;
  size_t values_missing_ = 0;
};

}  // namespace pushpull
