// SPDX-License-Identifier: Apache-2.0
//
// `pushpull set`.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/running_job.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

// What the settings ask for: the batch of a step, and how workers wait for each other.
struct Change {
  JobSize size;
  ModeChange mode;
  bool has_mode = false;
};

struct SetFlags {
  std::vector<std::string> settings;  // KEY=VALUE
  JobFlags job;
  WaitFlags wait;
};

absl::Status ParseSetting(absl::string_view key, absl::string_view value, Change& all) {
  const auto check = [&](bool is_right, absl::string_view right) {
    return is_right ? absl::OkStatus()
                    : absl::InvalidArgumentError(
                          absl::StrCat(key, ": must be ", right, ", is \"", value, "\""));
  };
  if (key == "globalBatch") {
    constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
    uint64_t& batch = all.size.global_batch.emplace();
    const bool is_number = absl::SimpleAtoi(value, &batch) && batch >= 1 && batch <= kMax;
    return check(is_number, absl::StrCat("a number from 1 to ", kMax));
  }
  all.has_mode = true;
  ModeChange& change = all.mode;
  const auto check_count = [&](std::optional<uint32_t>& count) {
    const bool is_number = absl::SimpleAtoi(value, &count.emplace());
    return check(is_number && *count <= 1'000'000, "a number from 0 to 1000000");
  };
  if (key == "mode") {
    change.mode = ValueOf<SyncMode>(value);
    return check(change.mode.has_value(), "Sync, Async or Bounded");
  }
  if (key == "gated") {
    change.gated = value == "true";
    return check(*change.gated || value == "false", "true or false");
  }
  if (key == "staleness") return check_count(change.staleness);
  if (key == "backupWorkers") return check_count(change.backup_workers);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", key, "\": can be mode, staleness, backupWorkers, gated or globalBatch"));
}

absl::StatusOr<Change> ParseSettings(const std::vector<std::string>& settings) {
  Change all;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", setting, "\": must have the form KEY=VALUE"));
    }
    PUSHPULL_RETURN_IF_ERROR(
        ParseSetting(setting.substr(0, equals), setting.substr(equals + 1), all));
  }
  const ModeChange& change = all.mode;
  const auto check = [&](const char* key, bool is_set, SyncMode mode) {
    if (!is_set || change.mode.value_or(mode) == mode) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": needs mode ", NameOf(mode), ", which is ", NameOf(*change.mode)));
  };
  PUSHPULL_RETURN_IF_ERROR(
      check("staleness", change.staleness.value_or(0) > 0, SyncMode::kBounded));
  PUSHPULL_RETURN_IF_ERROR(
      check("backupWorkers", change.backup_workers.value_or(0) > 0, SyncMode::kSync));
  PUSHPULL_RETURN_IF_ERROR(check("gated", change.gated.value_or(false), SyncMode::kSync));
  if (change.gated.value_or(false) && change.backup_workers.value_or(0) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gated: needs backupWorkers 0, which is ", *change.backup_workers));
  }
  return all;
}

// What the mode change still lacks; prints the mode once it is in force.
absl::StatusOr<std::string> LookAtMode(const JobStatus& status) {
  const std::string job = absl::StrCat("job ", status.job);
  if (status.phase == JobPhase::kFailed)
    return absl::AbortedError(absl::StrCat(job, " failed: ", status.failure));
  if (status.phase == JobPhase::kSucceeded && status.is_mode_changing) {
    std::printf("%s has succeeded meanwhile\n", job.c_str());
    return "";
  }
  if (status.is_mode_changing) return "the mode is still changing";
  if (!status.mode_problem.empty())
    return absl::AbortedError(absl::StrCat(job, ": ", status.mode_problem));
  std::printf("mode %s, staleness %u, backupWorkers %u, gated %s, from step %lu\n",
              std::string(NameOf(status.consistency.mode)).c_str(),
              status.consistency.staleness,
              status.consistency.backup_workers,
              status.consistency.gated ? "true" : "false",
              status.consistency.from_step.value() - status.consistency.steps_skipped);
  return "";
}

// What the batch change still lacks; prints the batch once steps use it.
absl::StatusOr<std::string> LookAtBatch(uint64_t wanted, const JobStatus& status) {
  const std::string job = absl::StrCat("job ", status.job);
  if (status.phase == JobPhase::kFailed)
    return absl::AbortedError(absl::StrCat(job, " failed: ", status.failure));
  if (status.global_batch != wanted) {
    return absl::AbortedError(
        absl::StrCat(job, ": globalBatch was set to ", status.global_batch, " meanwhile"));
  }
  if (status.is_batch_changing() && status.phase == JobPhase::kSucceeded) {
    std::printf("%s has succeeded meanwhile\n", job.c_str());
    return "";
  }
  if (status.batch != wanted)
    return absl::StrCat("steps still have ", status.batch, " samples of ", wanted);
  std::printf("globalBatch %lu, in force by step %lu\n", status.batch, status.step.value());
  return "";
}

std::string HintForKubectl(const std::string& job, const Change& change) {
  std::vector<std::string> fields;
  if (change.has_mode) fields.emplace_back("spec.sync");
  if (change.size.global_batch) fields.emplace_back("spec.workers.globalBatch");
  return absl::StrCat("change ",
                      absl::StrJoin(fields, " and "),
                      " of its manifest with `kubectl edit trainingjob/",
                      job,
                      "`");
}

absl::Status Await(const FoundCoordinator& coordinator,
                   const SetFlags& flags,
                   const Change& change) {
  if (change.size.global_batch) {
    PUSHPULL_RETURN_IF_ERROR(
        AwaitJob(coordinator, flags.wait, "change", [&](const JobStatus& status) {
          return LookAtBatch(*change.size.global_batch, status);
        }));
  }
  return change.has_mode ? AwaitJob(coordinator, flags.wait, "change", LookAtMode)
                         : absl::OkStatus();
}

absl::Status Set(const SetFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const Change change, ParseSettings(flags.settings));
  PUSHPULL_RETURN_IF_ERROR(CheckIsNotUnderKubernetes(
      flags.job, [&](const std::string& job) { return HintForKubectl(job, change); }));
  PUSHPULL_ASSIGN_OR_RETURN(const FoundCoordinator coordinator, FindCoordinator(flags.job));
  PUSHPULL_RETURN_IF_ERROR(AwaitCoordinator(coordinator, flags.wait));
  if (change.size.global_batch) {
    PUSHPULL_RETURN_IF_ERROR(
        RequestResize(coordinator.Target(), change.size, Deadline::After(kAnswerTimeout)));
  }
  if (change.has_mode) {
    PUSHPULL_RETURN_IF_ERROR(
        RequestMode(coordinator.Target(), change.mode, Deadline::After(kAnswerTimeout)));
  }
  return flags.wait.is_waiting ? Await(coordinator, flags, change) : absl::OkStatus();
}

}  // namespace

void AddSetCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("set", "Change the mode of a running job, or the samples of its steps");
  const auto flags = std::make_shared<SetFlags>();
  command
      ->add_option(
          "settings",
          flags->settings,
          "mode=Sync|Async|Bounded, staleness=STEPS (Bounded only), backupWorkers=N (Sync only), "
          "gated=true|false (Sync without backup workers only), globalBatch=SAMPLES of a step over "
          "all workers")
      ->required();
  AddJobFlags(*command, flags->job);
  AddWaitFlags(*command, "Return when the change is in force", flags->wait);
  command->callback([flags, &exit_code] { exit_code = Report(Set(*flags)); });
}

}  // namespace pushpull
