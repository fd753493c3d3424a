// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/channel_choice.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<ChannelChoice> ChooseChannel(const std::map<std::string, std::string>& environment) {
  const auto get = [&](const char* name, const char* otherwise) {
    const auto it = environment.find(name);
    return it == environment.end() || it->second.empty() ? std::string(otherwise) : it->second;
  };
  const std::string channel = get(kChannelVariable, "auto");
  if (channel == "grpc") return ChannelChoice{.has_grpc = true, .shm_folder = ""};
  if (channel == "tcp") return ChannelChoice{.has_grpc = false, .shm_folder = ""};
  if (channel != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat(kChannelVariable, ": must be auto, tcp or grpc, is \"", channel, "\""));
  }
  return ChannelChoice{.has_grpc = false, .shm_folder = get(kShmFolderVariable, "/dev/shm")};
}

}  // namespace pushpull
