// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/driver_error.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {
namespace {

TEST(DriverErrorTest, TheCodeSaysWhatTheCallerDoes) {
  FakeCudaDriver fake;
  const auto driver = fake.api();
  const std::pair<CuResult, absl::StatusCode> rows[] = {
      {kCuSuccess, absl::StatusCode::kOk},
      {kCuOutOfMemory, absl::StatusCode::kResourceExhausted},
      {kCuStubLibrary, absl::StatusCode::kFailedPrecondition},
      {kCuNoDevice, absl::StatusCode::kFailedPrecondition},
      {kCuNoBinaryForGpu, absl::StatusCode::kFailedPrecondition},
      {kCuUnsupportedPtxVersion, absl::StatusCode::kFailedPrecondition},
      {kCuSystemDriverMismatch, absl::StatusCode::kFailedPrecondition},
      {kCuEccUncorrectable, absl::StatusCode::kDataLoss},
      {kCuNotReady, absl::StatusCode::kUnavailable},
      {kCuIllegalAddress, absl::StatusCode::kAborted},
      {kCuLaunchFailed, absl::StatusCode::kAborted},
      {kCuInvalidValue, absl::StatusCode::kInternal},
      {987654, absl::StatusCode::kInternal},
  };

  for (const auto& [result, code] : rows) {
    const absl::Status status = DriverStatus(*driver, result, {.name = "cuInit"});
    EXPECT_EQ(status.code(), code) << result;
  }
}

TEST(DriverErrorTest, TheTextNamesCallSizePlaceAndRemedy) {
  FakeCudaDriver fake;

  const absl::Status memory =
      DriverStatus(*fake.api(),
                   kCuOutOfMemory,
                   {.name = "cuMemAlloc", .device = "GPU 3 (NVIDIA H100)", .num_bytes = 4096});
  const absl::Status kernel =
      DriverStatus(*fake.api(),
                   kCuIllegalAddress,
                   {.name = "cuLaunchKernel", .device = "GPU 3", .object = "pushpull_scale"});

  EXPECT_EQ(memory.message(),
            "cuMemAlloc of 4096 bytes on GPU 3 (NVIDIA H100): CUDA_ERROR_OUT_OF_MEMORY (as the "
            "stand-in says): free memory of the GPU, or ask for less");
  EXPECT_THAT(std::string(kernel.message()),
              testing::StartsWith("cuLaunchKernel of pushpull_scale on GPU 3: "
                                  "CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST(DriverErrorTest, AResultWithoutANameHasItsNumber) {
  FakeCudaDriver fake;

  const absl::Status status = DriverStatus(*fake.api(), 987654, {.name = "cuInit"});

  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("CUDA error 987654"));
}

}  // namespace
}  // namespace pushpull
