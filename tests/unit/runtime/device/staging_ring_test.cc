// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/staging_ring.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_cuda_driver.h"
#include "tests/unit/runtime/device/on_device.h"

namespace pushpull {
namespace {

constexpr StagingOptions kSmallPieces{.piece_bytes = 64, .num_pieces = 3};

std::vector<uint8_t> Pattern(size_t num_bytes, uint32_t seed) {
  std::vector<uint8_t> bytes(num_bytes);
  for (size_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 64 + seed);
  return bytes;
}

class StagingRingOnDeviceTest : public OnDevice {};
PUSHPULL_ON_DEVICES(StagingRingOnDeviceTest);

TEST_P(StagingRingOnDeviceTest, BytesComeBackAsTheyWere) {
  StagingRing ring = *StagingRing::Create(on().stream(), kSmallPieces);

  for (const size_t num_bytes : std::vector<size_t>{0, 1, 63, 64, 65, 192, 193, 1000}) {
    const std::vector<uint8_t> sent = Pattern(num_bytes, 5);
    const DeviceBuffer buffer = *DeviceBuffer::Create(on().device(), num_bytes);
    std::vector<uint8_t> received(num_bytes, 0);
    ASSERT_EQ(absl::OkStatus(),
              ring.ToDevice(buffer.As<std::byte>(), std::as_bytes(std::span(sent)), Soon()));
    ASSERT_EQ(
        absl::OkStatus(),
        ring.ToHost(std::as_writable_bytes(std::span(received)), buffer.As<std::byte>(), Soon()));

    EXPECT_EQ(received, sent) << num_bytes;
  }
}

TEST_P(StagingRingOnDeviceTest, TheSourceIsFreeWhenTheCallReturns) {
  StagingRing ring = *StagingRing::Create(on().stream(), kSmallPieces);
  const DeviceBuffer buffer = *DeviceBuffer::Create(on().device(), 500);
  const std::vector<uint8_t> sent = Pattern(500, 1);
  std::vector<uint8_t> source = sent;
  std::vector<uint8_t> received(500, 0);

  ASSERT_EQ(absl::OkStatus(),
            ring.ToDevice(buffer.As<std::byte>(), std::as_bytes(std::span(source)), Soon()));
  source.assign(500, 0);
  ASSERT_EQ(
      absl::OkStatus(),
      ring.ToHost(std::as_writable_bytes(std::span(received)), buffer.As<std::byte>(), Soon()));

  EXPECT_EQ(received, sent);
}

class StagingRingTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(InitializeDriver(*fake_.api()).status(), absl::OkStatus());
    device_ = *Device::Open(fake_.api(), 0);
  }
  void TearDown() override {
    device_.reset();
    EXPECT_THAT(fake_.leftovers(), testing::IsEmpty());
    EXPECT_THAT(fake_.violations(), testing::IsEmpty());
  }

  FakeCudaDriver fake_;
  std::shared_ptr<const Device> device_;
};

TEST_F(StagingRingTest, ABusyStreamEndsTheCallAtItsDeadline) {
  DeviceStream stream = *DeviceStream::Create(device_);
  StagingRing ring = *StagingRing::Create(stream, kSmallPieces);
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 500);
  const std::vector<uint8_t> sent = Pattern(500, 1);
  fake_.HoldWork(true);

  const absl::Status late = ring.ToDevice(buffer.As<std::byte>(),
                                          std::as_bytes(std::span(sent)),
                                          Deadline::After(std::chrono::milliseconds(20)));
  fake_.HoldWork(false);

  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(StagingRingTest, MemoryThatCannotBePinnedIsAnError) {
  DeviceStream stream = *DeviceStream::Create(device_);
  fake_.FailNext("host_allocate", kCuOutOfMemory);

  const auto ring = StagingRing::Create(stream, kSmallPieces);

  EXPECT_EQ(ring.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(StagingRingTest, NoPiecesAreRefused) {
  DeviceStream stream = *DeviceStream::Create(device_);

  const auto ring = StagingRing::Create(stream, {.piece_bytes = 64, .num_pieces = 0});

  EXPECT_EQ(ring.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StagingRingTest, CopiesThatFailLeaveNothingBehind) {
  DeviceStream stream = *DeviceStream::Create(device_);
  StagingRing ring = *StagingRing::Create(stream, kSmallPieces);
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 500);
  std::vector<uint8_t> received(500, 0);
  fake_.FailWork(kCuLaunchFailed);

  const absl::Status failed =
      ring.ToHost(std::as_writable_bytes(std::span(received)), buffer.As<std::byte>(), Soon());

  EXPECT_EQ(failed.code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace pushpull
