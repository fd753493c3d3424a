// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/device/on_device.h"

#include <utility>

#include <gmock/gmock.h>

#include "runtime/device/cuda/kernel_image.h"

namespace pushpull {
namespace {

StagingRing MakeStaging(DeviceStream& stream) {
  absl::StatusOr<StagingRing> staging = StagingRing::Create(stream, {});
  EXPECT_EQ(absl::OkStatus(), staging.status());
  return *std::move(staging);
}

}  // namespace

OpenDevice::OpenDevice(std::shared_ptr<const Device> device, DeviceStream stream)
    : device_(std::move(device)), stream_(std::move(stream)), staging_(MakeStaging(stream_)) {}

DeviceBuffer& OpenDevice::NewBuffer(size_t num_bytes) {
  absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Create(device_, num_bytes);
  EXPECT_EQ(absl::OkStatus(), buffer.status());
  buffers_.push_back(std::make_unique<DeviceBuffer>(*std::move(buffer)));
  return *buffers_.back();
}

void OnDevice::SetUp() {
  std::shared_ptr<const DriverApi> driver;
  if (is_gpu()) {
    image_ = KernelImage();
    if (image_.empty()) GTEST_SKIP() << "this build has no kernels for GPUs";
    absl::StatusOr<std::shared_ptr<const DriverApi>> loaded = LoadDriverApi();
    if (!loaded.ok()) GTEST_SKIP() << loaded.status();
    driver = *std::move(loaded);
  } else {
    fake_ = std::make_unique<FakeCudaDriver>();
    driver = fake_->api();
    ASSERT_EQ(absl::OkStatus(), InitializeDriver(*driver).status());
    image_ = FakeCudaDriver::KernelImage();
  }
  absl::StatusOr<std::shared_ptr<const Device>> device = Device::Open(driver, 0);
  ASSERT_EQ(absl::OkStatus(), device.status());
  absl::StatusOr<DeviceStream> stream = DeviceStream::Create(*device);
  ASSERT_EQ(absl::OkStatus(), stream.status());
  on_ = std::make_unique<OpenDevice>(*device, *std::move(stream));
}

void OnDevice::TearDown() {
  on_.reset();
  if (fake_ == nullptr) return;
  EXPECT_THAT(fake_->violations(), testing::IsEmpty());
  EXPECT_THAT(fake_->leftovers(), testing::IsEmpty());
}

}  // namespace pushpull
