// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/buffer_pool.h"

#include <algorithm>
#include <utility>

namespace pushpull {

absl::StatusOr<HostBuffer> BufferPool::Take(uint64_t num_bytes) {
  const auto it = std::find_if(buffers_.rbegin(), buffers_.rend(), [&](const HostBuffer& buffer) {
    return buffer.num_bytes() == num_bytes;
  });
  if (it == buffers_.rend()) return HostBuffer::Uninitialized(num_bytes);
  HostBuffer buffer = std::move(*it);
  buffers_.erase(std::next(it).base());
  num_bytes_ -= num_bytes;
  return buffer;
}

void BufferPool::Return(HostBuffer buffer) {
  if (buffer.num_bytes() == 0 || buffer.is_lent()) return;
  num_bytes_ += buffer.num_bytes();
  buffers_.push_back(std::move(buffer));
  while (num_bytes_ > kBytesMax || buffers_.size() > kBuffersMax) {
    num_bytes_ -= buffers_.front().num_bytes();
    buffers_.erase(buffers_.begin());
  }
}

}  // namespace pushpull
