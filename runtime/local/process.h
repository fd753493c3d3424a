// SPDX-License-Identifier: Apache-2.0
//
// A child process in its own process group, with its output and its end as events on a loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull {

struct ProcessSpec {
  std::string name;                                // for messages, e.g. "worker-0"
  std::vector<std::string> command;                // command[0] is a path
  std::map<std::string, std::string> environment;  // all of it
  int network = -1;  // descriptor of the network namespace that it runs in, open until Start
                     // returns; -1: this one
  bool reports_ready =
      false;  // gets `--ready-fd N` appended and writes a line to it once it listens
};

struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // the signal that ended it; 0: it exited by itself
};

// "exited with code 1", "was killed by signal 9".
std::string ToString(const ProcessEnd& end);

// What a process does, reported on the loop.
struct ProcessEvents {
  // Before the program begins, so that the group is known before the program can do anything. May
  // be empty.
  std::function<void(pid_t group)> on_forked;
  // stdout and stderr, by lines as a terminal shows them: what a carriage return has overwritten
  // within a second is left out. A line without end is passed on after a second or 16 KiB.
  std::function<void(const std::string& line)> on_output;
  std::function<void(const std::string& line)> on_ready;  // the line on its ready descriptor
  std::function<void(const ProcessEnd&)> on_end;          // once, after the last line
};

// Thread-confined to the loop. The process dies with this one (PR_SET_PDEATHSIG); the guardian
// takes care of its children.
class ChildProcess {
 public:
  // Blocks until the program has begun, for a few milliseconds.
  //
  // kNotFound, kPermissionDenied: the program cannot be executed; the text names it.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ProcessSpec& spec,
                                                             EventLoop& loop,
                                                             ProcessEvents events);
  // Kills the group if it is still running, without waiting.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool is_running() const { return is_running_; }
  // Sends to the process alone, so that a program can end its own children in order.
  void Signal(int signal) const;
  // Sends SIGTERM to the process alone, marked as leaving no time to clean up (base/signals.h).
  void EndNow() const;
  // Sends SIGKILL to the whole group.
  void KillGroup() const;

 private:
  ChildProcess(pid_t pid, EventLoop& loop, ProcessEvents events)
      : pid_(pid), loop_(loop), events_(std::move(events)) {}
  absl::Status Watch(FileDescriptor pidfd, FileDescriptor output, FileDescriptor ready);
  // Reads a bounded amount; if more is left, the loop calls again.
  void OnOutput();
  void OnReady();
  void OnExit();
  void PassLines();
  void PassLine(const std::string& line);
  // Passes on an unfinished line.
  void PassPart();

  const pid_t pid_;
  EventLoop& loop_;
  const ProcessEvents events_;
  bool is_running_ = true;
  FileDescriptor pidfd_;
  FileDescriptor output_;
  FileDescriptor ready_;
  std::string output_rest_;            // an unfinished line
  bool has_passed_part_ = false;       // of the line that is in progress
  EventLoop::TimerId part_timer_ = 0;  // 0: none
  std::string ready_text_;
};

}  // namespace pushpull
