// SPDX-License-Identifier: Apache-2.0
//
// Runs a job as local processes: starts them in order, restarts them by the rules of spec.restart,
// keeps as many servers and workers as the coordinator's desired size says, and stops everything in
// order.
//
//   starting --1--> running --2--> stopping --5--> ended
//     ^  |            |              ^    |
//     |  +-----3------+------3-------+    |
//     +-----------------4-----------------+
//
// 1 the coordinator reports that the first view is active.
// 2 every worker is done (exit 0), or one that suffices under spec.restart.successPolicy: then the
//   others are stopped in order first.
// 3 a deadline, a failure or a signal (exit 1, 2, 3, 130 or 143).
// 4 a rule asks for a restart of the whole job: everything restarts after the rule's delay.
// 5 every process has ended.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/local/console.h"
#include "runtime/local/coordinator_link.h"
#include "runtime/local/member_table.h"
#include "runtime/local/report.h"
#include "runtime/local/restarts.h"
#include "runtime/local/stop_save.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-confined to the loop, constructor and destructor included.
class Supervisor {
 public:
  // `on_end` is called once, with the exit code, when every process has ended.
  Supervisor(const LocalJob& job, std::function<void(int exit_code)> on_end);
  ~Supervisor() { CancelTimers(); }

  // If a program cannot be found or a folder cannot be written, ends with exit code 3.
  void Start();
  // The first signal asks for an orderly stop, the second kills.
  void OnSignal(int signal);

 private:
  void StartMember(JobRole role, int index);
  void StartMembers(JobRole role, int count);
  void OnReady(const MemberProcess& process);
  void StartWorkersIfDue();
  bool AwaitsServers() const;
  void OnEnd(const MemberProcess& process, const ProcessEnd& end);
  // Asks the coordinator what the end of this process means, then acts on it. Asks again while the
  // coordinator does not know yet, for a server until `give_up`.
  void Judge(const std::string& name, const ProcessEnd& end, SteadyTime give_up);
  void JudgeByStatus(const std::string& name, const ProcessEnd& end, SteadyTime give_up);
  void JudgeAfterFailure(const std::string& name, const ProcessEnd& end);
  // Starts the member again if it is still desired.
  void StartAgain(const MemberProcess& member, const ProcessEnd& end);
  // Applies spec.restart.
  void ApplyRestartRules(const std::string& name, const ProcessEnd& end);
  // `detail`: what the member said about its end, or why it was not started; may be empty.
  void Apply(MemberProcess& member, const MemberExit& exit, const std::string& detail);
  void Restart(const std::string& name);
  void RestartJob(Duration delay);
  bool IsDesired(const MemberProcess& member) const;
  void Forget(const MemberProcess& member);
  void FinishIfDone();
  // One worker's success was enough: the other workers finish their step and leave.
  void EndWorkers();
  // No worker is left: stops the job once its last checkpoint is saved.
  void Finish();
  // The job has succeeded: the end of a worker no longer matters.
  bool IsOver(JobRole role) const { return is_ending_workers_ && role == JobRole::kWorker; }

  void Poll();
  void OnStatus(bool has_answer);
  void StartMissing(JobRole role);
  void OnTrainingBegun();

  void Fail(int exit_code, const std::string& text);
  // Fails with the coordinator's reason, or with `text` if it has none in time.
  void FailWithReason(const std::string& text);
  void StopInOrder(int exit_code);
  void Stop(int exit_code, std::vector<StopStage> stages);
  void End();
  void StartJobAgain(Duration delay);
  void CancelTimers();
  void WriteReport();

  const LocalJob local_;
  const TrainingJobSpec& spec_;
  EventLoop& loop_;
  const std::function<void(int)> on_end_;
  const SteadyTime began_at_;

  Console console_;
  CoordinatorLink coordinator_;
  MemberTable members_;
  Restarts restarts_;
  StopSave save_;
  std::string manifest_;  // the workdir's copy
  bool has_started_workers_ = false;
  bool has_training_begun_ = false;
  SteadyTime training_began_at_;
  std::set<std::string> lost_servers_;  // ended, but not judged yet
  std::string failure_;
  bool is_ending_workers_ = false;    // the job succeeded before they were done
  bool has_saved_ = false;            // in this run, including earlier starts of the job
  bool is_failing_ = false;           // waiting for the coordinator's reason
  std::optional<int> stopping_with_;  // the exit code
  std::optional<Duration> start_again_after_;
  Executor::TimerId poll_timer_ = 0;
  Executor::TimerId deadline_timer_ = 0;  // of the start, later of the whole run
};

}  // namespace pushpull
