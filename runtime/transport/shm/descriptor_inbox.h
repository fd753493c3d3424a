// SPDX-License-Identifier: Apache-2.0
//
// How a descriptor gets from one process of a host, or container of a pod, to another: as a message
// to a socket whose name and token the other end of a connection has been told. The name is in the
// network namespace that both are in, not in a folder, so nothing is left of it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/hello.h"

namespace pushpull {

// Where one descriptor is awaited. Never blocks. Movable. Thread-compatible.
class DescriptorInbox {
 public:
  // Its name begins with `prefix`, and goes on with random digits.
  static absl::StatusOr<DescriptorInbox> Open(absl::string_view prefix);

  const ShmOffer& address() const { return address_; }

  // What has been sent here with the token; messages of others are thrown away.
  // kNotFound: nothing.
  absl::StatusOr<FileDescriptor> Take() const;

 private:
  DescriptorInbox(FileDescriptor socket, ShmOffer address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  FileDescriptor socket_;
  ShmOffer address_;
};

// Sends a copy of `descriptor` to the inbox, which has it when this returns. Never blocks.
// kUnavailable: there is no such inbox here.
absl::Status SendDescriptor(const ShmOffer& inbox, int descriptor);

}  // namespace pushpull
