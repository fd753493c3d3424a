// SPDX-License-Identifier: Apache-2.0
//
// Memory that one process writes and its neighbors read in place. It has no name anywhere:
// neighbors receive its descriptor (shm/descriptor_inbox.h) and cannot write to it. Nobody can
// shrink it, not even its owner: that would kill a reader with SIGBUS.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// The owner's side. Neighbors' mappings survive its destruction. Thread-compatible.
class SharedMemory {
 public:
  // `name` shows in /proc/PID/maps. All pages are allocated, zeroed, before this returns.
  // kResourceExhausted: not enough memory.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(absl::string_view name,
                                                              size_t num_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Page-aligned.
  std::span<std::byte> bytes() const { return bytes_; }
  int descriptor() const { return file_.get(); }

 private:
  SharedMemory(FileDescriptor file, std::span<std::byte> bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  const FileDescriptor file_;
  const std::span<std::byte> bytes_;
};

// A neighbor's side. The bytes may change at any time, so no decision may depend on them.
class AttachedMemory {
 public:
  // kInvalidArgument: the memory does not have that size, or is not sealed against shrinking.
  static absl::StatusOr<std::shared_ptr<const AttachedMemory>> Attach(const FileDescriptor& file,
                                                                      size_t num_bytes);
  ~AttachedMemory();
  AttachedMemory(const AttachedMemory&) = delete;
  AttachedMemory& operator=(const AttachedMemory&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit AttachedMemory(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::span<const std::byte> bytes_;
};

}  // namespace pushpull
