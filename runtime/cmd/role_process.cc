// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/role_process.h"

#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/termination_message.h"
#include "runtime/cmd/environment.h"

namespace pushpull {
namespace {

// Checking the condition this often costs nothing and keeps the wait bounded.
constexpr Duration kLook = std::chrono::seconds(60);

}  // namespace

void ReportReady(int fd, const RoleAddresses& addresses) {
  if (fd < 0) return;
  const nlohmann::json line = {
      {"control", addresses.control}, {"data", addresses.data}, {"metrics", addresses.metrics}};
  const std::string text = line.dump() + "\n";
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
}

int ReportRole(const absl::StatusOr<int>& exit_code) {
  if (!exit_code.ok() && ExitCodeFor(exit_code.status()) == kExitUsage)
    WriteFinalMessage(Environment()[kTerminationLogVariable], exit_code.status().message());
  return Report(exit_code);
}

RoleProcess::RoleProcess(const std::string& loop_name)
    : control_(loop_name), signals_(control_, [this](StopSignal signal) { OnSignal(signal); }) {}

void RoleProcess::LeaveOnWarning(Duration grace, std::function<void()> leave) {
  MutexLock lock(mu_);
  grace_ = grace;
  leave_ = std::move(leave);
}

void RoleProcess::OnSignal(StopSignal signal) {
  std::function<void()> leave;
  {
    MutexLock lock(mu_);
    const bool is_warning = signal.number == SIGTERM && !signal.is_urgent && leave_;
    if (is_warning) {
      leave = std::exchange(leave_, nullptr);
      leaves_until_ = Deadline::After(grace_);
    } else {
      signal_ = signal.number;
      is_urgent_ = signal.is_urgent;
    }
    changed_.NotifyAll();
  }
  if (leave) leave();
}

bool RoleProcess::is_over() const {
  return ended_ || signal_ != 0 || (leaves_until_ && leaves_until_->has_passed());
}

absl::Status RoleProcess::Call(const std::function<absl::Status()>& task) {
  struct Result {
    Mutex mu;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
  };
  const auto result = std::make_shared<Result>();
  control_.Post([task, result] {
    const absl::Status status = task();
    MutexLock lock(result->mu);
    result->status = status;
    result->changed.NotifyAll();
  });
  const Deadline deadline = Deadline::After(kLook);
  MutexLock lock(result->mu);
  while (!result->status) {
    if (result->changed.WaitUntil(result->mu, deadline) || result->status) continue;
    return absl::DeadlineExceededError("the control thread does not answer");
  }
  return *result->status;
}

void RoleProcess::End(const absl::Status& status) {
  MutexLock lock(mu_);
  if (!ended_) ended_ = status;
  changed_.NotifyAll();
}

bool RoleProcess::is_urgent() const {
  MutexLock lock(mu_);
  return is_urgent_;
}

int RoleProcess::WaitForEnd() {
  MutexLock lock(mu_);
  while (!is_over()) changed_.WaitUntil(mu_, leaves_until_.value_or(Deadline::After(kLook)));
  if (!ended_) return ExitCodeOf(signal_ == 0 ? SIGTERM : signal_);
  const bool is_in_order = ended_->ok() || absl::IsCancelled(*ended_);
  if (is_in_order) return leaves_until_ ? ExitCodeOf(SIGTERM) : kExitDone;
  return Report(*ended_);
}

}  // namespace pushpull
