// SPDX-License-Identifier: Apache-2.0
//
// Where the values that answer requests are received, and when they become what the program sees
// and what this worker can give back to servers (chunk_copies.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>

#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane_link.h"
#include "runtime/worker/chunk_copies.h"
#include "runtime/worker/request_table.h"

namespace pushpull {

// Thread-confined to the executor of the links, which it outlives: they may be receiving into its
// buffers.
class ReceivedValues {
 public:
  void SetChunks(size_t count) { copies_.SetChunks(count); }
  // From now on a value is received into a separate buffer and copied once complete, so that an
  // interruption does not leave a mixture of two versions.
  void KeepCopies() { keeps_copies_ = true; }
  ChunkCopies& copies() { return copies_; }

  // Where the payload goes that answers `request`, over `link`. Empty: there is no memory.
  std::span<std::byte> Place(const LaneLink& link,
                             const FrameHeader& header,
                             const ChunkRequest& request);
  // The answer is complete: puts its value where the program expects it.
  void Store(const ClientChunk& chunk, const ChunkRequest& request, const ReceivedFrame& frame);

 private:
  // A buffer of that size for the link, which its next value overwrites; empty: no memory.
  std::span<std::byte> BufferOf(const LaneLink& link, size_t num_bytes);

  ChunkCopies copies_;
  bool keeps_copies_ = false;
  // By whether it is another worker, index and lane.
  std::map<std::tuple<bool, uint32_t, uint32_t>, HostBuffer> buffers_;
};

}  // namespace pushpull
