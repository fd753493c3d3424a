// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/rack_network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kOwnNamespace[] = "/proc/self/ns/net";
constexpr size_t kOutputBytesMax = 4096;

absl::Status Cannot(int error, const std::string& what) {
  const absl::Status why = StatusFromErrno(error, what);
  return absl::FailedPreconditionError(
      absl::StrCat("--topology: ", why.message(), "; network namespaces need root"));
}

absl::StatusOr<FileDescriptor> OpenOwnNamespace() {
  FileDescriptor opened(open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
  if (!opened.is_open()) return Cannot(errno, absl::StrCat("open ", kOwnNamespace));
  return opened;
}

// Makes a new namespace; on return this process is back in its own.
absl::StatusOr<FileDescriptor> MakeNamespace() {
  PUSHPULL_ASSIGN_OR_RETURN(const FileDescriptor own, OpenOwnNamespace());
  if (unshare(CLONE_NEWNET) != 0) return Cannot(errno, "unshare of the network");
  absl::StatusOr<FileDescriptor> made = OpenOwnNamespace();
  if (setns(own.get(), CLONE_NEWNET) != 0) return Cannot(errno, "setns to the network before");
  return made;
}

// Runs a command in the namespace; -1: in this process's.
absl::Status RunIn(int network, const std::vector<std::string>& words) {
  std::vector<std::string> command = {"timeout", "20"};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  pointers.reserve(command.size() + 1);
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return StatusFromErrno(errno, "pipe");
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return StatusFromErrno(errno, absl::StrCat("start of ", words.front()));
  if (pid == 0) {
    dup2(writing.get(), STDOUT_FILENO);
    dup2(writing.get(), STDERR_FILENO);
    if (network < 0 || setns(network, CLONE_NEWNET) == 0) execvp(pointers[0], pointers.data());
    _exit(127);
  }
  writing.Reset();
  std::string output;
  std::array<char, 1024> buffer{};
  ssize_t got = 0;
  while ((got = read(reading.get(), buffer.data(), buffer.size())) > 0 ||
         (got < 0 && errno == EINTR)) {
    if (got > 0 && output.size() < kOutputBytesMax)
      output.append(buffer.data(), static_cast<size_t>(got));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--topology: `",
                   absl::StrJoin(words, " "),
                   "` has failed (it needs root, iproute2 and the kernel's veth, bridge and tbf): ",
                   absl::StripAsciiWhitespace(output)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const RackNetwork>> RackNetwork::Make(RackPlaces places) {
  std::unique_ptr<RackNetwork> network(new RackNetwork(std::move(places)));
  for (size_t i = 0; i <= network->places_.hosts.size(); ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(network->namespaces_.emplace_back(), MakeNamespace());
  }
  const auto descriptor_of = [&](size_t where) {
    return where == NetworkCommand::kHere
               ? -1
               : network->namespaces_[where - NetworkCommand::kSwitch].get();
  };
  // Device names have at most 15 characters.
  const std::string link = absl::StrCat("pp", getpid());
  const auto path_of = [&](size_t where) {
    return absl::StrCat("/proc/", getpid(), "/fd/", descriptor_of(where));
  };
  for (const NetworkCommand& command : NetworkCommands(network->places_, link, path_of))
    PUSHPULL_RETURN_IF_ERROR(RunIn(descriptor_of(command.where), command.words));
  return network;
}

RackNetwork::Place RackNetwork::PlaceOf(const RackPlaces::Host& host) const {
  const auto number = static_cast<size_t>(&host - places_.hosts.data());
  return {.network = namespaces_[1 + number].get(),
          .address = host.address,
          .machine = MachineName(number),
          .rack = RackName(host.rack)};
}

}  // namespace pushpull
