// SPDX-License-Identifier: Apache-2.0
//
// What follows the end of a member: the rules of spec.restart, for `pushpull run` and the operator
// (docs/decisions/0064-restart-rules.md). Decides only; the caller restarts, waits and counts.
// Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/training_job.h"

namespace pushpull {

// The longest delay before a server or the coordinator restarts. Until then shards lack a copy, or
// nothing replaces the member that fails next; backoffLimit bounds how often this happens.
inline constexpr std::chrono::seconds kAwaitedDelayMax{5};
// How often a worker has to end in the same way before that says something about its program.
inline constexpr int kTriesMax = 2;

// How a member ended.
struct MemberExit {
  JobRole role = JobRole::kWorker;
  int index = 0;
  int exit_code = 0;                      // 0 to 255; meaningless if a signal ended it
  int signal = 0;                         // the signal that ended it; 0: it exited by itself
  std::optional<ExitReason> reason = {};  // reported by the platform, e.g. kOomKilled
  std::chrono::seconds ran_for{0};        // since its last start
  bool has_started = true;                // false: the program does not exist or cannot run
  // Its program said that it would end the same way again (termination_message.h). The exit code
  // alone never means that: users' programs exit with any code.
  bool is_final = false;
  // Its program said that all members must start again.
  bool restarts_job = false;
  // The job trains without it, and since its last start it has not been ready or, if it is a
  // worker, has made no step.
  bool is_pending = false;
  // No worker has made a step since the job began or was resumed.
  bool precedes_training = false;
  // What its program says of this end (termination_message.h, error_line.h); empty: nothing.
  std::string line = {};
};

// What the caller keeps from exit to exit.
struct RestartHistory {
  int counted = 0;      // restarts of this member that count towards backoffLimit
  int job_counted = 0;  // restarts of all members at once that do
  int in_a_row = 0;     // restarts of this member since it was last healthy
  // A worker's last end, if its program failed before it made a step: the exit code and a digest of
  // `line`. A signal or a lack of memory has a mark of its own. Empty: it did not end like that.
  std::string last_end = {};
  int alike = 0;  // ends in a row with this mark
};

enum class ExitAction {
  kDone,        // a worker has finished its work
  kSucceedJob,  // likewise, and the job has succeeded: the other workers are stopped in order
  kRestartPod,  // start this member again after `delay`
  kRestartJob,  // start all members again after `delay`
  kFailJob,     // the job has failed
  kIgnore       // the job continues without this member
};

struct ExitDecision {
  ExitAction action = ExitAction::kDone;
  std::chrono::seconds delay{0};  // before a restart
  RestartHistory history;         // replaces the one that was passed in
  // For `pushpull run` with kFailJob: the member's own code if that is 2 or 3 and it is not
  // restarted, 3 if its program could not be started, otherwise 1.
  int job_exit_code = 0;
  bool is_limit_reached = false;  // kFailJob instead of a restart, because of backoffLimit
  std::string text;               // "exited with code 1; restart 2 of 6 in 20 s", follows a name
};

// The limit of counted restarts for each member of the role.
int BackoffLimitOf(const RestartSpec& spec, JobRole role);

// Whether the job has succeeded once this worker has finished, whatever the others do. Under every
// policy it has succeeded once all have finished.
bool SucceedsWith(SuccessPolicy policy, int worker);

// Decides in this order:
//   a worker that exits with 0 is done, and the job with it by `spec.success_policy`;
//   the first rule of `spec.rules` that matches role and exit code (a signal n is code 128 + n) or
//   reason (kError: none was given);
//   an end that is final, and a program that cannot be started, fail the job;
//   a worker that ends alike kTriesMax times before the job's first step fails the job, unless
//   another worker has ended in a different way: its program cannot run;
//   a pending worker whose end is final in the same way kTriesMax times is ignored: it cannot join;
//   everything else is restarted, even a server that exits with 0 while the job runs.
//
// A member's restart counts towards the limit of its role, which applies to each member separately;
// a restart of all members counts towards the job's backoffLimit. Beyond the limit the job fails.
// Two kinds never count: a disruption (evicted, preempted, node lost) is no failure, and a pending
// member costs the job nothing, so it never fails the job. The delay before a
// member's k-th restart in a row is min(initial_delay * 2^(k-1), max_delay); for a single server or
// the coordinator it is at most kAwaitedDelayMax, unless that is pending. A member that has run for
// healthy_after begins a new row.
//
// `before`: of this member. `others`: last_end of the other workers. A restart of all members
// begins the job: the caller then forgets last_end of all.
ExitDecision DecideAfterExit(const RestartSpec& spec,
                             const MemberExit& exit,
                             const RestartHistory& before,
                             const std::vector<std::string>& others = {});

}  // namespace pushpull
