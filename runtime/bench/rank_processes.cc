// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/rank_processes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

constexpr Duration kBeginTimeout = std::chrono::seconds(30);
// When one rank fails, its links close and all others end with an error of their own; those that
// had no link to it yet are killed after this time.
constexpr Duration kFailureGrace = std::chrono::seconds(2);
constexpr Duration kFailureTimeout = std::chrono::seconds(10);

}  // namespace

RankProcesses::~RankProcesses() {
  loop_.Post([this] { processes_.clear(); });
  loop_.Stop();
}

absl::Status RankProcesses::Start(const std::string& name,
                                  const std::vector<std::string>& command,
                                  const std::map<std::string, std::string>& environment) {
  {
    MutexLock lock(mu_);
    started_.reset();
    ++num_running_;
  }
  const ProcessSpec spec = {.name = name, .command = command, .environment = environment};
  loop_.Post([this, spec, name] {
    const auto on_output = [this, name](const std::string& line) {
      MutexLock lock(mu_);
      last_lines_[name] = line;
    };
    const auto on_end = [this, name](const ProcessEnd& end) {
      MutexLock lock(mu_);
      --num_running_;
      if ((end.exit_code != 0 || end.signal != 0) && !is_ending_) {
        if (failures_.empty()) loop_.RunAfter(kFailureGrace, [this] { EndAll(); });
        const std::string& said = last_lines_[name];
        failures_.push_back(absl::StrCat(name, " ", ToString(end), said.empty() ? "" : ": ", said));
      }
      changed_.NotifyAll();
    };
    absl::StatusOr<std::unique_ptr<ChildProcess>> process =
        ChildProcess::Start(spec, loop_, {{}, on_output, {}, on_end});
    MutexLock lock(mu_);
    started_ = process.status();
    if (process.ok()) {
      processes_.push_back(*std::move(process));
    } else {
      --num_running_;
    }
    changed_.NotifyAll();
  });
  const Deadline deadline = Deadline::After(kBeginTimeout);
  MutexLock lock(mu_);
  while (!started_) {
    if (!changed_.WaitUntil(mu_, deadline) && !started_)
      return absl::DeadlineExceededError(absl::StrCat(name, " does not start"));
  }
  return *started_;
}

void RankProcesses::EndAll() {
  {
    MutexLock lock(mu_);
    is_ending_ = true;
  }
  for (const std::unique_ptr<ChildProcess>& process : processes_) {
    if (process->is_running()) process->KillGroup();
  }
}

absl::Status RankProcesses::Failure() const {
  if (failures_.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrJoin(failures_, " | "));
}

bool RankProcesses::has_failed() {
  MutexLock lock(mu_);
  return !failures_.empty();
}

absl::Status RankProcesses::WaitForEnd(Deadline deadline) {
  MutexLock lock(mu_);
  while (num_running_ > 0) {
    if (!changed_.WaitUntil(mu_, deadline) && num_running_ > 0)
      return absl::DeadlineExceededError("a rank of the benchmark does not end");
  }
  return Failure();
}

absl::Status RankProcesses::Explain(const absl::Status& otherwise) {
  const Deadline deadline = Deadline::After(kFailureTimeout);
  MutexLock lock(mu_);
  while (num_running_ > 0) {
    if (!changed_.WaitUntil(mu_, deadline)) break;
  }
  return failures_.empty() ? otherwise : Failure();
}

}  // namespace pushpull
