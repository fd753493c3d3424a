// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>
#include <system_error>

namespace pushpull {
namespace {

// Written by one write, which a pipe keeps in one piece.
struct Message {
  char what;  // '+' or '-'
  pid_t group;
};

void RemoveSharedMemory(const std::string& prefix) {
  std::error_code error;
  std::filesystem::directory_iterator entry("/dev/shm", error);
  for (; entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.filename().string().starts_with(prefix)) unlink(path.c_str());
  }
}

[[noreturn]] void Guard(int pipe, const std::string& shm_prefix) {
  setsid();  // a Ctrl-C in the launcher's terminal is meant for the launcher
  prctl(PR_SET_NAME, "pp-guardian");
  std::set<pid_t> groups;
  Message message{};
  while (true) {
    const ssize_t got = read(pipe, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;
    if (message.what == '+') {
      groups.insert(message.group);
    } else {
      groups.erase(message.group);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  RemoveSharedMemory(shm_prefix);
  _exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start(const std::string& shm_prefix) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return StatusFromErrno(errno, "pipe");
  FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return StatusFromErrno(errno, "start of the guardian");
  if (pid == 0) {
    write_end.Reset();
    Guard(read_end.get(), shm_prefix);
  }
  return std::unique_ptr<Guardian>(new Guardian(pid, std::move(write_end)));
}

Guardian::~Guardian() {
  pipe_.Reset();
  waitpid(pid_, nullptr, 0);
}

void Guardian::Tell(char what, pid_t group) {
  const Message message{what, group};
  // If the guardian is gone, somebody killed it; PR_SET_PDEATHSIG remains.
  [[maybe_unused]] const ssize_t written = write(pipe_.get(), &message, sizeof message);
}

}  // namespace pushpull
