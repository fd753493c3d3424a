// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/shm/rank_memory.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kPageBytes = 4096;

// The counts for all neighbours come first.
size_t CountsBytes(size_t ranks) {
  return (ranks * sizeof(RankCounts) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

size_t RingOffset(size_t ranks, size_t neighbour) {
  return CountsBytes(ranks) + neighbour * kRankRingBytes;
}

}  // namespace

size_t RankMemoryBytes(size_t ranks) {
  return RingOffset(ranks, ranks);
}

absl::StatusOr<std::shared_ptr<OwnRankMemory>> OwnRankMemory::Create(size_t ranks) {
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                            SharedMemory::Create("pushpull-rank", RankMemoryBytes(ranks)));
  return std::shared_ptr<OwnRankMemory>(new OwnRankMemory(std::move(memory), ranks));
}

std::span<std::byte> OwnRankMemory::Ring(size_t neighbour) const {
  return memory_->bytes().subspan(RingOffset(ranks_, neighbour), kRankRingBytes);
}

// The memory is zeroed, as new counts must be.
RankCounts& OwnRankMemory::Counts(size_t neighbour) const {
  return reinterpret_cast<RankCounts*>(memory_->bytes().data())[neighbour];
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
  return reinterpret_cast<const RankCounts*>(memory_->bytes().data())[own_rank_];
}

}  // namespace pushpull
