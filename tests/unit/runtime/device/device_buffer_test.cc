// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_buffer.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DeviceBufferTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(InitializeDriver(*fake_.api()).status(), absl::OkStatus());
    device_ = *Device::Open(fake_.api(), 0);
  }
  void TearDown() override {
    device_.reset();
    EXPECT_THAT(fake_.leftovers(), IsEmpty());
    EXPECT_THAT(fake_.violations(), IsEmpty());
  }

  FakeCudaDriver fake_;
  std::shared_ptr<const Device> device_;
};

TEST_F(DeviceBufferTest, OutOfMemoryNamesSizeAndDevice) {
  const auto buffer = DeviceBuffer::Create(device_, FakeCudaDriver::kMemoryBytes + 1);

  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(buffer.status().ToString(),
              HasSubstr("cuMemAlloc of 1073741825 bytes on GPU 0 (Stand-in)"));
}

TEST_F(DeviceBufferTest, NoBytesNeedNoMemory) {
  const auto buffer = DeviceBuffer::Create(device_, 0);
  const auto pinned = PinnedBuffer::Create(device_, 0);

  ASSERT_EQ(buffer.status(), absl::OkStatus());
  ASSERT_EQ(pinned.status(), absl::OkStatus());
  EXPECT_EQ(buffer->As<float>().size(), 0U);
  EXPECT_TRUE(pinned->bytes().empty());
  EXPECT_THAT(fake_.leftovers(), testing::ElementsAre("1 contexts"));
}

TEST_F(DeviceBufferTest, MovesTakeTheMemoryAlong) {
  auto first = DeviceBuffer::Create(device_, 64);
  auto pinned = PinnedBuffer::Create(device_, 64);
  ASSERT_EQ(first.status(), absl::OkStatus());
  ASSERT_EQ(pinned.status(), absl::OkStatus());
  const CuDevicePtr address = first->As<float>().address();

  DeviceBuffer second(*std::move(first));
  DeviceBuffer third;
  third = std::move(second);
  PinnedBuffer other;
  other = *std::move(pinned);

  EXPECT_EQ(third.As<float>().address(), address);
  EXPECT_EQ(other.bytes().size(), 64U);
  EXPECT_THAT(fake_.leftovers(),
              testing::ElementsAre("1 buffers", "1 pinned buffers", "1 contexts"));
}

TEST_F(DeviceBufferTest, SpansCountElementsAndBytes) {
  const auto buffer = DeviceBuffer::Create(device_, 64);
  ASSERT_EQ(buffer.status(), absl::OkStatus());

  const DeviceSpan<const float> floats = buffer->As<float>();
  const DeviceSpan<const float> part = floats.subspan(3, 5);

  EXPECT_EQ(floats.size(), 16U);
  EXPECT_EQ(part.address(), floats.address() + 12);
  EXPECT_EQ(AsBytes(part).size(), 20U);
}

}  // namespace
}  // namespace pushpull
