// SPDX-License-Identifier: Apache-2.0
//
// Which kind of channel a process uses, from its environment.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// auto: shared memory where both ends can map it, else sockets; tcp: sockets only; grpc: gRPC only.
// All members of a job must have the same value.
inline constexpr char kChannelVariable[] = "PUSHPULL_CHANNEL";
inline constexpr char kShmFolderVariable[] = "PUSHPULL_SHM_DIR";

struct ChannelChoice {
  bool has_grpc = false;   // else tcp
  std::string shm_folder;  // empty: no shared memory
};

// kInvalidArgument names the variable and its value.
absl::StatusOr<ChannelChoice> ChooseChannel(const std::map<std::string, std::string>& environment);

}  // namespace pushpull
