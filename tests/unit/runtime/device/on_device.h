// SPDX-License-Identifier: Apache-2.0
//
// One body of a test, on the stand-in of the driver and on a GPU where there is one. On the
// stand-in, misuse of the driver and what was not freed fail the test.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/device/device.h"
#include "runtime/device/device_buffer.h"
#include "runtime/device/device_kernels.h"
#include "runtime/device/device_stream.h"
#include "runtime/device/staging_ring.h"
#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {

inline Deadline Soon() {
  return Deadline::After(std::chrono::seconds(30));
}

// An open device with a stream, and what tests do with them.
class OpenDevice {
 public:
  OpenDevice(std::shared_ptr<const Device> device, DeviceStream stream);

  const std::shared_ptr<const Device>& device() { return device_; }
  DeviceStream& stream() { return stream_; }

  // Elements in a new buffer of the device, which lives as long as this.
  template <typename Element>
  DeviceSpan<Element> Upload(const std::vector<Element>& elements) {
    DeviceBuffer& buffer = NewBuffer(elements.size() * sizeof(Element));
    const DeviceSpan<Element> span = buffer.As<Element>();
    EXPECT_EQ(absl::OkStatus(),
              staging_.ToDevice(AsWritableBytes(span), std::as_bytes(std::span(elements)), Soon()));
    return span;
  }

  // What is there when all work of the stream is done.
  template <typename Element>
  std::vector<std::remove_const_t<Element>> Download(DeviceSpan<Element> span) {
    std::vector<std::remove_const_t<Element>> elements(span.size());
    EXPECT_EQ(absl::OkStatus(),
              staging_.ToHost(std::as_writable_bytes(std::span(elements)), AsBytes(span), Soon()));
    return elements;
  }

 private:
  DeviceBuffer& NewBuffer(size_t num_bytes);

  std::shared_ptr<const Device> device_;
  DeviceStream stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  StagingRing staging_;
};

// Parameter: "stand_in" or "gpu".
class OnDevice : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  void TearDown() override;

  bool is_gpu() const { return std::string(GetParam()) == "gpu"; }
  OpenDevice& on() { return *on_; }
  std::span<const std::byte> image() const { return image_; }

 private:
  std::unique_ptr<FakeCudaDriver> fake_;
  std::span<const std::byte> image_;
  std::unique_ptr<OpenDevice> on_;
};

// The names of cases: "StandInAndGpu/OnDeviceTest.Name/gpu".
inline std::string DriverName(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

#define PUSHPULL_ON_DEVICES(suite) \
  INSTANTIATE_TEST_SUITE_P(Driver, suite, testing::Values("stand_in", "gpu"), DriverName)

}  // namespace pushpull
