// SPDX-License-Identifier: Apache-2.0
//
// `pushpull status`.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/time_source.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/running_job.h"
#include "runtime/membership/status_client.h"
#include "runtime/status/status_json.h"
#include "runtime/status/terminal_view.h"

namespace pushpull {
namespace {

constexpr Duration kWatchPeriod = std::chrono::seconds(1);
// A coordinator that has died is back within this time: it is restarted after 5 s at most.
constexpr Duration kWatchSuccessorTime = std::chrono::seconds(15);

struct StatusFlags {
  JobFlags job;
  bool is_json = false;
  bool is_watching = false;
  uint32_t timeout_seconds = 0;
};

void PrintJson(const JobStatus& status) {
  std::printf("%s\n", Dump(StatusJson(status), 2).c_str());
  std::fflush(stdout);
}

void PrintTable(const JobStatus& status) {
  std::printf("%s: %s, step %lu, edition %s, view %lu, sync p50 %.2f ms, p99 %.2f ms\n",
              status.job.c_str(),
              std::string(NameOf(status.phase)).c_str(),
              status.step.value(),
              ToString(status.epoch).c_str(),
              status.view,
              status.sync_seconds.At(0.5) * 1e3,
              status.sync_seconds.At(0.99) * 1e3);
  std::printf("mode %s", Describe(status.consistency).c_str());
  std::printf("%s\n", status.is_mode_changing ? ", changing" : "");
  if (!status.mode_problem.empty()) std::printf("%s\n", status.mode_problem.c_str());
  if (status.batch > 0) {
    std::printf("batch %lu", status.batch);
    if (status.is_batch_changing()) std::printf(", changing to %lu", status.global_batch);
    std::printf("\n");
  }
  if (status.noise_scale > 0) std::printf("noise scale %.0f samples\n", status.noise_scale);
  if (!status.failure.empty()) std::printf("failed: %s\n", status.failure.c_str());
  if (status.stall) std::printf("stalled: %s\n", ToString(*status.stall).c_str());
  for (const Culprit& culprit : status.culprits)
    std::printf("slow: %s\n", ToString(culprit).c_str());
  for (const StateLoss& loss : status.state_losses)
    std::printf("lost: %s\n", ToString(loss).c_str());
  for (const WorkerStatus& worker : status.workers) {
    if (!worker.left_out.empty())
      std::printf("%s %s\n", ToString(worker.worker).c_str(), worker.left_out.c_str());
  }
  if (status.uneven_steps > 0) std::printf("uneven steps: %lu\n", status.uneven_steps);
  if (status.shards_moving > 0 || status.servers.size() != status.desired_servers) {
    std::printf("servers: %zu, %u wanted; %lu shards to move\n",
                status.servers.size(),
                status.desired_servers,
                status.shards_moving);
  }
  if (status.shards_in_one_rack > 0)
    std::printf("%lu shards have all their replicas in one rack\n", status.shards_in_one_rack);
  const CheckpointStatus& checkpoint = status.checkpoint;
  if (checkpoint.requested > 0) {
    std::printf("checkpoints: %lu saved, the last of step %lu in %.2f s; %lu failed%s\n",
                checkpoint.saved,
                checkpoint.step.value(),
                checkpoint.seconds,
                checkpoint.failures,
                checkpoint.finished < checkpoint.requested ? "; one under way" : "");
  }
  if (!checkpoint.problem.empty())
    std::printf("checkpoints fail: %s\n", checkpoint.problem.c_str());
  std::printf("%-10s %-22s %10s %10s\n", "server", "data", "MiB", "version");
  for (const ServerStatus& server : status.servers) {
    std::printf("%-10s %-22s %10.1f %10lu\n",
                ToString(server.server).c_str(),
                server.data_address.c_str(),
                static_cast<double>(server.stats.bytes_owned) / (1 << 20),
                server.stats.highest_version.value());
  }
  std::printf("%-10s %-22s %10s %10s\n", "worker", "state", "pid", "step");
  for (const WorkerStatus& worker : status.workers) {
    std::printf("%-10s %-22s %10lu %10lu\n",
                ToString(worker.worker).c_str(),
                std::string(StateOf(worker)).c_str(),
                worker.pid,
                worker.step.value());
  }
}

TerminalSize SizeOfTerminal() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

// Shows one status after another; on a terminal each replaces the last.
class LiveView {
 public:
  void Show(const JobStatus& status) {
    history_.Add(UnixSeconds(), std::make_shared<const JobStatus>(status));
    if (!is_terminal_) return Print(StatusLine(history_) + "\n");
    TerminalSize size = SizeOfTerminal();
    --size.rows;  // one row for the cursor
    Draw(TerminalLines(history_, size));
  }

