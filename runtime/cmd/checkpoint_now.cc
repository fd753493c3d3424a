// SPDX-License-Identifier: Apache-2.0
//
// `pushpull checkpoint now`.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/running_job.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

struct NowFlags {
  JobFlags job;
  WaitFlags wait;
  bool is_json = false;
};

// What save `number` lacks. It is done with its checkpoint or a later one, which is put in `saved`.
absl::StatusOr<std::string> LookAtSave(const JobStatus& status,
                                       uint64_t number,
                                       CheckpointStatus& saved) {
  saved = status.checkpoint;
  if (saved.succeeded >= number) return "";
  if (saved.finished < number) return "not saved";
  const std::string why = saved.failure.empty() ? "was over before it was saved" : saved.failure;
  return absl::AbortedError(absl::StrCat("job ", status.job, ": ", why));
}

absl::Status SaveNow(const NowFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const FoundCoordinator coordinator, FindCoordinator(flags.job));
  PUSHPULL_RETURN_IF_ERROR(AwaitCoordinator(coordinator, flags.wait));
  PUSHPULL_ASSIGN_OR_RETURN(
      const uint64_t number,
      RequestCheckpoint(coordinator.Target(), Deadline::After(kAnswerTimeout)));
  nlohmann::json answer = {{"number", number}};
  if (flags.wait.is_waiting) {
    CheckpointStatus saved;
    PUSHPULL_RETURN_IF_ERROR(AwaitJob(
        coordinator, flags.wait, "save", [number = number, &saved](const JobStatus& status) {
          return LookAtSave(status, number, saved);
        }));
    answer["step"] = saved.step.value();
    answer["seconds"] = saved.seconds;
    if (!flags.is_json)
      std::printf("checkpoint of step %lu saved in %.2f s\n", saved.step.value(), saved.seconds);
  }
  if (flags.is_json) std::printf("%s\n", answer.dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddCheckpointNowCommand(CLI::App& checkpoint, int& exit_code) {
  CLI::App* command = checkpoint.add_subcommand("now", "Save a checkpoint of a running job");
  const auto flags = std::make_shared<NowFlags>();
  AddJobFlags(*command, flags->job);
  AddWaitFlags(*command, "Return when it is complete, or has failed", flags->wait);
  command->add_flag("--json", flags->is_json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = Report(SaveNow(*flags)); });
}

}  // namespace pushpull
