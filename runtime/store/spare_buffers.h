// SPDX-License-Identifier: Apache-2.0
//
// Memory that is made resident before it is needed. The apply after a capture writes beside the
// captured memory, and page faults of fresh memory would cost far more than the writing, so the
// thread that waits for disks takes them in advance.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/mutex.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Thread-safe.
class SpareBuffers {
 public:
  // Ensures that there is a buffer for each of `sizes`, in bytes; existing ones count. Blocks
  // during the page faults. kResourceExhausted: no memory; buffers made so far stay.
  absl::Status Prepare(std::span<const uint64_t> sizes) ABSL_LOCKS_EXCLUDED(mu_);

  // A buffer of exactly `num_bytes`, contents undefined; a fresh one if no spare is left.
  // kResourceExhausted: no memory.
  absl::StatusOr<HostBuffer> Take(uint64_t num_bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Frees all memory.
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::map<uint64_t, std::vector<HostBuffer>> buffers_ ABSL_GUARDED_BY(mu_);  // by size
};

}  // namespace pushpull
