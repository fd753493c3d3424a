// SPDX-License-Identifier: Apache-2.0
//
// Sole ownership of a file descriptor.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// The destructor closes the descriptor. Thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    if (this != &other) other.Reset();
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int Release();
  void Reset();

 private:
  int fd_ = -1;
};

// For a process that was just forked, and does not use what its parent has open: closes the
// descriptors of all FileDescriptors. A connection that a forked process also holds would stay open
// when its parent dies, and nobody would notice. Their objects must not be used again. Makes only
// async-signal-safe calls.
void CloseDescriptorsOfParent();

// The project's mapping from errno to status codes. `what` names the call and its object, e.g.
// "bind 127.0.0.1:7171". Among others:
//   kUnavailable        connection errors
//   kAlreadyExists      a port in use
//   kNotFound           a missing file
//   kResourceExhausted  descriptors, memory, a full disk or quota, a file beyond its size limit
absl::Status StatusFromErrno(int error, absl::string_view what);

}  // namespace pushpull
