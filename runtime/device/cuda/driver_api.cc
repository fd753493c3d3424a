// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/driver_api.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/device/cuda/driver_error.h"

namespace pushpull {
namespace {

// Looks up functions; remembers the first missing one.
class DriverSymbols {
 public:
  explicit DriverSymbols(void* library) : library_(library) {}

  template <typename Result, typename... Parameters>
  void Find(const char* symbol, std::function<Result(Parameters...)>& function) {
    function = reinterpret_cast<Result (*)(Parameters...)>(Address(symbol));
  }

  void* Address(const char* symbol) {
    void* address = dlsym(library_, symbol);
    if (address == nullptr && missing_.empty()) missing_ = symbol;
    return address;
  }

  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

void FindDeviceFunctions(DriverSymbols& symbols, DriverApi& driver) {
  symbols.Find("cuInit", driver.init);
  symbols.Find("cuDriverGetVersion", driver.driver_get_version);
  symbols.Find("cuGetErrorName", driver.get_error_name);
  symbols.Find("cuGetErrorString", driver.get_error_string);
  symbols.Find("cuDeviceGetCount", driver.device_get_count);
  symbols.Find("cuDeviceGet", driver.device_get);
  symbols.Find("cuDeviceGetName", driver.device_get_name);
  symbols.Find("cuDeviceTotalMem_v2", driver.device_total_memory);
  symbols.Find("cuDeviceGetAttribute", driver.device_get_attribute);
  symbols.Find("cuDevicePrimaryCtxRetain", driver.primary_context_retain);
  symbols.Find("cuDevicePrimaryCtxRelease_v2", driver.primary_context_release);
  symbols.Find("cuCtxPushCurrent_v2", driver.context_push_current);
  symbols.Find("cuCtxPopCurrent_v2", driver.context_pop_current);
}

void FindMemoryFunctions(DriverSymbols& symbols, DriverApi& driver) {
  symbols.Find("cuMemGetInfo_v2", driver.memory_get_info);
  symbols.Find("cuMemAlloc_v2", driver.memory_allocate);
  symbols.Find("cuMemFree_v2", driver.memory_free);
  symbols.Find("cuMemHostAlloc", driver.host_allocate);
  symbols.Find("cuMemFreeHost", driver.host_free);
  symbols.Find("cuMemcpyHtoDAsync_v2", driver.copy_to_device);
  symbols.Find("cuMemcpyDtoHAsync_v2", driver.copy_to_host);
  symbols.Find("cuMemcpyDtoDAsync_v2", driver.copy_on_device);
  symbols.Find("cuMemsetD8Async", driver.fill_bytes);
}

void FindStreamFunctions(DriverSymbols& symbols, DriverApi& driver) {
  symbols.Find("cuStreamCreate", driver.stream_create);
  symbols.Find("cuStreamDestroy_v2", driver.stream_destroy);
  symbols.Find("cuStreamQuery", driver.stream_query);
  symbols.Find("cuStreamWaitEvent", driver.stream_wait_event);
  symbols.Find("cuLaunchHostFunc", driver.launch_host_function);
  symbols.Find("cuEventCreate", driver.event_create);
  symbols.Find("cuEventDestroy_v2", driver.event_destroy);
  symbols.Find("cuEventRecord", driver.event_record);
  symbols.Find("cuEventQuery", driver.event_query);
  symbols.Find("cuEventElapsedTime", driver.event_elapsed);
  symbols.Find("cuModuleLoadData", driver.module_load);
  symbols.Find("cuModuleUnload", driver.module_unload);
  symbols.Find("cuModuleGetFunction", driver.module_get_function);
  const auto launch = reinterpret_cast<CuLaunchKernel>(symbols.Address("cuLaunchKernel"));
  driver.launch_kernel =
      [launch](CuFunction kernel, const KernelGrid& grid, CuStream stream, void** parameters) {
        const unsigned block = grid.threads_per_block;
        return launch(kernel, grid.num_blocks, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
      };
}

}  // namespace

absl::StatusOr<int> InitializeDriver(const DriverApi& driver) {
  PUSHPULL_RETURN_IF_ERROR(DriverStatus(driver, driver.init(0), {.name = "cuInit"}));
  int num_gpus = 0;
  PUSHPULL_RETURN_IF_ERROR(
      DriverStatus(driver, driver.device_get_count(&num_gpus), {.name = "cuDeviceGetCount"}));
  if (num_gpus > 0) return num_gpus;
  return absl::FailedPreconditionError(
      "cuDeviceGetCount: the NVIDIA driver shows no GPU to this process: give the container one, "
      "or check CUDA_VISIBLE_DEVICES");
}

absl::StatusOr<std::shared_ptr<const DriverApi>> LoadDriverApi(const std::string& path) {
  // Never closed: the driver has its own threads, and other libraries in the process use it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the text is the thread's own in glibc
    const char* why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("no NVIDIA driver: ",
                     why == nullptr ? path : why,
                     ": install the driver, or in a container ask for a GPU (nvidia.com/gpu)"));
  }
  auto driver = std::make_shared<DriverApi>();
  DriverSymbols symbols(library);
  FindDeviceFunctions(symbols, *driver);
  FindMemoryFunctions(symbols, *driver);
  FindStreamFunctions(symbols, *driver);
  if (!symbols.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " has no ",
                     symbols.missing(),
                     ": it is no NVIDIA driver library, or an old one; ",
                     "install driver 525 or newer"));
  }
  PUSHPULL_RETURN_IF_ERROR(InitializeDriver(*driver).status());
  return std::shared_ptr<const DriverApi>(std::move(driver));
}

}  // namespace pushpull
