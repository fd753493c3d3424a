// SPDX-License-Identifier: Apache-2.0
//
// A lane's memory for sums that workers on this host read where they lie
// (docs/decisions/0041-sums-in-place.md): which chunk has which pages, and what goes into them.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/server/connection.h"
#include "runtime/server/lane_context.h"
#include "runtime/server/shared_pages.h"

namespace pushpull {

// Thread-confined to its lane.
class LanePages {
 public:
  explicit LanePages(const LaneContext& lane) : lane_(lane) {}  // which outlives this object

  // Offers the worker the pages that it does not have yet, where its push asks for the answer in
  // place.
  void Share(Connection& connection, const FrameHeader& push);
  // The first contribution of a step is about to be received: gives the sum, which becomes the next
  // value, memory that workers can read. Blocks while the kernel finds pages, once a region.
  void Prepare(const Connection& connection, Chunk& chunk, const FrameHeader& push);
  // The value is about to be sent as the answer. True: the worker may read it where it lies.
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
  bool lacks_memory_ = false;  // there was none for a region: no further one is tried
};

}  // namespace pushpull
