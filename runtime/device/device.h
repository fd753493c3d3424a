// SPDX-License-Identifier: Apache-2.0
//
// A GPU that this process has opened. Its work runs in order on streams (device_stream.h), its
// memory is in buffers (device_buffer.h), and DeviceKernels computes on it. No job uses GPUs yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/device/cuda/driver_api.h"

namespace pushpull {

struct DeviceProperties {
  int ordinal = 0;   // among the GPUs visible to the process (CUDA_VISIBLE_DEVICES)
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0;     // of the compute capability: 9 for 9.0
  int minor = 0;
  int multiprocessors = 0;
  int driver_version = 0;  // newest CUDA that the driver supports: 13000 is 13.0
  size_t memory_bytes = 0;
};

struct DeviceMemoryInfo {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

// Holds the GPU's primary context, which PyTorch and NCCL use too. Every object created on the
// device keeps it open. Thread-safe.
class Device {
 public:
  // May block for seconds when the process first uses the GPU. Errors are those of DriverStatus
  // (driver_error.h), and kInvalidArgument for a nonexistent ordinal.
  static absl::StatusOr<std::shared_ptr<const Device>> Open(std::shared_ptr<const DriverApi> driver,
                                                            int ordinal);

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const DeviceProperties& properties() const { return properties_; }
  const DriverApi& driver() const { return *driver_; }
  // "GPU 0 (NVIDIA H100 80GB HBM3)"
  const std::string& text() const { return text_; }

  absl::StatusOr<DeviceMemoryInfo> MemoryInfo() const;

  // DriverStatus with this device's name. Costs nothing if the result is a success.
  absl::Status Check(CuResult result,
                     absl::string_view call,
                     uint64_t num_bytes = 0,
                     absl::string_view object = {}) const;

 private:
  friend class DeviceScope;
  Device(std::shared_ptr<const DriverApi> driver, CuDevice handle, DeviceProperties properties);

  const std::shared_ptr<const DriverApi> driver_;
  const CuDevice handle_;
  const DeviceProperties properties_;
  const std::string text_;
  CuContext context_ = nullptr;
};

// Makes the device the calling thread's current one, and restores the previous one in the
// destructor: the driver's functions act on the current device, on which other code of the thread
// may rely.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope();

  const absl::Status& status() const { return status_; }

 private:
  const Device& device_;
  const absl::Status status_;
};

}  // namespace pushpull
