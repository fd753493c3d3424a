// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/channel_choice.h"

#include <charconv>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kBytesMin = 4 * 1024;
constexpr int kBytesMax = 64 * 1024 * 1024;

enum class Zero { kMeansNoBound, kIsInvalid };

absl::StatusOr<int> BytesFrom(const std::map<std::string, std::string>& environment,
                              const char* variable,
                              Zero zero,
                              int otherwise) {
  const std::string text = SettingOf(environment, variable, "");
  if (text.empty()) return otherwise;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_off = value == 0 && zero == Zero::kMeansNoBound;
  const bool is_in_range = is_off || (value >= kBytesMin && value <= kBytesMax);
  if (error == std::errc() && end == text.data() + text.size() && is_in_range) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(variable,
                   ": must be a number of bytes between ",
                   kBytesMin,
                   " and ",
                   kBytesMax,
                   zero == Zero::kMeansNoBound ? ", or 0 for no bound" : "",
                   ", is \"",
                   text,
                   "\""));
}

}  // namespace

std::string SettingOf(const std::map<std::string, std::string>& environment,
                      const std::string& variable,
                      const char* otherwise) {
  const auto found = environment.find(variable);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

absl::StatusOr<ChannelChoice> ChooseChannel(const std::map<std::string, std::string>& environment) {
  const std::string channel = SettingOf(environment, kChannelVariable, "auto");
  if (channel == "grpc") return ChannelChoice{.has_grpc = true, .shm_folder = ""};
  if (channel == "tcp") return ChannelChoice{.has_grpc = false, .shm_folder = ""};
  if (channel != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat(kChannelVariable, ": must be auto, tcp or grpc, is \"", channel, "\""));
  }
  return ChannelChoice{.has_grpc = false,
                       .shm_folder = SettingOf(environment, kShmFolderVariable, "/dev/shm")};
}

absl::StatusOr<SocketBuffers> SocketBuffersFrom(
    const std::map<std::string, std::string>& environment) {
  SocketBuffers buffers;
  PUSHPULL_ASSIGN_OR_RETURN(
      buffers.bytes,
      BytesFrom(environment, kSocketBufferVariable, Zero::kIsInvalid, buffers.bytes));
  PUSHPULL_ASSIGN_OR_RETURN(
      buffers.bytes_on_host,
      BytesFrom(environment, kSocketBufferVariable, Zero::kIsInvalid, buffers.bytes_on_host));
  PUSHPULL_ASSIGN_OR_RETURN(
      buffers.unsent_bytes_max,
      BytesFrom(environment, kUnsentVariable, Zero::kMeansNoBound, buffers.unsent_bytes_max));
  return buffers;
}

}  // namespace pushpull
