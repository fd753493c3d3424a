// SPDX-License-Identifier: Apache-2.0
//
// The connection between two ranks until they know each other: messages of link_hello.h, each after
// its length. Calls block until their deadline.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"

namespace pushpull {

// Waits for `events` of poll. kDeadlineExceeded.
absl::Status AwaitSocket(int socket, short events, Deadline deadline);

// kUnavailable: the peer has closed the connection, or the socket has failed. kDataLoss: a length
// that no message has.
absl::Status SendLinkMessage(int socket, std::span<const std::byte> body, Deadline deadline);
absl::StatusOr<std::vector<std::byte>> ReceiveLinkMessage(int socket, Deadline deadline);

// A listening socket, and connections with the options that links need; none of them blocks.
absl::StatusOr<FileDescriptor> ListenForRanks(const HostPort& address);
absl::StatusOr<FileDescriptor> AcceptRank(int listener, Deadline deadline);
absl::StatusOr<FileDescriptor> ConnectToRank(const HostPort& address, Deadline deadline);

}  // namespace pushpull
