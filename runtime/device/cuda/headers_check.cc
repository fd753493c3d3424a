// SPDX-License-Identifier: Apache-2.0
//
// Compiled only in builds with CUDA: checks that driver_api.h declares what cuda.h does.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include <cuda.h>

#include "runtime/device/cuda/driver_api.h"

namespace pushpull {
namespace {

template <typename Type>
constexpr bool kIsNumber = std::is_integral_v<Type> || std::is_enum_v<Type>;

// Whether a parameter is passed in the same way. cuda.h has enumerations where the table has int,
// and unsigned long long where the table has uint64_t.
template <typename Ours, typename Theirs>
constexpr bool IsSameOnTheWay() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (kIsNumber<Ours> && kIsNumber<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs);
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    return IsSameOnTheWay<std::remove_pointer_t<Ours>, std::remove_pointer_t<Theirs>>();
  } else {
    return false;
  }
}

template <typename Result, typename... Ours, typename TheirResult, typename... Theirs>
constexpr bool Fits(const std::function<Result(Ours...)>* /*ours*/,
                    TheirResult (* /*theirs*/)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return IsSameOnTheWay<Result, TheirResult>() && (IsSameOnTheWay<Ours, Theirs>() && ...);
  }
}

template <typename Result, typename... Ours, typename TheirResult, typename... Theirs>
constexpr bool Fits(Result (* /*ours*/)(Ours...), TheirResult (*theirs)(Theirs...)) {
  return Fits(static_cast<const std::function<Result(Ours...)>*>(nullptr), theirs);
}

template <auto kMember, typename Theirs>
constexpr bool MemberFits(Theirs theirs) {
  using Member = std::remove_reference_t<decltype(std::declval<DriverApi&>().*kMember)>;
  return Fits(static_cast<const Member*>(nullptr), theirs);
}

static_assert(MemberFits<&DriverApi::init>(&cuInit));
static_assert(MemberFits<&DriverApi::driver_get_version>(&cuDriverGetVersion));
static_assert(MemberFits<&DriverApi::get_error_name>(&cuGetErrorName));
static_assert(MemberFits<&DriverApi::get_error_string>(&cuGetErrorString));
static_assert(MemberFits<&DriverApi::device_get_count>(&cuDeviceGetCount));
static_assert(MemberFits<&DriverApi::device_get>(&cuDeviceGet));
static_assert(MemberFits<&DriverApi::device_get_name>(&cuDeviceGetName));
static_assert(MemberFits<&DriverApi::device_total_memory>(&cuDeviceTotalMem));
static_assert(MemberFits<&DriverApi::device_get_attribute>(&cuDeviceGetAttribute));
static_assert(MemberFits<&DriverApi::primary_context_retain>(&cuDevicePrimaryCtxRetain));
static_assert(MemberFits<&DriverApi::primary_context_release>(&cuDevicePrimaryCtxRelease));
static_assert(MemberFits<&DriverApi::context_push_current>(&cuCtxPushCurrent));
static_assert(MemberFits<&DriverApi::context_pop_current>(&cuCtxPopCurrent));
static_assert(MemberFits<&DriverApi::memory_get_info>(&cuMemGetInfo));
static_assert(MemberFits<&DriverApi::memory_allocate>(&cuMemAlloc));
static_assert(MemberFits<&DriverApi::memory_free>(&cuMemFree));
static_assert(MemberFits<&DriverApi::host_allocate>(&cuMemHostAlloc));
static_assert(MemberFits<&DriverApi::host_free>(&cuMemFreeHost));
static_assert(MemberFits<&DriverApi::copy_to_device>(&cuMemcpyHtoDAsync));
static_assert(MemberFits<&DriverApi::copy_to_host>(&cuMemcpyDtoHAsync));
static_assert(MemberFits<&DriverApi::copy_on_device>(&cuMemcpyDtoDAsync));
static_assert(MemberFits<&DriverApi::fill_bytes>(&cuMemsetD8Async));
static_assert(MemberFits<&DriverApi::stream_create>(&cuStreamCreate));
static_assert(MemberFits<&DriverApi::stream_destroy>(&cuStreamDestroy));
static_assert(MemberFits<&DriverApi::stream_query>(&cuStreamQuery));
static_assert(MemberFits<&DriverApi::stream_wait_event>(&cuStreamWaitEvent));
static_assert(MemberFits<&DriverApi::launch_host_function>(&cuLaunchHostFunc));
static_assert(MemberFits<&DriverApi::event_create>(&cuEventCreate));
static_assert(MemberFits<&DriverApi::event_destroy>(&cuEventDestroy));
static_assert(MemberFits<&DriverApi::event_record>(&cuEventRecord));
static_assert(MemberFits<&DriverApi::event_query>(&cuEventQuery));
static_assert(MemberFits<&DriverApi::event_elapsed>(&cuEventElapsedTime));
static_assert(MemberFits<&DriverApi::module_load>(&cuModuleLoadData));
static_assert(MemberFits<&DriverApi::module_unload>(&cuModuleUnload));
static_assert(MemberFits<&DriverApi::module_get_function>(&cuModuleGetFunction));
static_assert(Fits(CuLaunchKernel{}, &cuLaunchKernel));

