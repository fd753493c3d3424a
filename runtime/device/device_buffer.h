// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU, and memory of the host that GPUs read and write without the CPU. Allocating and
// freeing either takes tens of microseconds and waits for the GPU: keep a buffer that every step
// needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/check.h"
#include "runtime/device/device.h"

namespace pushpull {

// Elements in the memory of a GPU: a std::span that the host cannot read by accident. Non-owning.
template <typename Element>
class DeviceSpan {
 public:
  DeviceSpan() = default;
  DeviceSpan(Element* data, size_t size) : data_(data), size_(size) {}
  // As with std::span, a span of elements converts to one of constant elements.
  template <typename Other>
  requires std::is_same_v<const Other, Element>
  // NOLINTNEXTLINE(google-explicit-constructor): as in std::span
  DeviceSpan(DeviceSpan<Other> other) : data_(other.data()), size_(other.size()) {}

  // A GPU address: for kernels, never to be dereferenced by the host.
  Element* data() const { return data_; }
  CuDevicePtr address() const { return reinterpret_cast<CuDevicePtr>(data_); }
  size_t size() const { return size_; }
  size_t num_bytes() const { return size_ * sizeof(Element); }

  DeviceSpan subspan(size_t offset, size_t count) const {
    PUSHPULL_CHECK(offset <= size_ && count <= size_ - offset);
    return DeviceSpan(data_ + offset, count);
  }

 private:
  Element* data_ = nullptr;
  size_t size_ = 0;
};

template <typename Element>
DeviceSpan<std::byte> AsWritableBytes(DeviceSpan<Element> span) {
  return {reinterpret_cast<std::byte*>(span.data()), span.num_bytes()};
}

template <typename Element>
DeviceSpan<const std::byte> AsBytes(DeviceSpan<Element> span) {
  return {reinterpret_cast<const std::byte*>(span.data()), span.num_bytes()};
}

// Owns memory of a GPU, aligned to 256 bytes, with undefined contents. The destructor waits for all
// work of the GPU. Movable; a moved-from buffer is empty. Thread-compatible.
class DeviceBuffer {
 public:
  // 0 bytes are allowed. kResourceExhausted: the GPU has no more memory; others: DriverStatus.
  static absl::StatusOr<DeviceBuffer> Create(std::shared_ptr<const Device> device,
                                             size_t num_bytes);

  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer() { Free(); }

  size_t num_bytes() const { return num_bytes_; }

  // The whole buffer as elements; num_bytes() must be a multiple of their size.
  template <typename Element>
  DeviceSpan<Element> As() const {
    PUSHPULL_CHECK(num_bytes_ % sizeof(Element) == 0);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers
    return {reinterpret_cast<Element*>(address_), num_bytes_ / sizeof(Element)};
  }

 private:
  void Free();

  std::shared_ptr<const Device> device_;
  CuDevicePtr address_ = 0;  // 0 exactly when num_bytes_ is 0
  size_t num_bytes_ = 0;
};

// Owns pinned memory of the host, page-aligned, with undefined contents. No stream may have work on
// it when it is destroyed. Movable; a moved-from buffer is empty. Thread-compatible.
class PinnedBuffer {
 public:
  // 0 bytes are allowed. kResourceExhausted: the system cannot lock more memory; others:
  // DriverStatus.
  static absl::StatusOr<PinnedBuffer> Create(std::shared_ptr<const Device> device,
                                             size_t num_bytes);

  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() { Free(); }

  std::span<std::byte> bytes() { return {data_, num_bytes_}; }
  std::span<const std::byte> bytes() const { return {data_, num_bytes_}; }

 private:
  void Free();

  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;  // null exactly when num_bytes_ is 0
  size_t num_bytes_ = 0;
};

}  // namespace pushpull
