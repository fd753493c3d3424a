// SPDX-License-Identifier: Apache-2.0
//
// How a row-sparse tensor is cut: into chunks by a hash of the row's key. Each has so few rows that
// all of them fit into one frame, and counts as kChunkBytes where chunks are placed
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

// Of a frame's payload (transport/frame.h).
inline constexpr size_t kRowPayloadBytesMax = size_t{1} << 20;
// What the rows of a chunk take on the wire when the tensor has as many as registered. Twice as
// many fit: a hash does not distribute evenly, and there may be more rows than registered.
inline constexpr size_t kRowChunkBytes = kRowPayloadBytesMax / 2;
// With more, chunks would have too few rows for a hash to distribute them evenly enough.
inline constexpr int64_t kRowDimMax = 2048;

// kInvalidArgument: the spec cannot be that of a row-sparse tensor; the text names it and what to
// do. Precondition of the functions below. OK where the spec has no rows.
absl::Status CheckRows(const TensorSpec& spec);

inline size_t RowDim(const TensorSpec& spec) {
  return static_cast<size_t>(spec.dims.back());
}
// The most rows that a chunk holds.
inline size_t RowsPerChunkMax(size_t dim) {
  return kRowPayloadBytesMax / SparseRowBytes(dim);
}
uint64_t NumRowChunks(const TensorSpec& spec);

// The position among `num_chunks` of the chunk that has the row.
inline uint64_t ChunkOfRow(uint64_t key, uint64_t num_chunks) {
  return MixBits(key) % num_chunks;
}

// Bytes by which a tensor is cut and placed: those of its values, of a row-sparse tensor
// kChunkBytes for each chunk. Of other tensors it is that of the master values. kInvalidArgument:
// as NumBytes.
absl::StatusOr<uint64_t> PlacedBytes(const TensorSpec& spec);

}  // namespace pushpull
