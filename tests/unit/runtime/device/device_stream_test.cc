// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_stream.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_cuda_driver.h"
#include "tests/unit/runtime/device/on_device.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::chrono::milliseconds kShort{20};

class DeviceStreamTest : public testing::Test {
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

  DeviceStream NewStream() { return *DeviceStream::Create(device_); }

  FakeCudaDriver fake_;
  std::shared_ptr<const Device> device_;
};

TEST_F(DeviceStreamTest, WorkRunsInOrderAndNotBeforeItIsAskedFor) {
  DeviceStream stream = NewStream();
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 32);
  PinnedBuffer pinned = *PinnedBuffer::Create(device_, 32);
  const DeviceSpan<std::byte> memory = buffer.As<std::byte>();

  ASSERT_EQ(stream.Fill(memory, 7), absl::OkStatus());
  ASSERT_EQ(stream.CopyToHost(pinned.bytes(), memory), absl::OkStatus());
  EXPECT_THAT(fake_.work_log(), IsEmpty());
  ASSERT_EQ(stream.Wait(Soon()), absl::OkStatus());

  EXPECT_EQ(pinned.bytes()[31], std::byte{7});
  EXPECT_THAT(
      fake_.work_log(),
      ElementsAre(
          HasSubstr("fill_bytes 32"), HasSubstr("copy_to_host 32"), HasSubstr("host_function")));
}

TEST_F(DeviceStreamTest, AStreamWaitsForAnotherOnesEvent) {
  DeviceStream first = NewStream();
  DeviceStream second = NewStream();
  const DeviceEvent event = *DeviceEvent::Create(device_);
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 8);
  PinnedBuffer pinned = *PinnedBuffer::Create(device_, 8);

  ASSERT_EQ(first.Fill(buffer.As<std::byte>(), 9), absl::OkStatus());
  ASSERT_EQ(first.Record(event), absl::OkStatus());
  ASSERT_EQ(second.WaitFor(event), absl::OkStatus());
  ASSERT_EQ(second.CopyToHost(pinned.bytes(), buffer.As<std::byte>()), absl::OkStatus());
  ASSERT_EQ(second.Wait(Soon()), absl::OkStatus());

  EXPECT_EQ(pinned.bytes()[0], std::byte{9});
}

TEST_F(DeviceStreamTest, TimeBetweenEventsIsKnownWhenBothHavePassed) {
  DeviceStream stream = NewStream();
  const DeviceEvent start = *DeviceEvent::Create(device_);
  const DeviceEvent end = *DeviceEvent::Create(device_);
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 8);
  ASSERT_EQ(stream.Record(start), absl::OkStatus());
  ASSERT_EQ(stream.Fill(buffer.As<std::byte>(), 0), absl::OkStatus());
  ASSERT_EQ(stream.Record(end), absl::OkStatus());

  const auto early = DeviceEvent::SecondsBetween(start, end);
  ASSERT_EQ(stream.Wait(Soon()), absl::OkStatus());
  const auto late = DeviceEvent::SecondsBetween(start, end);

  EXPECT_EQ(early.status().code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(late.status(), absl::OkStatus());
  EXPECT_DOUBLE_EQ(*late, 0.002);  // two operations of the stand-in
}

TEST_F(DeviceStreamTest, AWaitEndsAtItsDeadlineAndMayGoOn) {
  DeviceStream stream = NewStream();
  fake_.HoldWork(true);
  const auto mark = stream.Mark();
  ASSERT_EQ(mark.status(), absl::OkStatus());

  const absl::Status late = mark->Wait(Deadline::After(kShort));
  EXPECT_FALSE(mark->is_done());
  fake_.HoldWork(false);
  const absl::Status done = mark->Wait(Soon());

  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.ToString(), HasSubstr("GPU 0 (Stand-in)"));
  EXPECT_EQ(done, absl::OkStatus());
  EXPECT_TRUE(mark->is_done());
}

TEST_F(DeviceStreamTest, TheDriversThreadWakesWhoWaits) {
  DeviceStream stream = NewStream();
  fake_.HoldWork(true);
  const auto mark = stream.Mark();
  ASSERT_EQ(mark.status(), absl::OkStatus());

  std::thread driver([&] {
    fake_.HoldWork(false);
    fake_.RunWork();
  });
  const absl::Status done = mark->Wait(Soon());
  driver.join();

  EXPECT_EQ(done, absl::OkStatus());
}

TEST_F(DeviceStreamTest, AWaitForFailedWorkFailsWithoutItsDeadline) {
  DeviceStream stream = NewStream();
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 8);
  ASSERT_EQ(stream.Fill(buffer.As<std::byte>(), 0), absl::OkStatus());
  fake_.FailWork(kCuIllegalAddress);

  const absl::Status done = stream.Wait(Soon());
  const absl::Status next = stream.Fill(buffer.As<std::byte>(), 0);

  EXPECT_EQ(done.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(done.ToString(), HasSubstr("work of a stream on GPU 0"));
  EXPECT_EQ(next.code(), absl::StatusCode::kAborted);
}

TEST_F(DeviceStreamTest, ACallThatFailsNamesItselfAndItsSize) {
  DeviceStream stream = NewStream();
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 8);
  fake_.FailNext("fill_bytes", kCuInvalidValue);

  const absl::Status filled = stream.Fill(buffer.As<std::byte>(), 0);

  EXPECT_EQ(filled.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(filled.ToString(), HasSubstr("cuMemsetD8Async of 8 bytes on GPU 0 (Stand-in)"));
}

TEST_F(DeviceStreamTest, AMovedStreamGoesOn) {
  DeviceStream first = NewStream();
  const auto mark = first.Mark();
  DeviceStream second(std::move(first));

  EXPECT_EQ(mark->Wait(Soon()), absl::OkStatus());
  EXPECT_EQ(second.Wait(Soon()), absl::OkStatus());
}

TEST(CompletionTest, IsDoneFromTheBeginning) {
  const Completion completion;

  EXPECT_TRUE(completion.is_done());
  EXPECT_EQ(completion.Wait(Soon()), absl::OkStatus());
}

}  // namespace
}  // namespace pushpull