template <typename Value>
constexpr int64_t Number(Value value) {
  return static_cast<int64_t>(value);
}

static_assert(Number(kCuInvalidValue) == Number(CUDA_ERROR_INVALID_VALUE));
static_assert(Number(kCuOutOfMemory) == Number(CUDA_ERROR_OUT_OF_MEMORY));
static_assert(Number(kCuNotInitialized) == Number(CUDA_ERROR_NOT_INITIALIZED));
static_assert(Number(kCuDeinitialized) == Number(CUDA_ERROR_DEINITIALIZED));
static_assert(Number(kCuStubLibrary) == Number(CUDA_ERROR_STUB_LIBRARY));
static_assert(Number(kCuDeviceUnavailable) == Number(CUDA_ERROR_DEVICE_UNAVAILABLE));
static_assert(Number(kCuNoDevice) == Number(CUDA_ERROR_NO_DEVICE));
static_assert(Number(kCuInvalidDevice) == Number(CUDA_ERROR_INVALID_DEVICE));
static_assert(Number(kCuInvalidImage) == Number(CUDA_ERROR_INVALID_IMAGE));
static_assert(Number(kCuNoBinaryForGpu) == Number(CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(Number(kCuEccUncorrectable) == Number(CUDA_ERROR_ECC_UNCORRECTABLE));
static_assert(Number(kCuUnsupportedPtxVersion) == Number(CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
static_assert(Number(kCuInvalidHandle) == Number(CUDA_ERROR_INVALID_HANDLE));
static_assert(Number(kCuNotFound) == Number(CUDA_ERROR_NOT_FOUND));
static_assert(Number(kCuNotReady) == Number(CUDA_ERROR_NOT_READY));
static_assert(Number(kCuIllegalAddress) == Number(CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(Number(kCuLaunchFailed) == Number(CUDA_ERROR_LAUNCH_FAILED));
static_assert(Number(kCuSystemNotReady) == Number(CUDA_ERROR_SYSTEM_NOT_READY));
static_assert(Number(kCuSystemDriverMismatch) == Number(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH));
static_assert(Number(kCuCompatNotSupported) == Number(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE));
static_assert(Number(kCuStreamNonBlocking) == Number(CU_STREAM_NON_BLOCKING));
static_assert(Number(kCuEventDefault) == Number(CU_EVENT_DEFAULT));
static_assert(Number(kCuHostAllocPortable) == Number(CU_MEMHOSTALLOC_PORTABLE));
static_assert(Number(kCuMultiprocessors) == Number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(Number(kCuMajor) == Number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(Number(kCuMinor) == Number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));

}  // namespace
}  // namespace pushpull
