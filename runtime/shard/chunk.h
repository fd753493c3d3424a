// SPDX-License-Identifier: Apache-2.0
//
// How tensors are cut: every tensor into chunks of 256 KiB, the last one possibly smaller. A chunk
// never spans two tensors; its id is its position in the job's chunk table and never changes: later
// batches of tensors are appended, nothing is renumbered. placement.h decides where chunks live,
// shard_map.h records it. Pure: no I/O, no clock, no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"

namespace pushpull {

// Bytes of every chunk but a tensor's last. A multiple of every element size, so no element is cut.
// Fits into a core's caches, so that a sum finds the received values there, and keeps the transfer
// of a step's first and last chunk short (docs/decisions/0042-push-window.md).
inline constexpr uint64_t kChunkBytes = uint64_t{1} << 18;

// The most bytes a table can hold, 4 TiB (a trillion float32 values, 16 Mi chunks): the memory for
// all chunks' records stays below 1 GB whatever sizes a peer claims.
inline constexpr uint64_t kTableBytesMax = uint64_t{1} << 42;

// Consecutive chunks.
struct ChunkRange {
  ChunkId first;
  uint64_t num_chunks = 0;
  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

struct TensorLayout {
  ChunkRange chunks;  // empty for a tensor of 0 bytes
  uint64_t bytes = 0;
};

struct ChunkLayout {
  TensorId tensor;
  uint64_t index = 0;   // position among the tensor's chunks
  uint64_t offset = 0;  // bytes, from the tensor's start
  uint64_t bytes = 0;   // 1 to kChunkBytes
  friend bool operator==(const ChunkLayout&, const ChunkLayout&) = default;
};

// All tensors of a job in the order they were registered. A value type, 24 bytes per tensor.
// Thread-compatible.
class ChunkTable {
 public:
  // Appends tensors of `tensor_bytes[i]` bytes each; the first gets TensorId num_tensors(), the
  // others follow. All or nothing. Returns the chunks of the whole batch.
  //
  // kInvalidArgument: the table would pass kTableBytesMax bytes or 2^32 tensors. Do not retry.
  absl::StatusOr<ChunkRange> Append(std::span<const uint64_t> tensor_bytes);

  size_t num_tensors() const { return tensors_.size(); }
  uint64_t num_chunks() const { return num_chunks_; }
  uint64_t total_bytes() const { return total_bytes_; }

  // None if no such tensor or chunk is registered. A chunk is found in O(log num_tensors).
  std::optional<TensorLayout> FindTensor(TensorId tensor) const;
  std::optional<ChunkLayout> FindChunk(ChunkId chunk) const;

  // [range.num_chunks] The bytes of each chunk in `range`, which must be inside the table.
  std::vector<uint64_t> ChunkBytes(ChunkRange range) const;

 private:
  std::vector<TensorLayout> tensors_;
  uint64_t num_chunks_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace pushpull
