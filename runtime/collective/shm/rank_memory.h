// SPDX-License-Identifier: Apache-2.0
//
// The memory through which a rank communicates with its neighbours: for each of them a ring of
// bytes, how far it has written to it, how far it has read the neighbour's ring, and what it waits
// for. A rank may also have its arrays in shared memory: instead of copying elements into a ring it
// then tells a neighbour where they are. Only its owner writes to any of this; neighbours map it
// read-only. Nothing in it is trusted: every number is checked for plausibility when it is read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
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

// How many exposed ranges a neighbour may have yet to read.
constexpr size_t kExposedRangesMax = 16;

// The size of the memory of a rank that has `ranks` - 1 neighbours, without its arrays.
size_t RankMemoryBytes(size_t ranks);

// A part of the owner's arrays that the neighbour reads in place. It takes no bytes in the ring: it
// comes between those before `at` and those from there on.
struct ExposedRange {
  uint64_t at;
  uint64_t offset;
  uint64_t num_bytes;
};

// One end's numbers about one neighbour. Counts are bytes since the beginning, padding included.
struct RankCounts {
  alignas(64) uint64_t written;
  alignas(64) uint64_t read;
  // Lowest bit: waits for bytes; next: waits for room; above: the number of the wait, so that the
  // neighbour wakes this end once per wait.
  alignas(64) uint64_t waits;
  // Range i is at i modulo kExposedRangesMax.
  alignas(64) uint64_t num_exposed_ranges;
  std::array<ExposedRange, kExposedRangesMax> exposed;
  alignas(64) uint64_t exposed_read;  // bytes of the neighbour's ranges
};

// Thread-compatible.
class OwnRankMemory {
 public:
  // `arrays`: null if this rank's arrays are in private memory. kResourceExhausted: not enough
  // memory.
  static absl::StatusOr<std::shared_ptr<OwnRankMemory>> Create(
      size_t ranks, std::shared_ptr<const SharedMemory> arrays);

  int descriptor() const { return memory_->descriptor(); }
  std::span<std::byte> Ring(size_t neighbour) const;
  RankCounts& Counts(size_t neighbour) const;
  const SharedMemory* arrays() const { return arrays_.get(); }

 private:
  OwnRankMemory(std::shared_ptr<SharedMemory> memory,
                size_t ranks,
                std::shared_ptr<const SharedMemory> arrays)
      : memory_(std::move(memory)), ranks_(ranks), arrays_(std::move(arrays)) {}

  const std::shared_ptr<SharedMemory> memory_;
  const size_t ranks_;
  const std::shared_ptr<const SharedMemory> arrays_;
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

  // The size of its arrays; 0: they are private. Constant, but as little to be trusted as the rest.
  uint64_t ArrayBytes() const;
  // kInvalidArgument: not memory of ArrayBytes().
  absl::Status AttachArrays(const FileDescriptor& file);
  std::span<const std::byte> Arrays() const;

 private:
  NeighbourMemory(std::shared_ptr<const AttachedMemory> memory, size_t ranks, size_t own_rank)
      : memory_(std::move(memory)), ranks_(ranks), own_rank_(own_rank) {}

  std::shared_ptr<const AttachedMemory> memory_;
  std::shared_ptr<const AttachedMemory> arrays_;
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
