// SPDX-License-Identifier: Apache-2.0
//
// The stand-in of the driver as a shared library with the driver's names: a machine with a GPU for
// programs that open libcuda.so.1. Speeds are nonsense, all else is as on a GPU.
#include "tests/fakes/fake_libcuda.h"

#include <cstdarg>
#include <cstddef>
#include <memory>

#include "runtime/device/cuda/driver_api.h"
#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {

FakeCudaDriver& StandInDriver() {
  // Never ended: the program's own objects may end after those of a library.
  static FakeCudaDriver& driver = *new FakeCudaDriver;
  return driver;
}

namespace {

const DriverApi& Stand() {
  static const auto& api = *new std::shared_ptr<const DriverApi>(StandInDriver().api());
  return *api;
}

}  // namespace
}  // namespace pushpull

using pushpull::CuAttribute;
using pushpull::CuContext;
using pushpull::CuDevice;
using pushpull::CuDevicePtr;
using pushpull::CuEvent;
using pushpull::CuFunction;
using pushpull::CuHostFunction;
using pushpull::CuModule;
using pushpull::CuResult;
using pushpull::CuStream;
using pushpull::Stand;

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's
extern "C" {

CuResult cuInit(unsigned flags) {
  return Stand().init(flags);
}
CuResult cuDriverGetVersion(int* version) {
  return Stand().driver_get_version(version);
}
CuResult cuGetErrorName(CuResult result, const char** name) {
  return Stand().get_error_name(result, name);
}
CuResult cuGetErrorString(CuResult result, const char** text) {
  return Stand().get_error_string(result, text);
}
CuResult cuDeviceGetCount(int* count) {
  return Stand().device_get_count(count);
}
CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  return Stand().device_get(device, ordinal);
}
CuResult cuDeviceGetName(char* name, int num_bytes, CuDevice device) {
  return Stand().device_get_name(name, num_bytes, device);
}
CuResult cuDeviceTotalMem_v2(size_t* num_bytes, CuDevice device) {
  return Stand().device_total_memory(num_bytes, device);
}
CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice device) {
  return Stand().device_get_attribute(value, static_cast<CuAttribute>(attribute), device);
}
CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice device) {
  return Stand().primary_context_retain(context, device);
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice device) {
  return Stand().primary_context_release(device);
}
CuResult cuCtxPushCurrent_v2(CuContext context) {
  return Stand().context_push_current(context);
}
CuResult cuCtxPopCurrent_v2(CuContext* context) {
  return Stand().context_pop_current(context);
}
CuResult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return Stand().memory_get_info(free_bytes, total_bytes);
}
CuResult cuMemAlloc_v2(CuDevicePtr* address, size_t num_bytes) {
  return Stand().memory_allocate(address, num_bytes);
}
CuResult cuMemFree_v2(CuDevicePtr address) {
  return Stand().memory_free(address);
}
CuResult cuMemHostAlloc(void** data, size_t num_bytes, unsigned flags) {
  return Stand().host_allocate(data, num_bytes, flags);
}
CuResult cuMemFreeHost(void* data) {
  return Stand().host_free(data);
}
CuResult cuMemcpyHtoDAsync_v2(CuDevicePtr to, const void* from, size_t num_bytes, CuStream stream) {
  return Stand().copy_to_device(to, from, num_bytes, stream);
}
CuResult cuMemcpyDtoHAsync_v2(void* to, CuDevicePtr from, size_t num_bytes, CuStream stream) {
  return Stand().copy_to_host(to, from, num_bytes, stream);
}
CuResult cuMemcpyDtoDAsync_v2(CuDevicePtr to, CuDevicePtr from, size_t num_bytes, CuStream stream) {
  return Stand().copy_on_device(to, from, num_bytes, stream);
}
CuResult cuMemsetD8Async(CuDevicePtr at, unsigned char value, size_t num_bytes, CuStream stream) {
  return Stand().fill_bytes(at, value, num_bytes, stream);
}
CuResult cuStreamCreate(CuStream* stream, unsigned flags) {
  return Stand().stream_create(stream, flags);
}
CuResult cuStreamDestroy_v2(CuStream stream) {
  return Stand().stream_destroy(stream);
}
CuResult cuStreamQuery(CuStream stream) {
  return Stand().stream_query(stream);
}
CuResult cuStreamWaitEvent(CuStream stream, CuEvent event, unsigned flags) {
  return Stand().stream_wait_event(stream, event, flags);
}
CuResult cuLaunchHostFunc(CuStream stream, CuHostFunction function, void* data) {
  return Stand().launch_host_function(stream, function, data);
}
CuResult cuEventCreate(CuEvent* event, unsigned flags) {
  return Stand().event_create(event, flags);
}
CuResult cuEventDestroy_v2(CuEvent event) {
  return Stand().event_destroy(event);
}
CuResult cuEventRecord(CuEvent event, CuStream stream) {
  return Stand().event_record(event, stream);
}
CuResult cuEventQuery(CuEvent event) {
  return Stand().event_query(event);
}
CuResult cuEventElapsedTime(float* milliseconds, CuEvent start, CuEvent end) {
  return Stand().event_elapsed(milliseconds, start, end);
}
CuResult cuModuleLoadData(CuModule* module, const void* /*image*/) {
  // Whatever image it is: it cannot run here, but has the kernels that the stand-in has.
  return Stand().module_load(module, pushpull::FakeCudaDriver::KernelImage().data());
}
CuResult cuModuleUnload(CuModule module) {
  return Stand().module_unload(module);
}
CuResult cuModuleGetFunction(CuFunction* function, CuModule module, const char* name) {
  return Stand().module_get_function(function, module, name);
}

// Of its eleven parameters these are read in order; on x86-64 and arm64 of Linux a call of a
// function with a list passes them in the same places.
CuResult cuLaunchKernel(CuFunction function, ...) {
  std::va_list rest;
  va_start(rest, function);
  unsigned shape[7];  // three of the grid, three of the block, bytes of shared memory
  for (unsigned& number : shape) number = va_arg(rest, unsigned);
  const CuStream stream = va_arg(rest, CuStream);
  void** const parameters = va_arg(rest, void**);
  va_end(rest);
  const pushpull::KernelGrid grid{.num_blocks = shape[0], .threads_per_block = shape[3]};
  return Stand().launch_kernel(function, grid, stream, parameters);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
