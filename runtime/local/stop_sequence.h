// SPDX-License-Identifier: Apache-2.0
//
// Stops a job's processes in stages: the members of a stage are asked to end, killed after its
// grace period, and waited for before the next stage begins.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/job/training_job.h"
#include "runtime/local/member_process.h"

namespace pushpull {

struct StopStage {
  std::vector<JobRole> roles;
  Duration grace;
};

// Thread-confined to the loop.
class StopSequence {
 public:
  using Running = std::function<std::vector<const MemberProcess*>(const std::vector<JobRole>&)>;

  // `running` lists the members of these roles that still run.
  StopSequence(EventLoop& loop, Running running) : loop_(loop), running_(std::move(running)) {}
  ~StopSequence() { loop_.Cancel(kill_timer_); }
  StopSequence(const StopSequence&) = delete;
  StopSequence& operator=(const StopSequence&) = delete;

  // Replaces a sequence under way. True: nothing runs any more.
  bool Begin(std::vector<StopStage> stages);
  // Whenever a process has ended. True: nothing runs any more.
  bool Advance();

 private:
  EventLoop& loop_;
  const Running running_;
  std::vector<StopStage> stages_;  // still to come; the first is under way
  bool is_requested_ = false;      // the first stage's members have been asked to end
  Executor::TimerId kill_timer_ = 0;
};

}  // namespace pushpull
