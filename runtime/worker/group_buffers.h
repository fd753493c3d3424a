// SPDX-License-Identifier: Apache-2.0
//
// Memory for gradients of a group's workers and for what is sent to them, kept for the next step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/mutex.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Thread-safe: a channel may release a buffer on a thread of its own. All memory is freed once
// neither a buffer nor the owner is left.
class GroupBuffers final : public MemoryLender, public std::enable_shared_from_this<GroupBuffers> {
 public:
  // A buffer of exactly `num_bytes`, at least 1, contents undefined; its memory comes back when it
  // is destroyed. kResourceExhausted: no memory.
  absl::StatusOr<HostBuffer> Take(uint64_t num_bytes) ABSL_LOCKS_EXCLUDED(mu_);

  void TakeBack(std::span<std::byte> memory) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::vector<HostBuffer> all_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::vector<std::span<std::byte>>> free_ ABSL_GUARDED_BY(mu_);  // by size
};

}  // namespace pushpull
