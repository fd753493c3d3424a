// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/spare_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {

absl::Status SpareBuffers::Prepare(std::span<const uint64_t> sizes) {
  std::map<uint64_t, size_t> missing;
  for (const uint64_t size : sizes) ++missing[size];
  {
    MutexLock lock(mu_);
    for (auto& [size, count] : missing) count -= std::min(count, buffers_[size].size());
  }
  for (const auto& [size, count] : missing) {
    for (size_t i = 0; i < count && size > 0; ++i) {
      PUSHPULL_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Uninitialized(size));
      std::memset(buffer.bytes().data(), 0, size);
      MutexLock lock(mu_);
      buffers_[size].push_back(std::move(buffer));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HostBuffer> SpareBuffers::Take(uint64_t num_bytes) {
  {
    MutexLock lock(mu_);
    const auto found = buffers_.find(num_bytes);
    if (found != buffers_.end() && !found->second.empty()) {
      HostBuffer buffer = std::move(found->second.back());
      found->second.pop_back();
      return buffer;
    }
  }
  return HostBuffer::Uninitialized(num_bytes);
}

void SpareBuffers::Clear() {
  std::map<uint64_t, std::vector<HostBuffer>> gone;
  MutexLock lock(mu_);
  std::swap(gone, buffers_);
}

}  // namespace pushpull
