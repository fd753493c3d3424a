// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/host_buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {
namespace {

std::align_val_t AlignmentOf(size_t num_bytes) {
  return std::align_val_t{num_bytes >= HostBuffer::kPageAlignedBytes ? HostBuffer::kPageAlignedBytes
                                                                     : HostBuffer::kAlignment};
}

// Null if the system refuses. Mapped memory is zeroed; other memory is not.
std::byte* Allocate(size_t num_bytes) {
  if (num_bytes >= HostBuffer::kMappedBytes) {
    void* mapped =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
  }
  return static_cast<std::byte*>(::operator new(num_bytes, AlignmentOf(num_bytes), std::nothrow));
}

void Free(std::byte* data, size_t num_bytes) {
  if (num_bytes < HostBuffer::kMappedBytes) {
    ::operator delete(data, AlignmentOf(num_bytes));
  } else if (munmap(data, num_bytes) != 0) {
    // A hole in neighboring mappings that the kernel had merged creates one more mapping, and their
    // number is limited (vm.max_map_count). At the limit only the pages are returned, not the
    // addresses.
    PUSHPULL_CHECK(madvise(data, num_bytes, MADV_DONTNEED) == 0);
  }
}

}  // namespace

absl::StatusOr<HostBuffer> HostBuffer::Uninitialized(size_t num_bytes) {
  if (num_bytes == 0) return HostBuffer();
  std::byte* data = Allocate(num_bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host buffer: the system has no ", num_bytes, " bytes of memory left"));
  }
  return HostBuffer(data, num_bytes);
}

absl::StatusOr<HostBuffer> HostBuffer::Zeroed(size_t num_bytes) {
  absl::StatusOr<HostBuffer> buffer = Uninitialized(num_bytes);
  // Writing zeros into a fresh mapping would only make it resident.
  if (buffer.ok() && num_bytes > 0 && num_bytes < kMappedBytes) {
    std::memset(buffer->data_, 0, num_bytes);
  }
  return buffer;
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)),
      lender_(std::move(other.lender_)) {}

HostBuffer HostBuffer::Lent(std::span<std::byte> memory, std::shared_ptr<MemoryLender> lender) {
  HostBuffer buffer(memory.data(), memory.size());
  buffer.lender_ = std::move(lender);
  return buffer;
}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  HostBuffer taken(std::move(other));  // leaves `other` empty, and frees what was here
  std::swap(data_, taken.data_);
  std::swap(num_bytes_, taken.num_bytes_);
  std::swap(lender_, taken.lender_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ == nullptr) return;
  if (lender_ != nullptr) {
    lender_->TakeBack(bytes());
  } else {
    Free(data_, num_bytes_);
  }
}

std::span<float> HostBuffer::floats() {
  PUSHPULL_CHECK(num_bytes_ % sizeof(float) == 0);
  return {reinterpret_cast<float*>(data_), num_bytes_ / sizeof(float)};
}

std::span<const float> HostBuffer::floats() const {
  PUSHPULL_CHECK(num_bytes_ % sizeof(float) == 0);
  return {reinterpret_cast<const float*>(data_), num_bytes_ / sizeof(float)};
}

}  // namespace pushpull
