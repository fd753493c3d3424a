// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/device_buffer.h"
#include "tests/fakes/fake_cuda_driver.h"
#include "tests/unit/runtime/device/on_device.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(InitializeDriver(*fake_.api()).status(), absl::OkStatus()); }

  FakeCudaDriver fake_;
};

TEST_F(DeviceTest, SaysWhatItIs) {
  const auto device = Device::Open(fake_.api(), 1);

  ASSERT_EQ(device.status(), absl::OkStatus());
  EXPECT_EQ((*device)->text(), "GPU 1 (Stand-in)");
  EXPECT_EQ((*device)->properties().major, 9);
  EXPECT_EQ((*device)->properties().multiprocessors, 132);
  EXPECT_EQ((*device)->properties().memory_bytes, FakeCudaDriver::kMemoryBytes);
}

TEST_F(DeviceTest, AnOrdinalThatThereIsNotIsNamed) {
  for (const int ordinal : {-1, FakeCudaDriver::kNumGpus}) {
    const auto device = Device::Open(fake_.api(), ordinal);

    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(device.status().ToString(), HasSubstr(absl::StrCat("no GPU ", ordinal)));
  }
}

TEST_F(DeviceTest, AFailedOpenLeavesNothing) {
  fake_.FailNext("primary_context_retain", kCuOutOfMemory);

  const auto device = Device::Open(fake_.api(), 0);

  EXPECT_EQ(device.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(fake_.leftovers(), IsEmpty());
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(DeviceTest, ObjectsKeepTheirDeviceOpen) {
  auto device = Device::Open(fake_.api(), 0);
  ASSERT_EQ(device.status(), absl::OkStatus());
  auto buffer = DeviceBuffer::Create(*std::move(device), 16);
  ASSERT_EQ(buffer.status(), absl::OkStatus());
  EXPECT_THAT(fake_.leftovers(), testing::ElementsAre("1 buffers", "1 contexts"));

  *buffer = DeviceBuffer();

  EXPECT_THAT(fake_.leftovers(), IsEmpty());
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(DeviceTest, MemoryInfoCountsWhatIsAllocated) {
  const auto device = Device::Open(fake_.api(), 0);
  ASSERT_EQ(device.status(), absl::OkStatus());
  const auto buffer = DeviceBuffer::Create(*device, 1000);
  ASSERT_EQ(buffer.status(), absl::OkStatus());

  const auto info = (*device)->MemoryInfo();

  ASSERT_EQ(info.status(), absl::OkStatus());
  EXPECT_EQ(info->total_bytes, FakeCudaDriver::kMemoryBytes);
  EXPECT_EQ(info->free_bytes, FakeCudaDriver::kMemoryBytes - 1000);
}

}  // namespace
}  // namespace pushpull
