// SPDX-License-Identifier: Apache-2.0
//
// The processes of a local job's members by name: each one's program, log file and addresses, the
// list of all endpoints in the workdir, and their orderly end.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/error_line.h"
#include "runtime/base/termination_message.h"
#include "runtime/job/restart_policy.h"
#include "runtime/local/guardian.h"
#include "runtime/local/launcher.h"
#include "runtime/local/process.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// What the parts of the launcher share; all of it outlives those parts.
struct LocalJob {
  const LaunchOptions& options;
  const TrainingJob& job;
  Workdir& workdir;
  Guardian& guardian;
  EventLoop& loop;
};

// "coordinator", "server-0", "worker-2".
std::string MemberName(JobRole role, int index);

class MemberProcess;

struct MemberEvents {
  std::function<void(MemberProcess&, const std::string& line)> on_output;
  std::function<void(MemberProcess&)> on_ready;  // the endpoint is known
  std::function<void(MemberProcess&, const ProcessEnd&)> on_end;
};

// Thread-confined to the loop. Not movable: events refer to it.
class MemberProcess {
 public:
  // `events` outlives the member.
  MemberProcess(JobRole role, int index, const LocalJob& job, const MemberEvents& events);
  MemberProcess(const MemberProcess&) = delete;
  MemberProcess& operator=(const MemberProcess&) = delete;

  JobRole role() const { return role_; }
  int index() const { return static_cast<int>(endpoint_.index); }
  std::string name() const { return MemberName(role(), index()); }
  const Endpoint& endpoint() const { return endpoint_; }
  bool is_running() const { return process_ != nullptr && process_->is_running(); }
  // Since its last start, even if it has ended since.
  bool has_been_ready() const { return has_been_ready_; }
  Duration SinceStart() const { return job_.loop.Now() - started_at_; }
  // What the program said of its last end; empty: nothing.
  const std::string& last_words() const { return last_words_; }
  // So its program said of its last end.
  bool was_released() const { return told_end_ && told_end_->was_released(); }
  // The worker has finished its work.
  bool is_done() const { return is_done_; }
  void SetDone() { is_done_ = true; }

  // How it has ended, for the rules of spec.restart.
  MemberExit ExitOf(const ProcessEnd& end,
                    const JobStatus& status,
                    SteadyTime training_began) const;

  // Appends what the program prints to its log, a fresh file at the member's first start.
  absl::Status Start(const ProcessSpec& spec);
  // Whether it is about this process or one of its children: a worker may be the child of a shell.
  // Any other process belongs to an earlier start.
  bool IsAbout(const WorkerStatus& worker) const;
  // Takes over what only a worker knows of itself, and kills a worker that the coordinator has lost
  // and that does not end by itself. True: the endpoint has changed.
  bool FollowWorker(const WorkerStatus& worker);
  // Kills a worker that an earlier coordinator knew and that does not come to this one.
  void FollowUnknownWorker(const JobStatus& status);
  // Kills a server that the coordinator has lost and that does not end by itself.
  void FollowServer(const JobStatus& status);
  // Before the whole job restarts.
  void Reset() { has_been_ready_ = is_done_ = false; }
  // Asks the process to end, even if it is stopped: at once if urgent, otherwise in order.
  void RequestEnd(bool is_urgent) const;
  void KillGroup() const { process_->KillGroup(); }

 private:
  bool HasJoined(const ProcessEnd& end, const JobStatus& status, SteadyTime training_began) const;
  void OnReady(const std::string& line);
  void OnEnd(const ProcessEnd& end);
  void KillIfItStays(bool is_lost, Duration grace);

  const JobRole role_;
  const LocalJob& job_;
  const MemberEvents& events_;
  Endpoint endpoint_;
  bool has_been_ready_ = false;
  bool is_done_ = false;
  // A coordinator has listed this server as alive; a worker: at last, with a part in the job.
  bool is_listed_ = false;
  std::optional<SteadyTime> lost_since_;  // when the coordinator lost it
  std::optional<ToldEnd> told_end_;       // of the last end
  ErrorLine error_line_;                  // since the last start
  std::string last_words_;                // of the last end
  SteadyTime started_at_;
  std::ofstream log_;
  std::unique_ptr<ChildProcess> process_;
};

// Members that are asked to end together, are killed after the grace period, and must have ended
// before the next stage begins.
struct StopStage {
  std::vector<JobRole> roles;
  Duration grace;
  bool is_urgent = true;  // false: workers finish their step first
};

// Thread-confined to the loop.
class MemberTable {
 public:
  MemberTable(const LocalJob& job, MemberEvents events) : job_(job), events_(std::move(events)) {}
  ~MemberTable() { job_.loop.Cancel(kill_timer_); }
  MemberTable(const MemberTable&) = delete;
  MemberTable& operator=(const MemberTable&) = delete;

  // Returns the member, adding it if it is new.
  MemberProcess& Add(JobRole role, int index);
  // A member that ran before keeps its log. The error names the program that cannot be started.
  absl::Status Start(MemberProcess& member, const ProcessSpec& spec);
  // Null if the member has never been started or has been removed.
  MemberProcess* Find(const std::string& name);
  bool AreServersReady() const;
  bool AreWorkersDone() const;

  // Indices of the desired members of a role that have to be started: those never started here, or
  // released before and desired again.
  std::vector<int> Missing(JobRole role, const JobStatus& status) const;
  // Workers of the job that have ended and are done with their part.
  std::vector<WorkerId> DoneWorkers(const JobStatus& status) const;
  // Kills the processes that the coordinator has given up: a stopped or hanging one would never end
  // by itself.
  void Follow(const JobStatus& status);

  void Remove(const std::string& name) { members_.erase(name); }
  // Call before the whole job restarts with the manifest's size.
  void Reset();
  // Rewrites endpoints.json.
  void PublishEndpoints() const;

  // Stops members in stages, replacing a stop in progress. True: nothing runs any more.
  bool Stop(std::vector<StopStage> stages);
  // Call whenever a process has ended. True: nothing runs any more.
  bool ContinueStop();
  void KillAll() const;

 private:
  std::vector<const MemberProcess*> Running(const std::vector<JobRole>& roles) const;

  const LocalJob& job_;
  const MemberEvents events_;
  std::map<std::string, MemberProcess> members_;
  std::vector<StopStage> stages_;  // remaining stages; the first is in progress
  bool is_requested_ = false;      // the first stage's members have been asked to end
  Executor::TimerId kill_timer_ = 0;
};

}  // namespace pushpull
