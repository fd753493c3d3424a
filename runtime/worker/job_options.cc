// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "absl/strings/str_cat.h"

#include "pushpull/job.h"

#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/termination_message.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/transport/channel_choice.h"

namespace pushpull {
namespace {

absl::StatusOr<uint32_t> ParseNumber(const std::string& name,
                                     const std::string& text,
                                     uint32_t max) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": must be between 0 and ", max, ", is \"", text, "\""));
  }
  return value;
}

// Empty: the variable is not set.
absl::StatusOr<std::string> AddressAt(const std::map<std::string, std::string>& environment,
                                      const std::string& name) {
  const auto it = environment.find(name);
  if (it == environment.end() || it->second.empty()) return "";
  PUSHPULL_RETURN_IF_ERROR(ParseHostPort(it->second, name).status());
  return it->second;
}

}  // namespace

absl::StatusOr<JobOptions> JobOptions::FromEnvironment(
    const std::map<std::string, std::string>& environment) {
  const auto get = [&](const std::string& name) -> absl::StatusOr<std::string> {
    const auto it = environment.find(name);
    if (it != environment.end()) return it->second;
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        " is not set: start this program with `pushpull run`; or, in Python, a job on this machine "
        "with `pushpull.local` (this process is its worker) or `pushpull.spawn`"));
  };
  JobOptions options;
  PUSHPULL_ASSIGN_OR_RETURN(options.job, get("PUSHPULL_JOB"));
  PUSHPULL_ASSIGN_OR_RETURN(options.coordinator, get("PUSHPULL_COORDINATOR"));
  PUSHPULL_RETURN_IF_ERROR(ParseHostPort(options.coordinator, "PUSHPULL_COORDINATOR").status());
  PUSHPULL_ASSIGN_OR_RETURN(const std::string index, get("PUSHPULL_INDEX"));
  PUSHPULL_ASSIGN_OR_RETURN(const uint32_t worker, ParseNumber("PUSHPULL_INDEX", index, 4095));
  options.worker = WorkerId{worker};
  if (const auto port = environment.find("PUSHPULL_METRICS_PORT"); port != environment.end()) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint32_t number,
                              ParseNumber("PUSHPULL_METRICS_PORT", port->second, 65535));
    // A fixed port is scraped from outside; a free one only by this machine's launcher.
    options.metrics_listen = absl::StrCat(number == 0 ? "127.0.0.1" : "0.0.0.0", ":", number);
  }
  if (const auto level = environment.find("PUSHPULL_LOG_LEVEL"); level != environment.end()) {
    PUSHPULL_ASSIGN_OR_RETURN(options.log_level, ParseLogLevel(level->second));
  }
  if (const auto folder = environment.find(kTlsFolderVariable); folder != environment.end())
    options.tls_folder = folder->second;
  PUSHPULL_ASSIGN_OR_RETURN(const ChannelChoice channel, ChooseChannel(environment));
  options.shm_folder = channel.shm_folder;
  options.has_grpc = channel.has_grpc;
  PUSHPULL_ASSIGN_OR_RETURN(const SocketBuffers buffers, SocketBuffersFrom(environment));
  options.socket_buffer_bytes = buffers.bytes;
  options.unsent_bytes = buffers.unsent_bytes_max;
  PUSHPULL_ASSIGN_OR_RETURN(options.ring, AddressAt(environment, "PUSHPULL_RING"));
  if (const auto rack = environment.find("PUSHPULL_RACK"); rack != environment.end())
    options.rack = rack->second;
  PUSHPULL_ASSIGN_OR_RETURN(options.group, AddressAt(environment, "PUSHPULL_GROUP"));
  if (const auto node = environment.find("PUSHPULL_NODE"); node != environment.end())
    options.node = node->second;
  if (const auto log = environment.find(kTerminationLogVariable); log != environment.end())
    options.termination_log = log->second;
  const auto role = environment.find("PUSHPULL_ROLE");
  options.takes_sigterm = role != environment.end() && role->second == "worker";
  return options;
}

}  // namespace pushpull
