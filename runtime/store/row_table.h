// SPDX-License-Identifier: Apache-2.0
//
// The rows of one chunk of a row-sparse tensor on a member of its replica set: value and optimizer
// state of every row that a step has pushed, by key (docs/decisions/0056-row-sparse-tensors.md).
// Every change to them is in the log, so all members have the same bits; reading changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {

// The rows of a table at one version, for copies and checkpoints. Rows are in key order, so equal
// tables have equal bytes.
struct RowImage {
  HostBuffer header;  // kRowHeaderBytes: the number of rows and their bytes
  HostBuffer rows;    // keys; the version that last touched each; values; optimizer state
};
inline constexpr size_t kRowHeaderBytes = 16;

// What an image has, apart: by row in key order.
struct RowsOfImage {
  std::vector<uint64_t> keys;
  std::vector<uint64_t> touched;  // the version that last touched the row
  std::vector<float> values;      // [rows, dim]
  std::vector<float> states;      // [rows, state floats]
};

// kDataLoss: not an image of rows of so many values and floats of state; the text says why.
absl::StatusOr<RowsOfImage> ParseRowImage(std::span<const std::byte> header,
                                          std::span<const std::byte> rows,
                                          size_t dim,
                                          size_t state_floats);

// Thread-confined to its lane.
class RowTable {
 public:
  // For chunk `index` of `num_chunks` of a tensor that has passed CheckRows and outlives the table.
  RowTable(const TensorSpec& tensor, uint64_t index, uint64_t num_chunks);

  size_t dim() const { return dim_; }
  size_t num_rows() const { return keys_.size(); }
  // Of values and optimizer state.
  uint64_t num_bytes() const { return (values_.size() + states_.size()) * sizeof(float); }
  // Before Install or Restore there is no version.
  bool is_installed() const { return is_installed_; }

  // kInvalidArgument: a key belongs to another chunk. kResourceExhausted: more keys than the chunk
  // can hold. The text names the tensor.
  absl::Status CheckKeys(std::span<const uint64_t> keys) const;

  // Takes version 0: the rows that a worker has sent, in the form of ParseSparseRows. Errors as for
  // ParseSparseRows and CheckKeys.
  absl::Status Install(std::span<const std::byte> rows);

  // Writes the rows of these keys, [keys, dim]; for keys without a row, its initial values.
  void Gather(std::span<const uint64_t> keys, std::span<float> out) const;

  // Applies one update to the rows of `gradient`, in the form of ParseSparseRows; version `next`
  // has touched them then. kResourceExhausted: more rows than the chunk can hold; nothing has
  // changed. Other errors as for ParseSparseRows and CheckKeys.
  absl::Status Apply(std::span<const std::byte> gradient, const StepInput& input, Step next);

  // Removes rows whose last touch is too old in `version`, by RowSpec::evict_after.
  void Evict(Step version);

  // kResourceExhausted: no memory.
  absl::StatusOr<RowImage> Image() const;
  // The number of bytes of RowImage::rows. kDataLoss: `header` is malformed, or has more rows than
  // a chunk can hold.
  absl::StatusOr<uint64_t> ImageBytes(std::span<const std::byte> header) const;
  // Replaces everything. kDataLoss: not an image of this chunk's rows; nothing has changed.
  absl::Status Restore(std::span<const std::byte> header, std::span<const std::byte> rows);
  // Back to the state before Install.
  void Clear();

 private:
  std::span<float> ValueOf(size_t slot) { return std::span(values_).subspan(slot * dim_, dim_); }
  std::span<float> StateOf(size_t slot) {
    return std::span(states_).subspan(slot * state_floats_, state_floats_);
  }
  size_t Add(uint64_t key);
  void Remove(size_t slot);
  absl::Status CheckRoomFor(size_t num_rows) const;
  absl::Status Damaged(const absl::Status& why) const;

  const TensorSpec& tensor_;
  const uint64_t index_;
  const uint64_t num_chunks_;
  const size_t dim_;
  const size_t state_floats_;  // per row
  bool is_installed_ = false;
  absl::flat_hash_map<uint64_t, size_t> slots_;  // by key
  std::vector<uint64_t> keys_;                   // by slot, as are the next three
  std::vector<uint64_t> touched_;
  std::vector<float> values_;
  std::vector<float> states_;
};

}  // namespace pushpull
