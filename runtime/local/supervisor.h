// SPDX-License-Identifier: Apache-2.0
//
// Keeps a local job's processes: starts them in order, restarts them by the rules, has as many
// servers and workers as the coordinator wants, and stops everything in order.
//
//   starting --1--> running --2--> stopping --5--> ended
//     ^  |            |              ^    |
//     |  +-----3------+------3-------+    |
//     +-----------------4-----------------+
//
// 1 the coordinator says that the first view is active.
// 2 every worker is done (exit 0).
// 3 a deadline, a failure or a signal (exit 1, 2, 3, 130 or 143).
// 4 a rule asks for a restart of the whole job: everything starts anew after the rule's delay.
// 5 every process is gone.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/job/restart_policy.h"
#include "runtime/local/guardian.h"
#include "runtime/local/launcher.h"
#include "runtime/local/process.h"
#include "runtime/local/report.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/control_client.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-confined to the loop, constructor and destructor included.
class Supervisor {
 public:
  // All references outlive the supervisor. `on_end` is called once, with the exit code, when every
  // process is gone.
  Supervisor(const LaunchOptions& options,
             const TrainingJob& job,
             Workdir& workdir,
             Guardian& guardian,
             EventLoop& loop,
             std::function<void(int exit_code)> on_end);
  ~Supervisor();

  // Starts the job. A program that cannot be found, a folder that cannot be written: `on_end`
  // with 3.
  void Start();
  // The first asks for an orderly stop, the second kills.
  void OnSignal(int signal);

 private:
  struct Member {
    JobRole role = JobRole::kWorker;
    int index = 0;
    std::unique_ptr<ChildProcess> process;
    Endpoint endpoint;
    bool is_ready = false;
    bool is_done = false;  // a worker that has finished its part
    // A server that the coordinator knew and does not know any more, since when.
    bool is_listed = false;
    std::optional<SteadyTime> unlisted_since;
    int restarts_in_a_row = 0;
    SteadyTime started_at;
    std::ofstream log;
    bool is_running() const { return process != nullptr && process->is_running(); }
  };

  // One step on the way down: these roles are asked to end, killed after the grace, and waited for.
  struct StopStage {
    std::vector<JobRole> roles;
    Duration grace;
  };

  void StartCoordinator();
  // In place of one that has died: at the same address, with a higher term.
  void RestartCoordinator();
  void StartServers();
  void StartServer(int index);
  void StartWorkers();
  void StartMember(Member& member, absl::StatusOr<ProcessSpec> spec);
  void StartWorker(int index);
  void OnReady(Member& member, const std::string& line);
  void OnCoordinatorReady(Member& member);
  void OnOutput(Member& member, const std::string& line);
  void OnEnd(Member& member, const ProcessEnd& end);
  void OnCoordinatorEnd(const ProcessEnd& end);
  // Asks the coordinator what the end of this process means, again where it does not know of it
  // yet, then acts on it.
  void Judge(const std::string& name, const ProcessEnd& end, SteadyTime give_up);
  void JudgeServer(const std::string& name, const ProcessEnd& end, SteadyTime give_up);
  void Decide(const std::string& name, const ProcessEnd& end);
  void StartAgain(const std::string& name);
  bool IsWanted(const Member& member) const;
  void Forget(const std::string& name);
  bool WasReleased(const Member& worker) const;
  void FinishIfDone();
  // Stops in order, as soon as the servers' statistics are complete or at `give_up`.
  void Finish(SteadyTime give_up);

  // For one call.
  ControlTarget Coordinator() const;
  // Asks the coordinator and calls `then` on the loop with the answer, or with nothing.
  void AskStatus(std::function<void(std::optional<JobStatus>)> then);
  std::optional<JobStatus> Complete(std::optional<JobStatus> status);
  void Poll();
  void OnStatus(std::optional<JobStatus> status);
  void OnSilence();
  void FollowWorkers();
  void FollowServers();
  bool IsListed(const Member& server) const;
  bool IsAwaited(const Member& server) const;
  void ShowProgress();
  void Fail(int exit_code, const std::string& text);
  // Fails with what the coordinator says of the cause, or with `text` where it says nothing in
  // time.
  void FailWithReason(const std::string& text);
  void AwaitReason(const std::string& text, SteadyTime give_up);
  void RestartJob(Duration delay);

  // supervisor_save.cc: saves a checkpoint before an orderly stop.
  bool MaySave() const;
  void SaveThenStop(int exit_code);
  void AwaitSave(uint64_t number, int exit_code, SteadyTime give_up);
  void StopInOrder(int exit_code);
  int FailureExitCode() const;

  void Stop(int exit_code, std::vector<StopStage> stages);
  void StopNext();
  std::vector<ChildProcess*> RunningIn(const StopStage& stage) const;
  void End();
  void CancelTimers();
  void WriteReport();
  void UpdateEndpoints();
  void Print(const std::string& line);
  void ClearProgressLine();
  Duration Since(SteadyTime time) const { return loop_.Now() - time; }

  const LaunchOptions& options_;
  const TrainingJob& job_;
  Workdir& workdir_;
  Guardian& guardian_;
  EventLoop& loop_;
  const std::function<void(int)> on_end_;
  const SteadyTime began_at_;
  const bool is_terminal_;

  std::map<std::string, Member> members_;  // by name
  std::string coordinator_address_;
  std::string manifest_;  // the workdir's copy
  // The coordinator has answered the last question, and knows the whole job.
  bool is_answering_ = false;
  std::optional<JobStatus> earlier_;  // the last word of coordinators that have died
  std::optional<SteadyTime> trained_since_;
  Term counting_from_;          // of the coordinator that counts the seconds
  Duration trained_before_{0};  // it did
  JobStatus status_;
  JobStatus status_shown_;
  SteadyTime shown_at_;
  SteadyTime answered_at_;  // when the coordinator last said something
  bool has_progress_line_ = false;
  bool has_started_workers_ = false;
  std::set<std::string> lost_servers_;  // that ended; what it means is being asked
  int counted_restarts_ = 0;
  int restarts_ = 0;
  std::string failure_;
  bool is_saving_ = false;              // before an orderly stop
  bool has_saved_ = false;              // in this run, by an earlier start of the job too
  bool is_failing_ = false;             // the reason is being asked for
  std::optional<int> stopping_with_;    // the exit code
  std::vector<StopStage> stop_stages_;  // still to come; the first is under way
  bool is_stage_asked_ = false;
  std::optional<Duration> start_again_after_;
  std::map<std::string, Executor::TimerId> restart_timers_;
  Executor::TimerId poll_timer_ = 0;
  Executor::TimerId finish_timer_ = 0;
  Executor::TimerId kill_timer_ = 0;
  Executor::TimerId deadline_timer_ = 0;  // of the start, later of the whole run
  std::shared_ptr<Supervisor*> self_;     // what posted tasks look at: gone when the supervisor is
  std::unique_ptr<EventLoop> asking_;     // the status call blocks; last: it posts to the loop
};

}  // namespace pushpull
