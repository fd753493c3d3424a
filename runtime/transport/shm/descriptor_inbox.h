// SPDX-License-Identifier: Apache-2.0
//
// Passes a descriptor from one process of a host, or container of a pod, to another, as a message
// to an abstract Unix socket whose name and token the sender received over their connection. The
// name lives in the network namespace that both share, not in a folder, so nothing is left behind.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/hello.h"

namespace pushpull {

ShmToken RandomToken();

// Waits for one descriptor. Never blocks. Movable. Thread-compatible.
class DescriptorInbox {
 public:
  // The name is `prefix` followed by random digits.
  static absl::StatusOr<DescriptorInbox> Open(absl::string_view prefix);

  const ShmOffer& address() const { return address_; }

  // The descriptor sent here with the token; other messages are dropped. kNotFound: none.
  absl::StatusOr<FileDescriptor> Take() const;

 private:
  DescriptorInbox(FileDescriptor socket, ShmOffer address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  FileDescriptor socket_;
  ShmOffer address_;
};

// Sends a copy of `descriptor`, which is in the inbox when this returns. Never blocks.
// kUnavailable: there is no such inbox in this network namespace.
absl::Status SendDescriptor(const ShmOffer& inbox, int descriptor);

}  // namespace pushpull
