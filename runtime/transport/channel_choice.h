// SPDX-License-Identifier: Apache-2.0
//
// Which channel a process uses, as its environment says.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// auto: shared memory where both ends reach the same, else sockets; tcp: sockets only; grpc: gRPC
// only. All members of a job have the same.
inline constexpr char kChannelVariable[] = "PUSHPULL_CHANNEL";
inline constexpr char kShmFolderVariable[] = "PUSHPULL_SHM_DIR";

struct ChannelChoice {
  bool has_grpc = false;   // else tcp
  std::string shm_folder;  // empty: no shared memory
};

// kInvalidArgument: names the variable and its value.
absl::StatusOr<ChannelChoice> ChooseChannel(const std::map<std::string, std::string>& environment);

}  // namespace pushpull
