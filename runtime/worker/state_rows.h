// SPDX-License-Identifier: Apache-2.0
//
// The optimizer's state of a tensor is [rows, values]: one row for each float that the optimizer
// keeps per value. On the wire a chunk has its part of each row, one after the other, as the server
// stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "runtime/worker/request_table.h"

namespace pushpull {

// A chunk's location in its tensor, in bytes of float32 values.
struct ChunkPart {
  uint64_t tensor_bytes = 0;  // above 0
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The length of the chunk's part of a tensor's state that is `state_bytes` long.
uint64_t StateBytesOf(const ChunkPart& part, uint64_t state_bytes);
// Copies the chunk's part out of the tensor's state, or into it. `chunk` is StateBytesOf() long.
void GatherState(const ChunkPart& part,
                 std::span<const std::byte> tensor,
                 std::span<std::byte> chunk);
void ScatterState(const ChunkPart& part,
                  std::span<const std::byte> chunk,
                  std::span<std::byte> tensor);

// Adds the chunk's part of the state from the tensor's request to the chunk's: the bytes to send,
// or the memory to receive them. kResourceExhausted: out of memory.
absl::Status AddState(const TensorRequest& request, const ClientChunk& chunk, ChunkRequest& to);
// Stores the answer to a pull of the state where the program expects it.
void StoreState(const ClientChunk& chunk,
                const ChunkRequest& request,
                std::span<const std::byte> payload);

}  // namespace pushpull
