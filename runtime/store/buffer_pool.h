// SPDX-License-Identifier: Apache-2.0
//
// A few buffers kept for the next contribution, so that the scratch of a sum stays in the cache and
// its pages stay mapped.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Thread-confined to its lane.
class BufferPool {
 public:
  // As much as connections deliver into at once on two or three workers, of whole chunks; tensors'
  // ends are chunks of many sizes. More is freed, what was not used for longest first.
  static constexpr size_t kBytesMax = size_t{8} << 20;
  static constexpr size_t kBuffersMax = 64;

  // A buffer of exactly `num_bytes`, contents undefined. kResourceExhausted: no memory.
  absl::StatusOr<HostBuffer> Take(uint64_t num_bytes);
  // Lent memory goes back to its lender.
  void Return(HostBuffer buffer);
  size_t num_bytes() const { return num_bytes_; }

 private:
  std::vector<HostBuffer> buffers_;  // most recently used last
  size_t num_bytes_ = 0;             // of all of them
};

}  // namespace pushpull
