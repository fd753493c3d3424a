// SPDX-License-Identifier: Apache-2.0
//
// How a lane handles payloads for a chunk of a row-sparse tensor: rows that are pushed, keys that
// are pulled, and the rows that answer them (docs/decisions/0056-row-sparse-tensors.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/server/chunk.h"
#include "runtime/server/connection.h"
#include "runtime/server/waiter_queue.h"
#include "runtime/store/buffer_pool.h"
#include "runtime/transport/channel.h"

namespace pushpull {

// Checks whether an Init, a push or a pull of the chunk may have a payload of this length; its
// content is checked once it is complete. kInvalidArgument: it may not; the text has both sides.
absl::Status CheckRowBytes(const Chunk& chunk, const FrameHeader& frame);
// Checks the complete payload. kInvalidArgument: its keys do not ascend, or belong to other chunks.
// OK for a chunk without rows.
absl::Status CheckRowKeys(const Chunk& chunk, FrameType type, std::span<const std::byte> payload);

// Such a frame has no payload to receive: it is complete with its header.
inline bool IsEmptyOfRows(const Chunk& chunk, const FrameHeader& header) {
  return HoldsRows(chunk) && header.payload_bytes == 0;
}

// Take and return the memory of a payload. The number of rows differs from step to step, so theirs
// bypasses the pool. kResourceExhausted: no memory.
absl::StatusOr<HostBuffer> TakeBuffer(const Chunk& chunk, uint64_t num_bytes, BufferPool& pool);
void ReturnBuffer(const Chunk& chunk, HostBuffer buffer, BufferPool& pool);

// The keys that came with a pull; null for a chunk without rows. kInvalidArgument: as for
// CheckRowKeys. kUnavailable: there was no memory for them; the worker asks again.
absl::StatusOr<std::shared_ptr<const HostBuffer>> TakeRowKeys(const Chunk& chunk,
                                                              Reception reception,
                                                              const FrameHeader& pull);
// The rows that answer the request. kUnavailable: no memory; the worker asks again.
absl::StatusOr<Payload> GatherRows(const Chunk& chunk, const Waiter& waiter);

}  // namespace pushpull
