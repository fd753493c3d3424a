// SPDX-License-Identifier: Apache-2.0
//
// The optimizer's state of a tensor is [rows, values]: a row for each float that the optimizer
// keeps of a value. On the wire a chunk has its part of each row, one after the other, which is
// what the server keeps of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "runtime/worker/request_table.h"

namespace pushpull {

// Where a chunk lies in its tensor, in bytes of float32 values.
struct ChunkPart {
  uint64_t tensor_bytes = 0;  // above 0
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The length of the chunk's part of a tensor's state that is `state_bytes` long.
uint64_t StateBytesOf(const ChunkPart& part, uint64_t state_bytes);
// Copies the chunk's part out of the tensor's state, and into it. `chunk` is StateBytesOf() long.
void GatherState(const ChunkPart& part,
                 std::span<const std::byte> tensor,
                 std::span<std::byte> chunk);
void ScatterState(const ChunkPart& part,
                  std::span<const std::byte> chunk,
                  std::span<std::byte> tensor);

// Adds to a chunk's request what the tensor's has of the state: the bytes to send, or the memory to
// receive it. kResourceExhausted: no memory for that.
absl::Status AddState(const TensorRequest& request, const ClientChunk& chunk, ChunkRequest& to);
// Puts the answer of a pull of the state where the program looks for it.
void StoreState(const ClientChunk& chunk,
                const ChunkRequest& request,
                std::span<const std::byte> payload);

}  // namespace pushpull
