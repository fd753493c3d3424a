// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/driver_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST(DriverApiTest, WithoutADriverTheErrorSaysWhatToDo) {
  const auto driver = LoadDriverApi("libcuda.so.of.no.machine");

  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(driver.status().ToString(), HasSubstr("libcuda.so.of.no.machine"));
  EXPECT_THAT(driver.status().ToString(), HasSubstr("install the driver"));
}

TEST(DriverApiTest, ALibraryWithoutAFunctionIsNamedWithIt) {
  const auto driver = LoadDriverApi("libc.so.6");

  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(driver.status().ToString(), HasSubstr("libc.so.6 has no cuInit"));
}

TEST(DriverApiTest, ADriverWithoutGpusIsAnError) {
  FakeCudaDriver fake;
  DriverApi driver = *fake.api();
  driver.device_get_count = [](int* count) {
    *count = 0;
    return CuResult{kCuSuccess};
  };

  const auto num_gpus = InitializeDriver(driver);

  EXPECT_EQ(num_gpus.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(num_gpus.status().ToString(), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(DriverApiTest, GpusAreCountedAfterTheDriverIsInitialized) {
  FakeCudaDriver fake;

  const auto num_gpus = InitializeDriver(*fake.api());

  ASSERT_EQ(num_gpus.status(), absl::OkStatus());
  EXPECT_EQ(*num_gpus, FakeCudaDriver::kNumGpus);
  EXPECT_THAT(fake.violations(), testing::IsEmpty());
}

}  // namespace
}  // namespace pushpull
