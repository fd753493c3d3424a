// SPDX-License-Identifier: Apache-2.0
//
// What every member of a replica set keeps for one chunk: value, optimizer state, version
// (docs/protocol.md section 1). Who contributes, and when a step is complete, is decided in
// server/. A chunk of a row-sparse tensor has a table of rows in place of value and state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/optim/optimizer.h"
#include "runtime/store/row_table.h"
#include "runtime/store/spare_buffers.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Value and optimizer state of one version, unchanged for as long as the pointers live. For rows:
// the two parts of a RowImage. Both null before Install.
struct ChunkImage {
  std::shared_ptr<const HostBuffer> value;
  std::shared_ptr<const HostBuffer> state;
};

// Thread-confined to the chunk's lane.
class ChunkState {
 public:
  // `optimizer` outlives the chunk.
  ChunkState(const OptimizerSpec& optimizer, uint64_t num_bytes)
      : optimizer_(optimizer), num_bytes_(num_bytes) {}
  // For a row-sparse tensor, which outlives the chunk: chunk `index` of `num_chunks`.
  ChunkState(const TensorSpec& tensor, uint64_t index, uint64_t num_chunks)
      : optimizer_(tensor.optimizer), num_bytes_(0), rows_({tensor, index, num_chunks}) {}

  bool is_initialized() const { return rows_ ? rows_->is_installed() : value_ != nullptr; }
  Step version() const { return version_; }
  // Of the value; 0 for rows, which have no fixed number.
  uint64_t num_bytes() const { return num_bytes_; }
  // Null except for a row-sparse tensor; only for one are the next three of use.
  const RowTable* rows() const { return rows_ ? &*rows_ : nullptr; }
  // Install and Apply for rows in the form of ParseSparseRows. Errors as for RowTable.
  absl::Status InstallRows(std::span<const std::byte> rows);
  absl::Status ApplyRows(std::span<const std::byte> gradient,
                         double gradient_scale,
                         double learning_rate);

  // Takes version 0. The first value counts; a later one is ignored. `value` has num_bytes().
  // kResourceExhausted: no memory for the optimizer state.
  //
  // optimizer_state:  state_bytes() long, after `updates` steps; empty: zeros.
  absl::Status Install(HostBuffer value, HostBuffer optimizer_state = {}, uint64_t updates = 0);

  // Turns version t into t + 1 with the step's reduced gradient.
  //
  // gradient:       num_bytes() of float32, read during the call; multiplied by gradient_scale.
  // learning_rate:  0: the registered one.
  // Readers of an earlier value or state keep it: while one is alive, the new version goes to new
  // memory; otherwise it is written in place.
  // kResourceExhausted: there is no memory for that copy; the chunk is unchanged.
  absl::Status Apply(std::span<const float> gradient, double gradient_scale, double learning_rate);

  // Whether Apply with this scale would only copy the gradient: TakeSum then does the same job.
  bool is_gradient(double gradient_scale) const {
    return optimizer_.kind == OptimizerKind::kSum && gradient_scale == 1;
  }
  // Like Apply if is_gradient holds, without a pass over the values: `sum`, num_bytes() long,
  // becomes the next value. Returns the previous value's memory, or none while somebody still reads
  // it.
  HostBuffer TakeSum(HostBuffer sum);

  // Turns version t into t + 1 with another value, num_bytes() long.
  void Replace(HostBuffer value);

  // Replaces the state with another member's. `value` has num_bytes(), `optimizer_state`
  // state_bytes(); for rows they are the parts of a RowImage. kDataLoss: the RowImage is damaged;
  // nothing has changed.
  absl::Status Restore(Step version,
                       uint64_t updates,
                       HostBuffer value,
                       HostBuffer optimizer_state);
  // Back to the state before Install; memory is freed with its last reader.
  void Clear();

  // Another thread reads value and state from now on: the next Apply writes beside them, into
  // memory from `spares`, which outlives the chunk. EndCapture allows writing in place again; call
  // it after that thread has released them.
  void BeginCapture(SpareBuffers& spares) { spares_ = &spares; }
  void EndCapture() { spares_ = nullptr; }

  // Turns version t into t + 1 with the value, optimizer state and updates as they are: a step
  // whose gradient does not count. Without has_gradient it counts as zeros: with the optimizer Sum
  // the value, which is the step's gradient, becomes zeros; rows stay. kResourceExhausted as for
  // Apply.
  absl::Status Skip(bool has_gradient = true);
  // Raises the version to `version` and leaves the value as it is.
  void AdvanceTo(Step version);

  // Value and state as they are now. kResourceExhausted: no memory for an image of rows.
  absl::StatusOr<ChunkImage> Image() const;
  // The current value, unchanged for as long as the pointer lives. Null before Install, and for
  // rows.
  std::shared_ptr<const HostBuffer> value() const { return value_; }
  // Likewise the optimizer state that belongs to this version, state_bytes() long.
  std::shared_ptr<const HostBuffer> optimizer_state() const { return state_; }
  // Whether an initial value of this length is followed by the optimizer state.
  bool HasStateIn(uint64_t initial_bytes) const {
    return state_bytes() > 0 && initial_bytes == num_bytes_ + state_bytes();
  }
  uint64_t state_bytes() const { return num_bytes_ * StateFloatsPerValue(optimizer_); }
  // Optimizer steps done; below the version if steps were skipped.
  uint64_t updates() const { return updates_; }

 private:
  absl::StatusOr<HostBuffer> Memory(uint64_t num_bytes) const;
  void BeginNextVersion();
  StepInput NextInput(double gradient_scale, double learning_rate) const;

  const OptimizerSpec& optimizer_;
  const uint64_t num_bytes_;
  std::optional<RowTable> rows_;
  Step version_;
  uint64_t updates_ = 0;
  std::shared_ptr<HostBuffer> value_;
  std::shared_ptr<HostBuffer> state_;
  SpareBuffers* spares_ = nullptr;  // while the current version is captured
};

// Bytes of the parameters held here.
uint64_t OwnedBytes(const ChunkState& state);

}  // namespace pushpull
