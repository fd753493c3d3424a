// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/group_buffers.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {

absl::StatusOr<HostBuffer> GroupBuffers::Take(uint64_t num_bytes) {
  MutexLock lock(mu_);
  std::vector<std::span<std::byte>>& free = free_[num_bytes];
  if (free.empty()) {
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer fresh, HostBuffer::Uninitialized(num_bytes));
    free.push_back(fresh.bytes());
    all_.push_back(std::move(fresh));
  }
  const std::span<std::byte> memory = free.back();
  free.pop_back();
  return HostBuffer::Lent(memory, shared_from_this());
}

void GroupBuffers::TakeBack(std::span<std::byte> memory) {
  MutexLock lock(mu_);
  free_[memory.size()].push_back(memory);
}

}  // namespace pushpull
