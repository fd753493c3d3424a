// SPDX-License-Identifier: Apache-2.0
//
// One member of a local job as a process: its program, its log file, the addresses it reports.
#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "runtime/job/training_job.h"
#include "runtime/local/guardian.h"
#include "runtime/local/process.h"
#include "runtime/local/workdir.h"

namespace pushpull {

// "coordinator", "server-0", "worker-2".
std::string MemberName(JobRole role, int index);

struct MemberEvents {
  std::function<void(const std::string& line)> on_output;
  std::function<void()> on_ready;  // the endpoint is known
  std::function<void(const ProcessEnd&)> on_end;
};

// Thread-confined to the loop. Not movable: events refer to it.
class MemberProcess {
 public:
  // `loop` and `guardian` outlive the member.
  MemberProcess(JobRole role, int index, EventLoop& loop, Guardian& guardian);
  MemberProcess(const MemberProcess&) = delete;
  MemberProcess& operator=(const MemberProcess&) = delete;

  JobRole role() const { return role_; }
  int index() const { return static_cast<int>(endpoint_.index); }
  std::string name() const { return MemberName(role(), index()); }
  const Endpoint& endpoint() const { return endpoint_; }
  bool is_running() const { return process_ != nullptr && process_->is_running(); }
  // Since its last start, also when it has ended since.
  bool has_been_ready() const { return has_been_ready_; }
  Duration SinceStart() const { return loop_.Now() - started_at_; }

  // Appends what the program prints to `log_path`, a fresh file at the member's first start.
  absl::Status Start(const ProcessSpec& spec, const std::string& log_path, MemberEvents events);
  // The process or one of its children: a worker may be the child of a shell.
  bool IsInGroup(pid_t pid) const;
  // What a worker has registered with the coordinator. True: the endpoint has changed.
  bool SetWorkerAddress(pid_t pid, const std::string& metrics);
  void ResetReady() { has_been_ready_ = false; }
  // Asks the process to end at once, also one that is stopped.
  void RequestEnd() const;
  void KillGroup() const { process_->KillGroup(); }

 private:
  void OnReady(const std::string& line);
  void OnEnd(const ProcessEnd& end);

  const JobRole role_;
  EventLoop& loop_;
  Guardian& guardian_;
  Endpoint endpoint_;
  bool has_been_ready_ = false;
  SteadyTime started_at_;
  std::ofstream log_;
  MemberEvents events_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace pushpull
