// SPDX-License-Identifier: Apache-2.0
//
// Buffers kept for the next contribution, so that their memory stays cached and mapped.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Thread-confined to its lane.
class BufferPool {
 public:
  // Enough for the whole chunks that two or three workers' connections receive at once; the last
  // chunks of tensors vary in size. Any excess is freed, least recently used first.
  static constexpr size_t kBytesMax = size_t{8} << 20;
  static constexpr size_t kBuffersMax = 64;

  // A buffer of exactly `num_bytes`, contents undefined. kResourceExhausted: no memory.
  absl::StatusOr<HostBuffer> Take(uint64_t num_bytes);
  // Keeps the buffer for a later Take. Lent memory goes back to its lender.
  void Return(HostBuffer buffer);
  size_t num_bytes() const { return num_bytes_; }

 private:
  std::vector<HostBuffer> buffers_;  // most recently used last
  size_t num_bytes_ = 0;             // of all of them
};

}  // namespace pushpull
