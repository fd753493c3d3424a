// SPDX-License-Identifier: Apache-2.0
//
// Streams: work put on one runs in order, on the GPU, while the host continues. Events are points
// in a stream, for other streams to wait for and to measure between; the host waits for a
// Completion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/device/device.h"
#include "runtime/device/device_buffer.h"

namespace pushpull {

class DeviceStream;

// Thread-compatible.
class DeviceEvent {
 public:
  static absl::StatusOr<DeviceEvent> Create(std::shared_ptr<const Device> device);

  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  DeviceEvent(DeviceEvent&& other) noexcept;
  DeviceEvent& operator=(DeviceEvent&&) = delete;
  ~DeviceEvent();

  CuEvent handle() const { return handle_; }

  // Seconds that the GPU took from `start` to `end`, both recorded and reached. kUnavailable: one
  // has not been reached yet.
  static absl::StatusOr<double> SecondsBetween(const DeviceEvent& start, const DeviceEvent& end);

 private:
  DeviceEvent(std::shared_ptr<const Device> device, CuEvent handle)
      : device_(std::move(device)), handle_(handle) {}

  std::shared_ptr<const Device> device_;
  CuEvent handle_ = nullptr;
};

// Whether a stream has done all the work that it had at one moment. Copies share the state.
// Thread-safe, but the stream must not be destroyed during a wait.
class Completion {
 public:
  // Done from the beginning.
  Completion() = default;

  bool is_done() const;
  // Blocks without using the CPU. kDeadlineExceeded: not done yet; waiting again is allowed. Other
  // errors are those of the work (DriverStatus).
  absl::Status Wait(Deadline deadline) const;

 private:
  friend class DeviceStream;
  struct State;
  explicit Completion(std::shared_ptr<State> state) : state_(std::move(state)) {}

  static void OnReached(void* state);

  std::shared_ptr<State> state_;
};

// Copies and fills are put on the stream and return at once; a copy's host memory must be that of a
// PinnedBuffer, and all memory must stay until the work is done. A call may return an error of
// earlier work. The destructor waits for marked work, and aborts the process if that takes more
// than half a minute. Movable. Thread-compatible.
class DeviceStream {
 public:
  static absl::StatusOr<DeviceStream> Create(std::shared_ptr<const Device> device);

  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  DeviceStream(DeviceStream&& other) noexcept;
  DeviceStream& operator=(DeviceStream&&) = delete;
  ~DeviceStream();

  const std::shared_ptr<const Device>& device() const { return device_; }
  CuStream handle() const { return handle_; }

  // Both sides have the same number of bytes.
  absl::Status CopyToDevice(DeviceSpan<std::byte> to, std::span<const std::byte> from);
  absl::Status CopyToHost(std::span<std::byte> to, DeviceSpan<const std::byte> from);
  absl::Status CopyOnDevice(DeviceSpan<std::byte> to, DeviceSpan<const std::byte> from);
  absl::Status Fill(DeviceSpan<std::byte> bytes, uint8_t value);

  absl::Status Record(const DeviceEvent& event);
  // Work put on this stream from now on waits, on the GPU, for the event.
  absl::Status WaitFor(const DeviceEvent& event);

  // Done once all work that is on the stream now is done.
  absl::StatusOr<Completion> Mark();
  // Blocks until then. Errors as for Completion::Wait.
  absl::Status Wait(Deadline deadline);

 private:
  DeviceStream(std::shared_ptr<const Device> device, CuStream handle)
      : device_(std::move(device)), handle_(handle) {}

  std::shared_ptr<const Device> device_;
  CuStream handle_ = nullptr;
  // Marked and not known to be done, in order. They live until the driver has called back for them,
  // or the stream has failed and it never will.
  std::deque<std::shared_ptr<Completion::State>> marked_;
};

}  // namespace pushpull
