// SPDX-License-Identifier: Apache-2.0
//
// The kind of channel a process uses and how much of its data the kernel may buffer, from the
// environment.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// The variable's value; `otherwise` if it is unset or empty.
std::string SettingOf(const std::map<std::string, std::string>& environment,
                      const std::string& variable,
                      const char* otherwise);

// auto: shared memory if both ends can map it, else sockets; tcp: sockets only; grpc: gRPC only.
// All members of a job must have the same value.
inline constexpr char kChannelVariable[] = "PUSHPULL_CHANNEL";
inline constexpr char kShmFolderVariable[] = "PUSHPULL_SHM_DIR";

struct ChannelChoice {
  bool has_grpc = false;   // else tcp
  std::string shm_folder;  // empty: no shared memory
};

// kInvalidArgument names the variable and its value.
absl::StatusOr<ChannelChoice> ChooseChannel(const std::map<std::string, std::string>& environment);

// Buffers of one connection, in each direction. Bytes in the kernel have left the cache before they
// are copied again, and no urgent frame overtakes them (docs/decisions/0034-order-on-the-wire.md).
struct SocketBuffers {
  // SO_SNDBUF and SO_RCVBUF; the kernel doubles them for its overhead per packet. This bounds the
  // bytes in flight, i.e. one connection's bandwidth times round trip. All workers of a step send
  // at the same moment, and a switch drops what it cannot queue
  // (docs/decisions/0042-push-window.md).
  int bytes = 64 * 1024;
  // The same between ends on one host, where packets have 64 KiB: without room for a few of them a
  // sender waits for timers.
  int bytes_on_host = 256 * 1024;
  // Bytes in the kernel that are not sent yet, in addition to those in flight (TCP_NOTSENT_LOWAT).
  // 0: no bound other than `bytes`.
  int unsent_bytes_max = 64 * 1024;
};

// 4 KiB to 64 MiB; the second may also be 0. The first applies to other hosts and to the same host.
inline constexpr char kSocketBufferVariable[] = "PUSHPULL_SOCKET_BUFFER_BYTES";
inline constexpr char kUnsentVariable[] = "PUSHPULL_UNSENT_BYTES";

// kInvalidArgument names the variable and its value.
absl::StatusOr<SocketBuffers> SocketBuffersFrom(
    const std::map<std::string, std::string>& environment);

}  // namespace pushpull
