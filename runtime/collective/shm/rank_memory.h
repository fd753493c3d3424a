// SPDX-License-Identifier: Apache-2.0
//
// The memory through which a rank communicates with its neighbours: for each of them a ring of
// bytes, how far it has written to it, how far it has read the neighbour's ring, and what it waits
// for. Only its owner writes to it; neighbours map it read-only. Nothing in it is trusted: every
// count is checked for plausibility when it is read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

#include "runtime/transport/shm/shared_memory.h"

namespace pushpull {

// Size of one ring. Small enough that the rings of both directions stay in a core's second-level
// cache.
constexpr size_t kRankRingBytes = 512 * 1024;

// How much is written, or read, at once: the other end can start on it while this one continues.
constexpr size_t kRankRingPartBytes = kRankRingBytes / 4;

// Messages begin at multiples of this, a cache line.
constexpr size_t kRingAlignment = 64;

// The size of the memory of a rank that has `ranks` - 1 neighbours.
size_t RankMemoryBytes(size_t ranks);

// One end's numbers about one neighbour. Counts are bytes since the beginning, padding included.
struct RankCounts {
  alignas(64) uint64_t written;
  alignas(64) uint64_t read;
  // Lowest bit: waits for bytes; next: waits for room; above: the number of the wait, so that the
  // neighbour wakes this end once per wait.
  alignas(64) uint64_t waits;
};

// Thread-compatible.
class OwnRankMemory {
 public:
  // kResourceExhausted: not enough memory.
  static absl::StatusOr<std::shared_ptr<OwnRankMemory>> Create(size_t ranks);

  int descriptor() const { return memory_->descriptor(); }
  std::span<std::byte> Ring(size_t neighbour) const;
  RankCounts& Counts(size_t neighbour) const;

 private:
  OwnRankMemory(std::shared_ptr<SharedMemory> memory, size_t ranks)
      : memory_(std::move(memory)), ranks_(ranks) {}

  const std::shared_ptr<SharedMemory> memory_;
  const size_t ranks_;
};

// A neighbour's memory, as far as it concerns this rank. Thread-compatible.
class NeighbourMemory {
 public:
  // kInvalidArgument: not the memory of a rank among this many.
  static absl::StatusOr<NeighbourMemory> Attach(const FileDescriptor& file,
                                                size_t ranks,
                                                size_t own_rank);

  std::span<const std::byte> Ring() const;
  const RankCounts& Counts() const;

 private:
  NeighbourMemory(std::shared_ptr<const AttachedMemory> memory, size_t ranks, size_t own_rank)
      : memory_(std::move(memory)), ranks_(ranks), own_rank_(own_rank) {}

  std::shared_ptr<const AttachedMemory> memory_;
  size_t ranks_;
  size_t own_rank_;
};

// Access to numbers that another process may write at the same time. Sequentially consistent, so
// that no wakeup is lost: if one end stores a count and then finds nobody waiting, the other end,
// which announces its wait and then checks the counts, sees that count.
inline uint64_t LoadShared(const uint64_t& number) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(number)).load(std::memory_order_seq_cst);
}
inline void StoreShared(uint64_t& number, uint64_t value) {
  std::atomic_ref<uint64_t>(number).store(value, std::memory_order_seq_cst);
}

}  // namespace pushpull
