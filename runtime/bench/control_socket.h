// SPDX-License-Identifier: Apache-2.0
//
// How a benchmark and its workers synchronize: messages of fixed length over a socket in the job's
// folder. Both ends are the same program.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// A connected end. Movable. Thread-compatible. Calls block until their deadline
// (kDeadlineExceeded); kUnavailable: the other end is gone.
class ControlSocket {
 public:
  static absl::StatusOr<ControlSocket> Connect(const std::string& path);

  explicit ControlSocket(FileDescriptor socket) : socket_(std::move(socket)) {}

  absl::Status SendBytes(std::span<const std::byte> bytes, Deadline deadline);
  absl::Status ReceiveBytes(std::span<std::byte> bytes, Deadline deadline);

  // One plain struct, or several.
  template <typename T>
  absl::Status Send(std::span<const T> messages, Deadline deadline) {
    static_assert(std::is_trivially_copyable_v<T>);
    return SendBytes(std::as_bytes(messages), deadline);
  }
  template <typename T>
  absl::Status Send(const T& message, Deadline deadline) {
    return Send(std::span<const T>(&message, 1), deadline);
  }
  template <typename T>
  absl::Status Receive(std::span<T> messages, Deadline deadline) {
    static_assert(std::is_trivially_copyable_v<T>);
    return ReceiveBytes(std::as_writable_bytes(messages), deadline);
  }
  template <typename T>
  absl::StatusOr<T> Receive(Deadline deadline) {
    T message{};
    const absl::Status received = Receive(std::span<T>(&message, 1), deadline);
    if (!received.ok()) return received;
    return message;
  }

 private:
  FileDescriptor socket_;
};

// Thread-compatible.
class ControlListener {
 public:
  // The caller removes `path`, together with its folder.
  static absl::StatusOr<ControlListener> Listen(const std::string& path);
  absl::StatusOr<ControlSocket> Accept(Deadline deadline);

 private:
  explicit ControlListener(FileDescriptor socket) : socket_(std::move(socket)) {}

  FileDescriptor socket_;
};

}  // namespace pushpull
