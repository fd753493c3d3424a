// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/shm/rank_memory.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kPageBytes = 4096;

// At the front; the counts for all neighbours follow.
struct alignas(64) RankMemoryHeader {
  uint64_t array_bytes;
};

size_t CountsBytes(size_t ranks) {
  const size_t bytes = sizeof(RankMemoryHeader) + ranks * sizeof(RankCounts);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

size_t CountsOffset(size_t neighbour) {
  return sizeof(RankMemoryHeader) + neighbour * sizeof(RankCounts);
}

size_t RingOffset(size_t ranks, size_t neighbour) {
  return CountsBytes(ranks) + neighbour * kRankRingBytes;
}

}  // namespace

size_t RankMemoryBytes(size_t ranks) {
  return RingOffset(ranks, ranks);
}

absl::StatusOr<std::shared_ptr<OwnRankMemory>> OwnRankMemory::Create(
    size_t ranks, std::shared_ptr<const SharedMemory> arrays) {
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                            SharedMemory::Create("pushpull-rank", RankMemoryBytes(ranks)));
  reinterpret_cast<RankMemoryHeader*>(memory->bytes().data())->array_bytes =
      arrays == nullptr ? 0 : arrays->bytes().size();
  return std::shared_ptr<OwnRankMemory>(
      new OwnRankMemory(std::move(memory), ranks, std::move(arrays)));
}

std::span<std::byte> OwnRankMemory::Ring(size_t neighbour) const {
  return memory_->bytes().subspan(RingOffset(ranks_, neighbour), kRankRingBytes);
}

// The memory is zeroed, as new counts must be.
RankCounts& OwnRankMemory::Counts(size_t neighbour) const {
  return *reinterpret_cast<RankCounts*>(memory_->bytes().data() + CountsOffset(neighbour));
}

absl::StatusOr<NeighbourMemory> NeighbourMemory::Attach(const FileDescriptor& file,
                                                        size_t ranks,
                                                        size_t own_rank) {
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<const AttachedMemory> memory,
                            AttachedMemory::Attach(file, RankMemoryBytes(ranks)));
  return NeighbourMemory(std::move(memory), ranks, own_rank);
}

std::span<const std::byte> NeighbourMemory::Ring() const {
  return memory_->bytes().subspan(RingOffset(ranks_, own_rank_), kRankRingBytes);
}

const RankCounts& NeighbourMemory::Counts() const {
  return *reinterpret_cast<const RankCounts*>(memory_->bytes().data() + CountsOffset(own_rank_));
}

uint64_t NeighbourMemory::ArrayBytes() const {
  return LoadShared(
      reinterpret_cast<const RankMemoryHeader*>(memory_->bytes().data())->array_bytes);
}

absl::Status NeighbourMemory::AttachArrays(const FileDescriptor& file) {
  PUSHPULL_ASSIGN_OR_RETURN(arrays_, AttachedMemory::Attach(file, ArrayBytes()));
  return absl::OkStatus();
}

std::span<const std::byte> NeighbourMemory::Arrays() const {
  return arrays_ == nullptr ? std::span<const std::byte>() : arrays_->bytes();
}

}  // namespace pushpull
