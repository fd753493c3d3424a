// SPDX-License-Identifier: Apache-2.0
//
// The part of Supervisor that saves a checkpoint before an orderly stop. Workers train on
// meanwhile: the checkpoint is of a step that all of them reach.
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/local/supervisor.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(2);
constexpr Duration kLookPeriod = std::chrono::milliseconds(50);
// A step that is never reached, or a disk that hangs, must not keep the job for ever; a second
// signal ends the wait at once.
constexpr Duration kSaveGrace = std::chrono::minutes(5);
constexpr int kExitFailed = 1;

}  // namespace

bool Supervisor::MaySave() const {
  return !options_.checkpoints.empty() && has_started_workers_ && !is_failing_ &&
         status_.phase == JobPhase::kRunning;
}

void Supervisor::SaveThenStop(int exit_code) {
  is_saving_ = true;
  Print("pushpull: saving a checkpoint first; a second signal stops at once");
  asking_->Post([this,
                 exit_code,
                 coordinator = Coordinator(),
                 self = std::weak_ptr<Supervisor*>(self_),
                 &loop = loop_] {
    const absl::StatusOr<uint64_t> number =
        RequestCheckpoint(coordinator, Deadline::After(kAnswerTimeout));
    loop.Post([this, exit_code, self, number] {
      if (!self.lock() || stopping_with_) return;
      if (number.ok()) return AwaitSave(*number, exit_code, loop_.Now() + kSaveGrace);
      Print(absl::StrCat("pushpull: no checkpoint: ", std::string(number.status().message())));
      StopInOrder(exit_code);
    });
  });
}

void Supervisor::AwaitSave(uint64_t number, int exit_code, SteadyTime give_up) {
  AskStatus([this, number, exit_code, give_up](std::optional<JobStatus> status) {
    if (stopping_with_) return;
    if (status) status_ = *std::move(status);
    const CheckpointStatus& checkpoint = status_.checkpoint;
    const bool is_over = checkpoint.finished >= number || status_.phase == JobPhase::kFailed;
    if (!is_over && loop_.Now() < give_up) {
      finish_timer_ = loop_.RunAfter(kLookPeriod, [this, number, exit_code, give_up] {
        AwaitSave(number, exit_code, give_up);
      });
      return;
    }
    if (checkpoint.finished_well >= number) {
      Print(absl::StrCat("pushpull: checkpoint of step ", checkpoint.step.value(), " saved"));
    } else {
      Print(absl::StrCat("pushpull: no checkpoint: ",
                         is_over ? checkpoint.failure : "it was not saved in time"));
    }
    StopInOrder(exit_code);
  });
}

int Supervisor::FailureExitCode() const {
  return status_.failure_exit_code == 0 ? kExitFailed : static_cast<int>(status_.failure_exit_code);
}

}  // namespace pushpull
