// SPDX-License-Identifier: Apache-2.0
//
// The functions in use of NVIDIA's driver library, as a table. The library is opened at run time: a
// program starts without it, and builds without CUDA's headers, whose place the declarations here
// take (headers_check.cc compares them in a build with CUDA). Tests fill the table with a stand-in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

// The tags are those of cuda.h, so that pointers from other code that uses the driver fit.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;

namespace pushpull {

using CuResult = int;
using CuDevice = int;
using CuDevicePtr = uint64_t;
using CuContext = CUctx_st*;
using CuStream = CUstream_st*;
using CuEvent = CUevent_st*;
using CuModule = CUmod_st*;
using CuFunction = CUfunc_st*;
using CuHostFunction = void (*)(void*);

// The results that are distinguished; others are reported with the driver's name and text.
enum CuResultCode : CuResult {
  kCuSuccess = 0,
  kCuInvalidValue = 1,
  kCuOutOfMemory = 2,
  kCuNotInitialized = 3,
  kCuDeinitialized = 4,
  kCuStubLibrary = 34,
  kCuDeviceUnavailable = 46,
  kCuNoDevice = 100,
  kCuInvalidDevice = 101,
  kCuInvalidImage = 200,
  kCuNoBinaryForGpu = 209,
  kCuEccUncorrectable = 214,
  kCuUnsupportedPtxVersion = 222,
  kCuInvalidHandle = 400,
  kCuNotFound = 500,
  kCuNotReady = 600,
  kCuIllegalAddress = 700,
  kCuLaunchFailed = 719,
  kCuSystemNotReady = 802,
  kCuSystemDriverMismatch = 803,
  kCuCompatNotSupported = 804,
};

constexpr unsigned kCuStreamNonBlocking = 1;
constexpr unsigned kCuEventDefault = 0;
constexpr unsigned kCuHostAllocPortable = 1;  // pinned for every context of the process

// Attributes of a device.
enum CuAttribute : int {
  kCuMultiprocessors = 16,
  kCuMajor = 75,
  kCuMinor = 76,
};

// cuLaunchKernel: grid and block in three dimensions, then bytes of shared memory. In the table it
// has one dimension and no shared memory.
using CuLaunchKernel = CuResult (*)(CuFunction,
                                    unsigned,
                                    unsigned,
                                    unsigned,
                                    unsigned,
                                    unsigned,
                                    unsigned,
                                    unsigned,
                                    CuStream,
                                    void** parameters,
                                    void** extra);
struct KernelGrid {
  unsigned num_blocks = 1;
  unsigned threads_per_block = 1;
};

// Each function is the one in cuda.h with nearly that name, in the version of its symbol in
// driver_api.cc.
struct DriverApi {
  std::function<CuResult(unsigned flags)> init;
  std::function<CuResult(int* version)> driver_get_version;
  std::function<CuResult(CuResult, const char** name)> get_error_name;
  std::function<CuResult(CuResult, const char** text)> get_error_string;

  std::function<CuResult(int* count)> device_get_count;
  std::function<CuResult(CuDevice*, int ordinal)> device_get;
  std::function<CuResult(char* name, int num_bytes, CuDevice)> device_get_name;
  std::function<CuResult(size_t* num_bytes, CuDevice)> device_total_memory;
  std::function<CuResult(int* value, CuAttribute, CuDevice)> device_get_attribute;

  std::function<CuResult(CuContext*, CuDevice)> primary_context_retain;
  std::function<CuResult(CuDevice)> primary_context_release;
  std::function<CuResult(CuContext)> context_push_current;
  std::function<CuResult(CuContext*)> context_pop_current;

  std::function<CuResult(size_t* free_bytes, size_t* total_bytes)> memory_get_info;
  std::function<CuResult(CuDevicePtr*, size_t num_bytes)> memory_allocate;
  std::function<CuResult(CuDevicePtr)> memory_free;
  std::function<CuResult(void**, size_t num_bytes, unsigned flags)> host_allocate;
  std::function<CuResult(void*)> host_free;

  std::function<CuResult(CuDevicePtr to, const void* from, size_t, CuStream)> copy_to_device;
  std::function<CuResult(void* to, CuDevicePtr from, size_t, CuStream)> copy_to_host;
  std::function<CuResult(CuDevicePtr to, CuDevicePtr from, size_t, CuStream)> copy_on_device;
  std::function<CuResult(CuDevicePtr, unsigned char value, size_t num_bytes, CuStream)> fill_bytes;

  std::function<CuResult(CuStream*, unsigned flags)> stream_create;
  std::function<CuResult(CuStream)> stream_destroy;
  std::function<CuResult(CuStream)> stream_query;
  std::function<CuResult(CuStream, CuEvent, unsigned flags)> stream_wait_event;
  std::function<CuResult(CuStream, CuHostFunction, void* data)> launch_host_function;

  std::function<CuResult(CuEvent*, unsigned flags)> event_create;
  std::function<CuResult(CuEvent)> event_destroy;
  std::function<CuResult(CuEvent, CuStream)> event_record;
  std::function<CuResult(CuEvent)> event_query;
  std::function<CuResult(float* milliseconds, CuEvent start, CuEvent end)> event_elapsed;

  std::function<CuResult(CuModule*, const void* image)> module_load;
  std::function<CuResult(CuModule)> module_unload;
  std::function<CuResult(CuFunction*, CuModule, const char* name)> module_get_function;
  std::function<CuResult(CuFunction, const KernelGrid&, CuStream, void** parameters)> launch_kernel;
};

// The name under which the dynamic linker finds the driver.
constexpr const char* kDriverLibrary = "libcuda.so.1";

// Opens the library, which stays open until the process ends, looks up every function and
// initializes the driver. May block for up to a second.
//
// kFailedPrecondition: there is no driver here, it is too old, or it finds no GPU; the text says
// which and what to do. Continue without a GPU.
absl::StatusOr<std::shared_ptr<const DriverApi>> LoadDriverApi(
    const std::string& path = kDriverLibrary);

// Calls init and returns the number of GPUs, which is above 0. Errors as above.
absl::StatusOr<int> InitializeDriver(const DriverApi& driver);

}  // namespace pushpull
