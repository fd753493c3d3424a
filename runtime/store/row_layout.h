// SPDX-License-Identifier: Apache-2.0
//
// How a row-sparse tensor is cut into chunks: by a hash of the row's key. A chunk has so few rows
// that all of them fit into one frame, and counts as kChunkBytes in placement
// (docs/decisions/0056-row-sparse-tensors.md). Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

#include "runtime/shard/chunk.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {

// The limit of a frame's payload (transport/frame.h).
inline constexpr size_t kRowPayloadBytesMax = size_t{1} << 20;
// What a chunk's rows take on the wire if the tensor has as many rows as registered. Twice as many
// fit: a hash does not distribute evenly, and there may be more rows than registered.
inline constexpr size_t kRowChunkBytes = kRowPayloadBytesMax / 2;
// Beyond this, chunks would have too few rows for a hash to distribute them evenly enough.
inline constexpr int64_t kRowDimMax = 2048;

// kInvalidArgument: the spec cannot be that of a row-sparse tensor; the text names the tensor and
// what to do. Precondition of the functions below. OK if the spec has no rows.
absl::Status CheckRows(const TensorSpec& spec);

inline size_t RowDim(const TensorSpec& spec) {
  return static_cast<size_t>(spec.dims.back());
}
// The most rows that a chunk holds.
inline size_t RowsPerChunkMax(size_t dim) {
  return kRowPayloadBytesMax / SparseRowBytes(dim);
}
uint64_t NumRowChunks(const TensorSpec& spec);

// The position, among `num_chunks`, of the chunk that has the row.
inline uint64_t ChunkOfRow(uint64_t key, uint64_t num_chunks) {
  return MixBits(key) % num_chunks;
}

// The number of bytes by which a tensor is cut and placed: that of its master values or, for a
// row-sparse tensor, kChunkBytes per chunk. kInvalidArgument: as for NumBytes and CheckRows.
absl::StatusOr<uint64_t> PlacedBytes(const TensorSpec& spec);

}  // namespace pushpull
