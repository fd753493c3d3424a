// SPDX-License-Identifier: Apache-2.0
//
// How much the kernel may hold of a connection, as a process's environment says.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// Of one connection, in each direction. What lies in the kernel has left the cache before it is
// copied again, and no more urgent frame overtakes it (decisions/0034-order-on-the-wire.md).
struct SocketBuffers {
  // SO_SNDBUF and SO_RCVBUF; the kernel doubles it, for what it adds to each packet. No more than
  // this is under way on the link: bandwidth times round trip of one connection. The workers of a
  // step send at the same moment, and what a switch cannot hold of that is lost (decisions/0042).
  int bytes = 64 * 1024;
  // The same between ends of one host, whose packets have 64 KiB: of less than a few of them a
  // sender waits for timers.
  int bytes_on_host = 256 * 1024;
  // Of what the kernel has been given, as much may wait for the link (TCP_NOTSENT_LOWAT), however
  // much is under way on it. 0: no bound but `bytes`.
  int unsent_bytes_max = 64 * 1024;
};

// 4 KiB to 64 MiB; the second may also be 0. The first is for both, other hosts and the own.
inline constexpr char kSocketBufferVariable[] = "PUSHPULL_SOCKET_BUFFER_BYTES";
inline constexpr char kUnsentVariable[] = "PUSHPULL_UNSENT_BYTES";

// What the variables say. kInvalidArgument names the variable and its value.
absl::StatusOr<SocketBuffers> SocketBuffersFrom(
    const std::map<std::string, std::string>& environment);

}  // namespace pushpull
