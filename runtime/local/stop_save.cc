// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/stop_save.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/local/status_rules.h"

namespace pushpull {
namespace {

// A disk that hangs must not keep the job from ending; a second signal ends the wait at once.
constexpr Duration kDiskGrace = std::chrono::minutes(5);
// For a worker to finish its step while nobody waits for it; as long as a pod has.
constexpr Duration kLongestStep = std::chrono::seconds(60);
// For a worker to finish a step that others have waited for.
constexpr Duration kEndGrace = std::chrono::seconds(10);
// For the coordinator to hear of a step, and to notice the end of the last worker.
constexpr Duration kNoticeGrace = std::chrono::seconds(2);
constexpr Duration kNoticePeriod = std::chrono::milliseconds(100);

std::string DescribeSave(const absl::StatusOr<Step>& saved, const JobStatus& status) {
  if (saved.ok()) return absl::StrCat("pushpull: checkpoint of step ", saved->value(), " saved");
  return absl::StrCat("pushpull: no checkpoint: ",
                      saved.status().message(),
                      "; the job was at step ",
                      status.step.value(),
                      ", its last checkpoint is of step ",
                      LastSaved(status).value());
}

}  // namespace

void StopSave::Begin(int exit_code) {
  exit_code_ = exit_code;
  // Steps are reported once a second.
  coordinator_.AwaitStatus(
      {.is_enough = [](const JobStatus& status) { return status.has_stepped(); },
       .period = kNoticePeriod,
       .give_up = loop_.Now() + kNoticeGrace,
       .then =
           [this] {
             if (coordinator_.status().has_stepped()) return Save();
             console_.Print(kNothingToSave);
             stop_(*exit_code_);
           }});
}

void StopSave::Save() {
  console_.Print("pushpull: saving a checkpoint first; a second signal stops at once");
  const SteadyTime step_due = loop_.Now() + kLongestStep;
  const auto is_vain = [this, step_due, before = coordinator_.status().steps_made](const auto& it) {
    return IsStuck(it) || (loop_.Now() >= step_due && it.steps_made <= before);
  };
  coordinator_.SaveCheckpoint(kDiskGrace, is_vain, [this](const absl::StatusOr<Step>& saved) {
    absl::IsAborted(saved.status()) ? EndWorkers() : Finish(saved);
  });
}

// The others can end their step once those that it waits for are gone.
void StopSave::EndWorkers() {
  const JobStatus& status = coordinator_.status();
  console_.Print("pushpull: the step under way does not end; the workers are stopped first");
  is_ending_workers_ = true;
  const std::vector<WorkerId> missing =
      status.stall ? status.stall->missing : std::vector<WorkerId>();
  for (const WorkerId worker : missing) {
    const MemberProcess* member = members_.Find(ToString(worker));
    if (member != nullptr && member->is_running()) member->KillGroup();
  }
  if (members_.Stop({{.roles = {JobRole::kWorker}, .grace = kEndGrace, .is_urgent = false}}))
    SaveWhatStands();
}

void StopSave::SaveWhatStands() {
  coordinator_.AwaitStatus({.is_enough = HasNoWorker,
                            .period = kNoticePeriod,
                            .give_up = loop_.Now() + kNoticeGrace,
                            .then = [this] {
                              const JobStatus& status = coordinator_.status();
                              // In mode AllReduce the last worker has left once its values were
                              // saved.
                              if (IsSaved(status) && LastSaved(status) >= status.step)
                                return Finish(LastSaved(status));
                              coordinator_.SaveCheckpoint(
                                  kDiskGrace,
                                  [](const JobStatus&) { return false; },
                                  [this](const absl::StatusOr<Step>& saved) { Finish(saved); });
                            }});
}

void StopSave::Finish(const absl::StatusOr<Step>& saved) {
  console_.Print(DescribeSave(saved, coordinator_.status()));
  stop_(*exit_code_);
}

void StopSave::OnEnd() {
  if (is_ending_workers_ && members_.ContinueStop()) SaveWhatStands();
}

}  // namespace pushpull
