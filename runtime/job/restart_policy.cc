// SPDX-License-Identifier: Apache-2.0
//
// See restart_policy.h.
#include "runtime/job/restart_policy.h"

#include <string.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "runtime/base/exit_codes.h"
#include "runtime/job/enum_names.h"

namespace pushpull {

namespace {

// What a shell and a container runtime report for a process that a signal ended.
constexpr int kSignalExitCode = 128;

int CodeOf(const MemberExit& exit) {
  return exit.signal > 0 ? kSignalExitCode + exit.signal : exit.exit_code;
}

bool Matches(const RestartRule& rule, const MemberExit& exit) {
  if (rule.role.has_value() && *rule.role != exit.role) return false;
  if (rule.reason.has_value()) return *rule.reason == exit.reason.value_or(ExitReason::kError);
  if (!rule.exit_codes.has_value()) return false;
  const ExitCodeMatch& codes = *rule.exit_codes;
  return codes.in.empty() ? !absl::c_linear_search(codes.not_in, CodeOf(exit))
                          : absl::c_linear_search(codes.in, CodeOf(exit));
}

bool IsDisruption(const MemberExit& exit) {
  return exit.reason == ExitReason::kEvicted || exit.reason == ExitReason::kPreempted ||
         exit.reason == ExitReason::kNodeLost;
}

std::optional<RestartAction> RuleFor(const RestartSpec& spec, const MemberExit& exit) {
  for (const RestartRule& rule : spec.rules) {
    if (Matches(rule, exit)) return rule.action;
  }
  return std::nullopt;
}

RestartAction ActionWithoutRule(const MemberExit& exit) {
  if (exit.restarts_job) return RestartAction::kRestartJob;
  const bool fails_again = exit.is_final || !exit.has_started;
  return fails_again && !exit.is_pending && !IsDisruption(exit) ? RestartAction::kFailJob
                                                                : RestartAction::kRestartPod;
}

// "ended: OOMKilled", "was ended by signal 9 (SIGKILL)", "exited with code 1".
std::string HowItEnded(const MemberExit& exit) {
  if (!exit.has_started) return "could not be started";
  if (exit.reason.has_value() && *exit.reason != ExitReason::kError) {
    return absl::StrCat("ended: ", NameOf(*exit.reason));
  }
  if (exit.signal == 0) return absl::StrCat("exited with code ", exit.exit_code);
  const char* name = sigabbrev_np(exit.signal);
  return absl::StrCat(
      "was ended by signal ", exit.signal, name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
}

std::string Describe(const MemberExit& exit) {
  const char* when =
      exit.role == JobRole::kWorker ? " before its first step" : " before it was ready";
  return absl::StrCat(HowItEnded(exit), exit.is_pending ? when : "");
}

// Its program has ended by itself. A container runtime reports a signal as a code.
bool HasFailed(const MemberExit& exit) {
  const bool has_other_reason = exit.reason && *exit.reason != ExitReason::kError;
  const int signal = CodeOf(exit) - kSignalExitCode;
  return exit.has_started && (signal <= 0 || signal >= NSIG) && !has_other_reason;
}

// FNV-1a: the same in every process, because the operator keeps it in the job's status.
uint64_t DigestOf(absl::string_view text) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest;
}

std::string MarkOf(const MemberExit& exit) {
  const bool made_no_step = exit.precedes_training || exit.is_pending;
  if (exit.role != JobRole::kWorker || !made_no_step) return "";
  if (!HasFailed(exit)) return "lost";
  return absl::StrCat(exit.exit_code, "-", absl::Hex(DigestOf(exit.line), absl::kZeroPad16));
}

// A disruption says nothing about the program.
RestartHistory WithEnd(RestartHistory history, const MemberExit& exit) {
  if (IsDisruption(exit)) return history;
  std::string mark = MarkOf(exit);
  history.alike = mark.empty() ? 0 : mark == history.last_end ? history.alike + 1 : 1;
  history.last_end = std::move(mark);
  return history;
}

// `history` includes this end.
bool CannotRun(const MemberExit& exit,
               const RestartHistory& history,
               const std::vector<std::string>& others) {
  const bool is_repeated = exit.role == JobRole::kWorker && history.alike >= kTriesMax;
  if (!is_repeated || !exit.precedes_training || !HasFailed(exit)) return false;
  // While another worker runs its first step, it may be this one alone that fails.
  const bool is_alone = !absl::c_linear_search(others, history.last_end);
  if (exit.is_pending && is_alone) return false;
  return absl::c_all_of(
      others, [&](const std::string& end) { return end.empty() || end == history.last_end; });
}

bool CannotJoin(const MemberExit& exit, const RestartHistory& history) {
  return exit.role == JobRole::kWorker && exit.is_pending && exit.is_final &&
         history.alike >= kTriesMax;
}

// The exit code of a job that fails because of this end, without a restart.
int JobExitCode(const MemberExit& exit) {
  if (!exit.has_started) return kExitNotReachable;
  const bool is_known = exit.exit_code == kExitUsage || exit.exit_code == kExitNotReachable;
  return exit.signal == 0 && is_known ? exit.exit_code : kExitFailed;
}

std::chrono::seconds DelayOf(const RestartSpec& spec, int in_a_row) {
  std::chrono::seconds delay = spec.initial_delay;
  for (int i = 0; i < in_a_row && delay < spec.max_delay && delay.count() > 0; ++i) delay *= 2;
  return std::min(delay, spec.max_delay);
}

struct Limit {
  absl::string_view field;  // of spec.restart
  int value = 0;
};

Limit LimitOf(const RestartSpec& spec, JobRole role) {
  const RoleLimits& own = spec.role_limits;
  if (role == JobRole::kServer && own.servers) return {"roleLimits.servers", *own.servers};
  if (role == JobRole::kWorker && own.workers) return {"roleLimits.workers", *own.workers};
  if (role == JobRole::kCoordinator && own.coordinator)
    return {"roleLimits.coordinator", *own.coordinator};
  return {"backoffLimit", spec.backoff_limit};
}

ExitDecision Fail(const MemberExit& exit, const RestartHistory& history, std::string text) {
  return {.action = ExitAction::kFailJob,
          .history = history,
          .job_exit_code = JobExitCode(exit),
          .text = std::move(text)};
}

ExitDecision Restart(const RestartSpec& spec,
                     const MemberExit& exit,
                     ExitAction action,
                     RestartHistory history) {
  const bool counts = !IsDisruption(exit) && !exit.is_pending;
  const bool is_of_job = action == ExitAction::kRestartJob;
  const Limit limit =
      is_of_job ? Limit{"backoffLimit", spec.backoff_limit} : LimitOf(spec, exit.role);
  int& counted = is_of_job ? history.job_counted : history.counted;
  if (counts && counted >= limit.value) {
    constexpr absl::string_view kText = "$0; the job fails, spec.restart.$1 ($2) is reached for $3";
    ExitDecision failed = Fail(exit,
                               history,
                               absl::Substitute(kText,
                                                Describe(exit),
                                                limit.field,
                                                limit.value,
                                                is_of_job ? "all members" : "this member"));
    failed.is_limit_reached = true;
    failed.job_exit_code = kExitFailed;
    return failed;
  }
  if (exit.ran_for >= spec.healthy_after) history.in_a_row = 0;
  std::chrono::seconds delay = DelayOf(spec, history.in_a_row);
  if (!is_of_job && exit.role != JobRole::kWorker && !exit.is_pending)
    delay = std::min(delay, kAwaitedDelayMax);
  ++history.in_a_row;
  if (counts) ++counted;
  return {
      .action = action,
      .delay = delay,
      .history = history,
      .text = absl::Substitute("$0; $1, $2, in $3 s",
                               Describe(exit),
                               is_of_job ? "all members restart" : "restart",
                               counts ? absl::StrCat(counted, " of ", limit.value) : "not counted",
                               delay.count())};
}

}  // namespace

int BackoffLimitOf(const RestartSpec& spec, JobRole role) {
  return LimitOf(spec, role).value;
}

bool SucceedsWith(SuccessPolicy policy, int worker) {
  switch (policy) {
    case SuccessPolicy::kAllWorkers:
      return false;
    case SuccessPolicy::kAnyWorker:
      return true;
    case SuccessPolicy::kWorker0:
      return worker == 0;
  }
  return false;
}

ExitDecision DecideAfterExit(const RestartSpec& spec,
                             const MemberExit& exit,
                             const RestartHistory& before,
                             const std::vector<std::string>& others) {
  if (exit.role == JobRole::kWorker && CodeOf(exit) == 0 && !exit.reason.has_value()) {
    if (!SucceedsWith(spec.success_policy, exit.index))
      return {.action = ExitAction::kDone, .history = before, .text = "is done"};
    return {.action = ExitAction::kSucceedJob,
            .history = before,
            .text = absl::StrCat("is done, and the job with it: spec.restart.successPolicy is ",
                                 NameOf(spec.success_policy))};
  }
  const RestartHistory history = WithEnd(before, exit);
  const std::optional<RestartAction> rule = RuleFor(spec, exit);
  if (!rule && CannotRun(exit, history, others)) {
    return Fail(exit,
                history,
                absl::StrCat(Describe(exit),
                             " before the job's first step, as in the try before; the job fails "
                             "because its program cannot run"));
  }
  if (!rule && CannotJoin(exit, history)) {
    return {.action = ExitAction::kIgnore,
            .history = history,
            .text = "cannot join; the job goes on without it"};
  }
  switch (rule.value_or(ActionWithoutRule(exit))) {
    case RestartAction::kRestartPod:
      return Restart(spec, exit, ExitAction::kRestartPod, history);
    case RestartAction::kRestartJob:
      return Restart(spec, exit, ExitAction::kRestartJob, history);
    case RestartAction::kFailJob:
      return Fail(exit, history, absl::StrCat(Describe(exit), "; the job fails without a restart"));
    case RestartAction::kIgnore:
      return {.action = ExitAction::kIgnore,
              .history = history,
              .text = absl::StrCat(Describe(exit), "; the job goes on without it")};
  }
  return Fail(exit, history, Describe(exit));
}

}  // namespace pushpull
