// SPDX-License-Identifier: Apache-2.0
//
// Memory that one process writes and its neighbours read where it lies. It has no name anywhere:
// neighbours get its descriptor (shm/descriptor_inbox.h), and can neither write to it nor make it
// shorter, nor can its owner, under whom a reader would die.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// The owner's side. Lives as long as somebody holds it; what others have mapped stays there for
// them. Thread-compatible.
class SharedMemory {
 public:
  // `name` shows in lists of mappings. All of the memory is there from now on, zeros; blocks for
  // the pages. kResourceExhausted: there is not as much.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(absl::string_view name,
                                                              size_t num_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Begins with a page.
  std::span<std::byte> bytes() const { return bytes_; }
  int descriptor() const { return file_.get(); }

 private:
  SharedMemory(FileDescriptor file, std::span<std::byte> bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  const FileDescriptor file_;
  const std::span<std::byte> bytes_;
};

// A neighbour's side. What is read there may change at any time: it decides nothing.
class AttachedMemory {
 public:
  // kInvalidArgument: it is not memory of that size which stays as it is.
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