  // Shows a problem in the last line, until the next status.
  void ShowProblem(absl::string_view problem) {
    Print(absl::StrCat(
        std::exchange(has_problem_, true) && is_terminal_ ? "\033[A\033[J" : "", problem, "\n"));
  }

 private:
  void Draw(const std::vector<std::string>& lines) {
    const size_t above = num_lines_ + (std::exchange(has_problem_, false) ? 1 : 0);
    std::string text = above == 0 ? "" : absl::StrCat("\033[", above, "A\r\033[J");
    for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
    num_lines_ = lines.size();
    Print(text);
  }

  static void Print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  const bool is_terminal_ = isatty(STDOUT_FILENO) == 1;
  StatusHistory history_{StatusHistory::Keeps::kNewest};
  size_t num_lines_ = 0;
  bool has_problem_ = false;
};

bool IsOver(const JobStatus& status) {
  return status.phase == JobPhase::kFailed || status.phase == JobPhase::kSucceeded;
}

// Returns the exit code: 0 at the job's end, 130 or 143 after a signal. A coordinator that does not
// answer may soon have a successor.
absl::StatusOr<int> Watch(const StatusFlags& flags, const FoundCoordinator& coordinator) {
  LiveView view;
  Deadline successor = Deadline::After(kWatchSuccessorTime);
  while (true) {
    const absl::StatusOr<JobStatus> status =
        AwaitCoordinator(coordinator, std::chrono::seconds(flags.timeout_seconds));
    if (!status.ok() && (!absl::IsUnavailable(status.status()) || successor.has_passed()))
      return status.status();
    if (status.ok()) {
      successor = Deadline::After(kWatchSuccessorTime);
      flags.is_json ? PrintJson(*status) : view.Show(*status);
      if (IsOver(*status)) return kExitDone;
    } else if (!flags.is_json) {
      view.ShowProblem(status.status().message());
    }
    if (const int signal = AwaitStopSignal(kWatchPeriod); signal != 0) return ExitCodeOf(signal);
  }
}

absl::StatusOr<int> ShowStatus(const StatusFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const FoundCoordinator coordinator, FindCoordinator(flags.job));
  if (flags.is_watching) return Watch(flags, coordinator);
  PUSHPULL_ASSIGN_OR_RETURN(
      const JobStatus status,
      AwaitCoordinator(coordinator, std::chrono::seconds(flags.timeout_seconds)));
  flags.is_json ? PrintJson(status) : PrintTable(status);
  return kExitDone;
}

}  // namespace

void AddStatusCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("status", "Show the members and the progress of a running job");
  const auto flags = std::make_shared<StatusFlags>();
  AddJobFlags(*command, flags->job);
  command->add_flag("--json", flags->is_json, "As JSON");
  command
      ->add_option("--timeout",
                   flags->timeout_seconds,
                   "Seconds to wait for a new coordinator that collects its members")
      ->capture_default_str();
  command->add_flag(
      "--watch",
      flags->is_watching,
      "Every second until the job ends: on a terminal in place, otherwise a line each");
  command->callback([flags, &exit_code] { exit_code = Report(ShowStatus(*flags)); });
}

}  // namespace pushpull
