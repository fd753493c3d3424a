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
  // As many as connections deliver into at once on two or three workers; more are freed.
  static constexpr size_t kBuffersMax = 8;

  // A buffer of exactly `num_bytes`, contents undefined. kResourceExhausted: no memory.
  absl::StatusOr<HostBuffer> Take(uint64_t num_bytes);
  void Return(HostBuffer buffer);

 private:
  std::vector<HostBuffer> buffers_;  // most recently used last
};

}  // namespace pushpull
