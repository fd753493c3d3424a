// SPDX-License-Identifier: Apache-2.0
//
// `pushpull trace`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/running_job.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/status_client.h"
#include "runtime/trace/chrome_trace.h"
#include "runtime/trace/shared_steps.h"

namespace pushpull {
namespace {

constexpr Duration kAskedAgainAfter = std::chrono::milliseconds(200);
// Workers report traces with their heartbeats.
constexpr Duration kGrace = std::chrono::seconds(10);

struct TraceFlags {
  JobFlags job;
  uint32_t steps = 20;
  uint32_t timeout_seconds = 60;
  std::string out;
};

struct CollectedTrace {
  std::vector<TraceReport> reports;
  std::vector<WorkerId> missing;
};

absl::StatusOr<CollectedTrace> Collect(const FoundCoordinator& coordinator,
                                       const TraceFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const uint64_t number,
                            RequestTrace(coordinator.Target(),
                                         {.steps = flags.steps, .seconds = flags.timeout_seconds},
                                         Deadline::After(kAnswerTimeout)));
  const Deadline end = Deadline::After(std::chrono::seconds(flags.timeout_seconds) + kGrace);
  CollectedTrace trace;
  for (uint64_t from = 0;;) {
    PUSHPULL_ASSIGN_OR_RETURN(
        TraceParts parts,
        FetchTrace(coordinator.Target(), number, from, Deadline::After(kAnswerTimeout)));
    from = parts.next;
    const bool has_more = !parts.reports.empty();
    std::ranges::move(parts.reports, std::back_inserter(trace.reports));
    trace.missing = std::move(parts.missing);
    if (parts.is_over || end.has_passed()) return trace;
    if (!has_more) Pause(kAskedAgainAfter);
  }
}

std::string Summary(const CollectedTrace& trace) {
  std::set<WorkerId> workers;
  std::set<ServerId> servers;
  std::set<Step> steps;
  size_t pushes = 0;
  for (const TraceReport& report : trace.reports) {
    workers.insert(report.worker);
    for (const TracedClock& clock : report.clocks) servers.insert(clock.server);
    for (const TracedPush& push : report.pushes) steps.insert(push.step);
    pushes += report.pushes.size();
  }
  return absl::StrCat(steps.size(),
                      " steps, ",
                      workers.size(),
                      " workers, ",
                      servers.size(),
                      " servers, ",
                      pushes,
                      " pushes");
}

void Warn(const CollectedTrace& trace, const TraceFlags& flags) {
  uint64_t left_out = 0;
  for (const TraceReport& report : trace.reports) left_out += report.left_out;
  if (left_out > 0) {
    std::fprintf(
        stderr,
        "pushpull: %lu pushes are left out: a trace has room for a limited number, ask for "
        "fewer steps\n",
        left_out);
  }
  if (trace.missing.empty()) return;
  const auto name = [](std::string* out, WorkerId worker) {
    absl::StrAppend(out, ToString(worker));
  };
  std::fprintf(stderr,
               "pushpull: %s sent nothing within %u s\n",
               absl::StrJoin(trace.missing, ", ", name).c_str(),
               flags.timeout_seconds);
}

absl::Status Trace(const TraceFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const FoundCoordinator coordinator, FindCoordinator(flags.job));
  PUSHPULL_ASSIGN_OR_RETURN(const JobStatus status, AwaitCoordinator(coordinator, kAnswerTimeout));
  PUSHPULL_ASSIGN_OR_RETURN(CollectedTrace trace, Collect(coordinator, flags));
  if (trace.reports.empty() && trace.missing.empty()) {
    return absl::AbortedError(absl::StrCat(
        "job ",
        status.job,
        ": its workers were replaced or have left before they reported, start it again"));
  }
  Warn(trace, flags);
  KeepSharedSteps(flags.steps, trace.reports);
  const bool is_empty = std::ranges::all_of(
      trace.reports, [](const TraceReport& report) { return report.pushes.empty(); });
  if (is_empty) {
    return absl::DeadlineExceededError(
        absl::StrCat("job ",
                     status.job,
                     ": no worker has finished a push within ",
                     flags.timeout_seconds,
                     " s; `pushpull status` says what it waits for"));
  }
  PUSHPULL_RETURN_IF_ERROR(
      WriteFileAtomically(flags.out, ToChromeTrace(status.job, trace.reports)));
  std::printf("%s: %s. Open it in https://ui.perfetto.dev or chrome://tracing\n",
              flags.out.c_str(),
              Summary(trace).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddTraceCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("trace", "Record the next steps of a running job, for Perfetto");
  const auto flags = std::make_shared<TraceFlags>();
  AddJobFlags(*command, flags->job);
  command->add_option("--steps", flags->steps, "How many steps, of every worker")
      ->check(CLI::Range(1U, TraceRequest::kStepsMax))
      ->capture_default_str();
  command
      ->add_option(
          "--timeout", flags->timeout_seconds, "Seconds after which what there is, is taken")
      ->check(CLI::Range(1U, TraceRequest::kSecondsMax))
      ->capture_default_str();
  command->add_option("--out", flags->out, "The file: Chrome's trace event format")->required();
  command->callback([flags, &exit_code] { exit_code = Report(Trace(*flags)); });
}

}  // namespace pushpull
