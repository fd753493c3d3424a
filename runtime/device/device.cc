// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/device/cuda/driver_error.h"

namespace pushpull {
namespace {

constexpr int kDeviceNameBytes = 256;

absl::StatusOr<DeviceProperties> ReadProperties(const DriverApi& driver,
                                                CuDevice device,
                                                int ordinal) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  const auto check = [&](CuResult result, absl::string_view call) {
    return DriverStatus(driver, result, {.name = call, .device = gpu});
  };
  DeviceProperties properties;
  properties.ordinal = ordinal;
  std::array<char, kDeviceNameBytes> name{};
  PUSHPULL_RETURN_IF_ERROR(
      check(driver.device_get_name(name.data(), kDeviceNameBytes - 1, device), "cuDeviceGetName"));
  properties.name = name.data();
  PUSHPULL_RETURN_IF_ERROR(
      check(driver.device_total_memory(&properties.memory_bytes, device), "cuDeviceTotalMem"));
  for (const auto& [value, attribute] :
       {std::pair{&properties.major, kCuMajor},
        std::pair{&properties.minor, kCuMinor},
        std::pair{&properties.multiprocessors, kCuMultiprocessors}}) {
    PUSHPULL_RETURN_IF_ERROR(
        check(driver.device_get_attribute(value, attribute, device), "cuDeviceGetAttribute"));
  }
  PUSHPULL_RETURN_IF_ERROR(
      check(driver.driver_get_version(&properties.driver_version), "cuDriverGetVersion"));
  return properties;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Device>> Device::Open(std::shared_ptr<const DriverApi> driver,
                                                           int ordinal) {
  int num_gpus = 0;
  PUSHPULL_RETURN_IF_ERROR(
      DriverStatus(*driver, driver->device_get_count(&num_gpus), {.name = "cuDeviceGetCount"}));
  if (ordinal < 0 || ordinal >= num_gpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("no GPU ", ordinal, ": this process may use ", num_gpus, ", numbered from 0"));
  }
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  CuDevice handle = 0;
  PUSHPULL_RETURN_IF_ERROR(DriverStatus(
      *driver, driver->device_get(&handle, ordinal), {.name = "cuDeviceGet", .device = gpu}));
  PUSHPULL_ASSIGN_OR_RETURN(DeviceProperties properties, ReadProperties(*driver, handle, ordinal));
  std::shared_ptr<Device> device(new Device(std::move(driver), handle, std::move(properties)));
  PUSHPULL_RETURN_IF_ERROR(
      device->Check(device->driver_->primary_context_retain(&device->context_, handle),
                    "cuDevicePrimaryCtxRetain"));
  return std::shared_ptr<const Device>(std::move(device));
}

Device::Device(std::shared_ptr<const DriverApi> driver,
               CuDevice handle,
               DeviceProperties properties)
    : driver_(std::move(driver)),
      handle_(handle),
      properties_(std::move(properties)),
      text_(absl::StrCat("GPU ", properties_.ordinal, " (", properties_.name, ")")) {}

Device::~Device() {
  if (context_ != nullptr) driver_->primary_context_release(handle_);
}

absl::StatusOr<DeviceMemoryInfo> Device::MemoryInfo() const {
  const DeviceScope scope(*this);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  DeviceMemoryInfo info;
  PUSHPULL_RETURN_IF_ERROR(
      Check(driver_->memory_get_info(&info.free_bytes, &info.total_bytes), "cuMemGetInfo"));
  return info;
}

absl::Status Device::Check(CuResult result,
                           absl::string_view call,
                           uint64_t num_bytes,
                           absl::string_view object) const {
  if (result == kCuSuccess) return absl::OkStatus();
  return DriverStatus(
      *driver_, result, {.name = call, .device = text_, .object = object, .num_bytes = num_bytes});
}

DeviceScope::DeviceScope(const Device& device)
    : device_(device),
      status_(device.Check(device.driver_->context_push_current(device.context_),
                           "cuCtxPushCurrent")) {}

DeviceScope::~DeviceScope() {
  CuContext ignored = nullptr;
  if (status_.ok()) device_.driver().context_pop_current(&ignored);
}

}  // namespace pushpull
