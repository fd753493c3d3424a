// SPDX-License-Identifier: Apache-2.0
//
// Shared memory for chunks' values, which workers on this host read in place: two places per chunk,
// one for the value and one for the sum that becomes the next value. A place always belongs to the
// same chunk, and is not lent while a worker may be reading it
// (docs/decisions/0041-sums-in-place.md).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_context.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/shm/shared_memory.h"

namespace pushpull {

// Thread-safe.
class SharedPages final : public MemoryLender, public std::enable_shared_from_this<SharedPages> {
 public:
  // `sizes`: of the chunks, in bytes. Blocks while the kernel finds pages. kResourceExhausted: no
  // memory.
  static absl::StatusOr<std::shared_ptr<SharedPages>> Create(absl::string_view name,
                                                             std::span<const uint64_t> sizes);

  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  // A place for the sum that follows `version` of the chunk at this position among the sizes: one
  // that is not lent, and in which no worker may be reading that version or a later one.
  std::optional<HostBuffer> Take(size_t chunk, Step version) ABSL_LOCKS_EXCLUDED(mu_);
  // From now on workers read `version` in this place of the chunk.
  void Publish(size_t chunk, std::span<const std::byte> place, Step version)
      ABSL_LOCKS_EXCLUDED(mu_);
  void TakeBack(std::span<std::byte> place) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit SharedPages(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  struct Place {
    std::span<std::byte> bytes;
    bool is_free = true;
    std::optional<Step> published;  // the last version
  };

  const std::shared_ptr<SharedMemory> memory_;
  Mutex mu_;
  std::vector<std::array<Place, 2>> places_ ABSL_GUARDED_BY(mu_);  // by chunk
  std::map<const std::byte*, Place*> by_begin_ ABSL_GUARDED_BY(mu_);
};

// A lane's memory for sums that workers on this host read in place: which chunk has which pages,
// and what is written to them. Thread-confined to its lane.
class LanePages {
 public:
  explicit LanePages(const LaneContext& lane) : lane_(lane) {}  // which outlives this object

  // Offers the worker the pages that it does not have yet, if its push asks for the answer in
  // place.
  void Share(Connection& connection, const FrameHeader& push);
  // Call before the first contribution of a step is received: gives the sum, which becomes the next
  // value, memory that workers can read. Blocks while the kernel finds pages, once per region.
  void Prepare(const Connection& connection, Chunk& chunk, const FrameHeader& push);
  // Call before the value is sent as the answer. True: the worker may read it in place.
  bool Publish(const Chunk& chunk, const FrameHeader& push, const HostBuffer& value);

 private:
  struct Place {
    std::shared_ptr<SharedPages> pages;
    size_t index = 0;  // of the chunk in `pages`
  };

  bool IsAnsweredInPlace(const FrameHeader& push) const;
  const Place* FindOrMake(const Chunk& chunk);

  const LaneContext& lane_;
  std::vector<std::shared_ptr<SharedPages>> pages_;
  absl::flat_hash_map<const Chunk*, Place> places_;
  bool lacks_memory_ = false;  // creating a region failed; no other is tried
};

}  // namespace pushpull
