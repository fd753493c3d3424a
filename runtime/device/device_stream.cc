// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// The driver calls no host function of a stream whose work has failed, so a wait polls the stream
// periodically.
constexpr std::chrono::milliseconds kFailureCheckPeriod{50};

constexpr std::chrono::seconds kEndOfWork{30};

}  // namespace

absl::StatusOr<DeviceEvent> DeviceEvent::Create(std::shared_ptr<const Device> device) {
  const DeviceScope scope(*device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  CuEvent handle = nullptr;
  PUSHPULL_RETURN_IF_ERROR(
      device->Check(device->driver().event_create(&handle, kCuEventDefault), "cuEventCreate"));
  return DeviceEvent(std::move(device), handle);
}

DeviceEvent::DeviceEvent(DeviceEvent&& other) noexcept
    : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}

DeviceEvent::~DeviceEvent() {
  if (handle_ == nullptr) return;
  const DeviceScope scope(*device_);
  if (scope.status().ok()) device_->driver().event_destroy(handle_);
}

absl::StatusOr<double> DeviceEvent::SecondsBetween(const DeviceEvent& start,
                                                   const DeviceEvent& end) {
  const Device& device = *start.device_;
  const DeviceScope scope(device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  float milliseconds = 0;
  PUSHPULL_RETURN_IF_ERROR(
      device.Check(device.driver().event_elapsed(&milliseconds, start.handle_, end.handle_),
                   "cuEventElapsedTime"));
  return double{milliseconds} / 1000;
}

struct Completion::State {
  State(std::shared_ptr<const Device> on_device, CuStream of_stream)
      : device(std::move(on_device)), stream(of_stream) {}

  const std::shared_ptr<const Device> device;
  const CuStream stream;
  Mutex mutex;
  CondVar reached;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // why it will never be done
};

// Runs on a thread of the driver, which must not call the driver.
void Completion::OnReached(void* state) {
  State& reached = *static_cast<State*>(state);
  const MutexLock lock(reached.mutex);
  reached.is_done = true;
  reached.reached.NotifyAll();
}

bool Completion::is_done() const {
  if (state_ == nullptr) return true;
  const MutexLock lock(state_->mutex);
  return state_->is_done;
}

absl::Status Completion::Wait(Deadline deadline) const {
  if (state_ == nullptr) return absl::OkStatus();
  State& state = *state_;
  while (true) {
    {
      const MutexLock lock(state.mutex);
      if (state.is_done || !state.failure.ok()) return state.failure;
    }
    {
      const DeviceScope scope(*state.device);
      PUSHPULL_RETURN_IF_ERROR(scope.status());
      const CuResult work = state.device->driver().stream_query(state.stream);
      if (work != kCuSuccess && work != kCuNotReady) {
        return state.device->Check(work, "work of a stream");
      }
    }
    const MutexLock lock(state.mutex);
    if (state.is_done) return absl::OkStatus();
    if (deadline.has_passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat("work of a stream on ", state.device->text(), " is not done in time"));
    }
    const Deadline check = Deadline::After(kFailureCheckPeriod);
    state.reached.WaitUntil(state.mutex, Deadline(std::min(deadline.when(), check.when())));
  }
}

absl::StatusOr<DeviceStream> DeviceStream::Create(std::shared_ptr<const Device> device) {
  const DeviceScope scope(*device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  CuStream handle = nullptr;
  // Does not wait for stream 0, which other code in the process may use.
  PUSHPULL_RETURN_IF_ERROR(device->Check(
      device->driver().stream_create(&handle, kCuStreamNonBlocking), "cuStreamCreate"));
  return DeviceStream(std::move(device), handle);
}

DeviceStream::DeviceStream(DeviceStream&& other) noexcept
    : device_(std::move(other.device_)),
      handle_(std::exchange(other.handle_, nullptr)),
      marked_(std::move(other.marked_)) {}

DeviceStream::~DeviceStream() {
  if (handle_ == nullptr) return;
  if (!marked_.empty()) {
    const absl::Status done = Completion(marked_.back()).Wait(Deadline::After(kEndOfWork));
    // Otherwise the driver would call back with freed state.
    PUSHPULL_CHECK(!absl::IsDeadlineExceeded(done));
    for (const std::shared_ptr<Completion::State>& state : marked_) {
      const MutexLock lock(state->mutex);
      state->failure = done;
    }
  }
  const DeviceScope scope(*device_);
  if (scope.status().ok()) device_->driver().stream_destroy(handle_);
}

absl::Status DeviceStream::CopyToDevice(DeviceSpan<std::byte> to, std::span<const std::byte> from) {
  PUSHPULL_CHECK(to.size() == from.size());
  if (from.empty()) return absl::OkStatus();
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  return device_->Check(
      device_->driver().copy_to_device(to.address(), from.data(), from.size(), handle_),
      "cuMemcpyHtoDAsync",
      from.size());
}

absl::Status DeviceStream::CopyToHost(std::span<std::byte> to, DeviceSpan<const std::byte> from) {
  PUSHPULL_CHECK(to.size() == from.size());
  if (to.empty()) return absl::OkStatus();
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  return device_->Check(
      device_->driver().copy_to_host(to.data(), from.address(), to.size(), handle_),
      "cuMemcpyDtoHAsync",
      to.size());
}

absl::Status DeviceStream::CopyOnDevice(DeviceSpan<std::byte> to,
                                        DeviceSpan<const std::byte> from) {
  PUSHPULL_CHECK(to.size() == from.size());
  if (to.size() == 0) return absl::OkStatus();
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  return device_->Check(
      device_->driver().copy_on_device(to.address(), from.address(), to.size(), handle_),
      "cuMemcpyDtoDAsync",
      to.size());
}

absl::Status DeviceStream::Fill(DeviceSpan<std::byte> bytes, uint8_t value) {
  if (bytes.size() == 0) return absl::OkStatus();
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  return device_->Check(device_->driver().fill_bytes(bytes.address(), value, bytes.size(), handle_),
                        "cuMemsetD8Async",
                        bytes.size());
}

absl::Status DeviceStream::Record(const DeviceEvent& event) {
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  return device_->Check(device_->driver().event_record(event.handle(), handle_), "cuEventRecord");
}

absl::Status DeviceStream::WaitFor(const DeviceEvent& event) {
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  return device_->Check(device_->driver().stream_wait_event(handle_, event.handle(), 0),
                        "cuStreamWaitEvent");
}

absl::StatusOr<Completion> DeviceStream::Mark() {
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  while (!marked_.empty() && Completion(marked_.front()).is_done()) marked_.pop_front();
  auto state = std::make_shared<Completion::State>(device_, handle_);
  PUSHPULL_RETURN_IF_ERROR(device_->Check(
      device_->driver().launch_host_function(handle_, &Completion::OnReached, state.get()),
      "cuLaunchHostFunc"));
  marked_.push_back(state);
  return Completion(std::move(state));
}

absl::Status DeviceStream::Wait(Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const Completion completion, Mark());
  return completion.Wait(deadline);
}

}  // namespace pushpull
