// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/role_process.h"

#include <memory>

#include "runtime/cmd/exit_codes.h"

namespace pushpull {
namespace {

// A look at the condition this often costs nothing and keeps the wait bounded.
constexpr Duration kLook = std::chrono::seconds(60);

}  // namespace

RoleProcess::RoleProcess(const std::string& loop_name)
    : control_(loop_name), signals_(control_, [this](int signal) {
        MutexLock lock(mu_);
        signal_ = signal;
        changed_.NotifyAll();
      }) {}

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

int RoleProcess::WaitForEnd() {
  MutexLock lock(mu_);
  while (!ended_ && signal_ == 0) changed_.WaitUntil(mu_, Deadline::After(kLook));
  if (!ended_) return ExitCodeOf(signal_);
  if (ended_->ok() || absl::IsCancelled(*ended_)) return kExitDone;
  return ReportError(*ended_);
}

}  // namespace pushpull
