// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_buffer.h"

#include "runtime/base/status_macros.h"

namespace pushpull {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(std::shared_ptr<const Device> device,
                                                  size_t num_bytes) {
  DeviceBuffer buffer;
  if (num_bytes == 0) return buffer;
  const DeviceScope scope(*device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  PUSHPULL_RETURN_IF_ERROR(device->Check(
      device->driver().memory_allocate(&buffer.address_, num_bytes), "cuMemAlloc", num_bytes));
  buffer.num_bytes_ = num_bytes;
  buffer.device_ = std::move(device);
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(std::move(other.device_)),
      address_(std::exchange(other.address_, 0)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  Free();
  device_ = std::move(other.device_);
  address_ = std::exchange(other.address_, 0);
  num_bytes_ = std::exchange(other.num_bytes_, 0);
  return *this;
}

void DeviceBuffer::Free() {
  if (num_bytes_ == 0) return;
  {
    const DeviceScope scope(*device_);
    // An error cannot be handled: the context is broken, and its memory is gone with it.
    if (scope.status().ok()) device_->driver().memory_free(address_);
  }
  address_ = 0;
  num_bytes_ = 0;
  device_.reset();
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(std::shared_ptr<const Device> device,
                                                  size_t num_bytes) {
  PinnedBuffer buffer;
  if (num_bytes == 0) return buffer;
  const DeviceScope scope(*device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  void* data = nullptr;
  PUSHPULL_RETURN_IF_ERROR(
      device->Check(device->driver().host_allocate(&data, num_bytes, kCuHostAllocPortable),
                    "cuMemHostAlloc",
                    num_bytes));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.num_bytes_ = num_bytes;
  buffer.device_ = std::move(device);
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(std::move(other.device_)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this == &other) return *this;
  Free();
  device_ = std::move(other.device_);
  data_ = std::exchange(other.data_, nullptr);
  num_bytes_ = std::exchange(other.num_bytes_, 0);
  return *this;
}

void PinnedBuffer::Free() {
  if (num_bytes_ == 0) return;
  {
    const DeviceScope scope(*device_);
    if (scope.status().ok()) device_->driver().host_free(data_);
  }
  data_ = nullptr;
  num_bytes_ = 0;
  device_.reset();
}

}  // namespace pushpull
