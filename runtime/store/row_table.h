// SPDX-License-Identifier: Apache-2.0
//
// The rows of one chunk of a row-sparse tensor on a member of its replica set: values and the
// optimizer's state of every row that a step has pushed, by key
// (docs/decisions/0056-row-sparse-tensors.md). All that changes them is in the log, so members have
// the same bits; reading changes nothing.
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

// The rows of a table at one version, for copies and checkpoints. The rows are in the order of
// their keys, so equal tables have equal bytes.
struct RowImage {
  HostBuffer header;  // kRowHeaderBytes: the number of rows and their bytes
  HostBuffer rows;    // keys; for each the version that touched it last; values; optimizer's state
};
inline constexpr size_t kRowHeaderBytes = 16;

// Thread-confined to its lane.
class RowTable {
 public:
  // Of chunk `index` of `num_chunks` of a tensor that has passed CheckRows and outlives the table.
  RowTable(const TensorSpec& tensor, uint64_t index, uint64_t num_chunks);

  size_t dim() const { return dim_; }
  size_t num_rows() const { return keys_.size(); }
  // Of values and optimizer's state.
  uint64_t num_bytes() const { return (values_.size() + states_.size()) * sizeof(float); }
  // Before Install or Restore there is no version.
  bool is_installed() const { return is_installed_; }

  // kInvalidArgument: the keys are not those of this chunk, or more than it can hold; the text
  // names the tensor.
  absl::Status CheckKeys(std::span<const uint64_t> keys) const;

  // Version 0: the rows that a worker has sent, in the form of ParseSparseRows. Errors as it and
  // CheckKeys.
  absl::Status Install(std::span<const std::byte> rows);

  // Writes the rows of these keys, [keys, dim]; of those that are not here what they begin with.
  void Gather(std::span<const uint64_t> keys, std::span<float> out) const;

  // One update of the rows of `gradient`, in the form of ParseSparseRows, which thereby are touched
  // by version `next`. kResourceExhausted: more rows than the chunk can hold; nothing has changed.
  // Other errors as ParseSparseRows and CheckKeys.
  absl::Status Apply(std::span<const std::byte> gradient, const StepInput& input, Step next);

  // Removes rows that were last touched before what RowSpec::evict_after allows in `version`.
  void Evict(Step version);

  // kResourceExhausted: no memory.
  absl::StatusOr<RowImage> Image() const;
  // The number of bytes of RowImage::rows. kDataLoss: `header` is no header, or has more rows than
  // a chunk can hold.
  absl::StatusOr<uint64_t> ImageBytes(std::span<const std::byte> header) const;
  // Replaces everything. kDataLoss: not the image of a table of this chunk; nothing has changed.
  absl::Status Restore(std::span<const std::byte> header, std::span<const std::byte> rows);
  // Back to before Install.
  void Clear();

 private:
  size_t RowImageBytes() const;
  std::span<float> ValueOf(size_t slot) { return std::span(values_).subspan(slot * dim_, dim_); }
  std::span<float> StateOf(size_t slot) {
    return std::span(states_).subspan(slot * state_floats_, state_floats_);
  }
  size_t Add(uint64_t key);
  void Remove(size_t slot);
  absl::Status CheckRoomFor(size_t num_rows) const;

  const TensorSpec& tensor_;
  const uint64_t index_;
  const uint64_t num_chunks_;
  const size_t dim_;
  const size_t state_floats_;  // of a row
  bool is_installed_ = false;
  absl::flat_hash_map<uint64_t, size_t> slots_;  // by key
  std::vector<uint64_t> keys_;                   // these by slot
  std::vector<uint64_t> touched_;
  std::vector<float> values_;
  std::vector<float> states_;
};

}  // namespace pushpull
