// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic over chunks; see chunk.h.
#include "runtime/shard/chunk.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {

namespace {

constexpr uint64_t kTensorsMax = std::numeric_limits<uint32_t>::max();

uint64_t NumChunks(uint64_t bytes) {
  return bytes / kChunkBytes + (bytes % kChunkBytes == 0 ? 0 : 1);
}

}  // namespace

absl::StatusOr<ChunkRange> ChunkTable::Append(std::span<const uint64_t> tensor_bytes) {
  if (tensor_bytes.size() > kTensorsMax - tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("register tensors: ",
                                                   tensor_bytes.size(),
                                                   " more than the ",
                                                   tensors_.size(),
                                                   " there are would pass the limit of ",
                                                   kTensorsMax));
  }
  uint64_t total = total_bytes_;
  for (const uint64_t bytes : tensor_bytes) {
    if (bytes > kTableBytesMax - total) {
      return absl::InvalidArgumentError(
          absl::StrCat("register tensors: a tensor of ",
                       bytes,
                       " bytes would bring the job above the limit of ",
                       kTableBytesMax,
                       " bytes"));
    }
    total += bytes;
  }

  const ChunkId first(num_chunks_);
  tensors_.reserve(tensors_.size() + tensor_bytes.size());
  for (const uint64_t bytes : tensor_bytes) {
    const ChunkRange chunks{.first = ChunkId(num_chunks_), .num_chunks = NumChunks(bytes)};
    tensors_.push_back({.chunks = chunks, .bytes = bytes});
    num_chunks_ += chunks.num_chunks;
  }
  total_bytes_ = total;
  return ChunkRange{.first = first, .num_chunks = num_chunks_ - first.value()};
}

std::optional<TensorLayout> ChunkTable::FindTensor(TensorId tensor) const {
  if (tensor.value() >= tensors_.size()) return std::nullopt;
  return tensors_[tensor.value()];
}

std::optional<ChunkLayout> ChunkTable::FindChunk(ChunkId chunk) const {
  if (chunk.value() >= num_chunks_) return std::nullopt;
  // The last tensor that starts at or before the chunk; tensors without chunks that start at the
  // same position precede it.
  const auto after = absl::c_upper_bound(
      tensors_, chunk, [](ChunkId id, const auto& tensor) { return id < tensor.chunks.first; });
  const auto owner = after - 1;
  const uint64_t index = chunk.value() - owner->chunks.first.value();
  const uint64_t offset = index * kChunkBytes;
  return ChunkLayout{.tensor = TensorId(static_cast<uint32_t>(owner - tensors_.begin())),
                     .index = index,
                     .offset = offset,
                     .bytes = std::min(kChunkBytes, owner->bytes - offset)};
}

std::vector<uint64_t> ChunkTable::ChunkBytes(ChunkRange range) const {
  std::vector<uint64_t> bytes;
  bytes.reserve(range.num_chunks);
  for (uint64_t i = 0; i < range.num_chunks; ++i) {
    const std::optional<ChunkLayout> chunk = FindChunk(ChunkId(range.first.value() + i));
    PUSHPULL_CHECK(chunk.has_value());
    bytes.push_back(chunk->bytes);
  }
  return bytes;
}

}  // namespace pushpull
