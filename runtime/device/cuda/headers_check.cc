// SPDX-License-Identifier: Apache-2.0
//
// Compiled in builds with CUDA only: driver_api.h declares what cuda.h does.
#include <cstddef>
#include <functional>
#include <type_traits>

#include <cuda.h>

#include "runtime/device/cuda/driver_api.h"

namespace pushpull {
namespace {

// Enumerations of cuda.h are int or unsigned here; everything else must be the same type.
template <typename Ours, typename Theirs>
constexpr bool IsSameOnTheWay() {
  if constexpr (std::is_enum_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && (std::is_integral_v<Ours> || std::is_enum_v<Ours>);
  } else if constexpr (std::is_pointer_v<Theirs> && std::is_pointer_v<Ours> &&
                       sizeof(std::remove_pointer_t<Ours>*) == sizeof(Theirs)) {
    using OurTarget = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using TheirTarget = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    return std::is_same_v<OurTarget, TheirTarget> ||
           // CUdeviceptr is unsigned long long, uint64_t is unsigned long.
           (std::is_integral_v<OurTarget> && std::is_integral_v<TheirTarget> &&
            sizeof(OurTarget) == sizeof(TheirTarget));
  } else {
    return std::is_same_v<Ours, Theirs> ||
           (std::is_integral_v<Ours> && std::is_integral_v<Theirs> &&
            sizeof(Ours) == sizeof(Theirs));
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

static_assert(kCuInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kCuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCuNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kCuDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kCuStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(kCuDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(kCuNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kCuInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kCuInvalidImage == CUDA_ERROR_INVALID_IMAGE);
static_assert(kCuNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kCuEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(kCuUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(kCuInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kCuNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCuNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCuIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kCuLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kCuSystemNotReady == CUDA_ERROR_SYSTEM_NOT_READY);
static_assert(kCuSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(kCuCompatNotSupported == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
static_assert(kCuStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kCuEventDefault == CU_EVENT_DEFAULT);
static_assert(kCuHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kCuMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kCuMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kCuMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

}  // namespace
}  // namespace pushpull
