// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/supervisor.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/termination_message.h"
#include "runtime/job/local_rules.h"
#include "runtime/local/role_commands.h"
#include "runtime/local/status_rules.h"

namespace pushpull {
namespace {

constexpr Duration kPollPeriod = std::chrono::milliseconds(500);
constexpr Duration kStopGrace = std::chrono::seconds(10);
// For a worker to finish its step when the job has succeeded without it; as long as a pod has.
constexpr Duration kStepGrace = std::chrono::seconds(60);
// A failed job has nothing left to save; it must end within 10 s in all.
constexpr Duration kFailureGrace = std::chrono::seconds(3);
// A step that is never reached, or a disk that hangs, must not keep the job from ending; a second
// signal ends the wait at once.
constexpr Duration kSaveGrace = std::chrono::minutes(5);
// A coordinator that has not answered for this long is stopped or hangs: no load explains it.
constexpr Duration kSilenceMax = std::chrono::seconds(45);
// After a server dies, how long the coordinator has to report which tensor and step were lost.
constexpr Duration kReasonGrace = std::chrono::seconds(2);
constexpr Duration kReasonPeriod = std::chrono::milliseconds(100);
// After the last worker is done, how long the servers' last statistics have to arrive.
constexpr Duration kStatisticsGrace = std::chrono::seconds(2);
constexpr Duration kStatisticsPeriod = std::chrono::milliseconds(50);

bool EndedInOrder(const ProcessEnd& end) {
  return end.signal == 0 && end.exit_code == 0;
}

// Somebody ended it, regardless of what it was doing.
bool WasEndedBySignal(const ProcessEnd& end) {
  return end.signal != 0 || end.exit_code == ExitCodeOf(SIGTERM);
}

// For a member that ended in order: a server does so for no other reason.
bool EndedByRelease(const JobStatus& status, const MemberProcess& member) {
  return member.role() == JobRole::kServer || member.was_released() ||
         WasReleased(status, member.endpoint().index);
}

// The process itself has printed why: a port in use, an address that is not local.
bool NeverListened(const MemberProcess& member, const ProcessEnd& end) {
  if (member.role() == JobRole::kWorker || member.has_been_ready()) return false;
  return !WasEndedBySignal(end) && (member.role() != JobRole::kServer || !EndedInOrder(end));
}

// If the job may survive the loss of a server, the coordinator gets the time that it needs to
// notice silence.
Duration NoticeTime(const TrainingJobSpec& spec) {
  const bool may_survive =
      spec.servers.replication > 0 || BackoffLimitOf(spec.restart, JobRole::kServer) > 0;
  return may_survive ? Duration(spec.restart.peer_timeout) : Duration(0);
}

std::string TookTooLong(const char* what, std::chrono::seconds limit, const char* field) {
  return absl::StrCat(what, " ", limit.count(), " s (spec.", field, ")");
}

absl::StatusOr<std::string> KeepManifest(const LocalJob& local) {
  const std::string& merged = local.options.merged_manifest;
  return merged.empty() ? local.workdir.KeepManifest(local.options.manifest_path)
                        : local.workdir.KeepManifestText(merged);
}

std::string DescribeReady(const Endpoint& coordinator) {
  return absl::StrCat(
      "coordinator ready at ", coordinator.control, ", status page ", coordinator.page);
}

RunOutcome OutcomeOf(const CoordinatorLink& coordinator,
                     const Restarts& restarts,
                     int exit_code,
                     Duration duration) {
  return {.status = coordinator.status(),
          .has_succeeded = exit_code == 0,
          .was_stopped = exit_code > 128,
          .seconds = ToSeconds(duration),
          .restarts = restarts.count(),
          .left_out = restarts.left_out(),
          .history = coordinator.history()};
}

int FailureExitCode(const JobStatus& status) {
  return status.failure_exit_code == 0 ? kExitFailed : static_cast<int>(status.failure_exit_code);
}

// `coordinator`: how a coordinator starts now, in place of the one at `recover_at`.
absl::StatusOr<ProcessSpec> SpecOf(const LocalJob& local,
                                   JobRole role,
                                   int index,
                                   CoordinatorStart coordinator) {
  const std::string& address = coordinator.recover_at.control;
  LaunchOptions options = local.options;
  options.environment[kTerminationLogVariable] =
      local.workdir.termination_path(MemberName(role, index));
  if (role == JobRole::kServer) return ServerProcess(options, local.job, index, address);
  if (role == JobRole::kWorker) return WorkerProcess(options, local.job, index, address);
  // A successor listens at its predecessor's address, with a higher term.
  PUSHPULL_ASSIGN_OR_RETURN(coordinator.term, local.workdir.NextTerm());
  return CoordinatorProcess(options, coordinator);
}

// The coordinator has to know of the workers that are left out, and, if it has replaced another, of
// those that are done: it saves the last checkpoint when every worker is. One that is no longer
// desired is forgotten: a later one with its index may join.
void FollowLeftOut(CoordinatorLink& coordinator,
                   Restarts& restarts,
                   MemberTable& members,
                   Console& console) {
  const JobStatus& status = coordinator.status();
  for (const std::string& name : restarts.ForgetLeftOutFrom(status.desired_workers)) {
    members.Remove(name);
    console.Print(absl::StrCat("pushpull: ", name, " is no part of the job; another may join"));
  }
  std::map<WorkerId, std::string> over = restarts.left_out();
  if (status.phase == JobPhase::kRunning) {
    for (const WorkerId worker : members.DoneWorkers(status)) over.try_emplace(worker);
  }
  coordinator.LeaveOut(UnknownTo(status, over));
}

// Members that end because of one another, and the coordinator, which takes no end for a failure
// any more.
std::vector<StopStage> MembersFirst(Duration grace) {
  return {{{JobRole::kWorker, JobRole::kServer}, grace}, {{JobRole::kCoordinator}, grace}};
}

std::vector<StopStage> InOrder() {
  return {{{JobRole::kWorker}, kStopGrace},
          {{JobRole::kCoordinator}, kStopGrace},
          {{JobRole::kServer}, kStopGrace}};
}

bool CanSave(const LaunchOptions& options, const JobStatus& status) {
  return !options.checkpoints.empty() && status.phase == JobPhase::kRunning;
}

void SayNothingIsSaved(const LaunchOptions& options, Console& console) {
  if (options.checkpoints.empty()) return;
  console.Print(kNothingToSave);
}

// The server with which the job has failed.
bool IsLost(const JobStatus& status, const std::string& server) {
  return status.lost_server && server == ToString(*status.lost_server);
}

// The job has failed with a server, whose end the rules are yet to decide about.
bool AwaitsVerdict(const JobStatus& status,
                   const std::set<std::string>& lost_servers,
                   MemberTable& members) {
  const MemberProcess* server =
      status.lost_server ? members.Find(ToString(*status.lost_server)) : nullptr;
  if (server == nullptr) return false;
  if (!server->is_running()) return lost_servers.contains(server->name());
  server->KillGroup();  // it hangs, and no job has a place for it any more
  return true;
}

void KillIfSilent(CoordinatorLink& link, MemberTable& members, Console& console) {
  const MemberProcess& coordinator = *members.Find("coordinator");
  if (!coordinator.is_running() || link.SinceLastAnswer() < kSilenceMax) return;
  link.RestartSilence();
  console.Print(
      absl::StrCat("pushpull: coordinator at ", link.address(), " does not answer; killed"));
  coordinator.KillGroup();
}

// Before all members begin again. With checkpoints the next coordinator knows.
void SayWhatIsLost(const LaunchOptions& options, const JobStatus& status, Console& console) {
  if (!options.checkpoints.empty() || status.step == Step{}) return;
  console.Print(absl::StrCat("pushpull: the job begins again at step 0, it had reached step ",
                             status.step.value(),
                             ": without spec.checkpoint its steps are lost"));
}

}  // namespace

Supervisor::Supervisor(const LocalJob& job, std::function<void(int)> on_end)
    : local_(job),
      spec_(job.job.spec),
      loop_(job.loop),
      on_end_(std::move(on_end)),
      began_at_(loop_.Now()),
      console_(job.options.shows_progress),
      coordinator_(job.job.metadata.name, job.options.tls, job.options.tensorboard, loop_),
      members_(local_,
               {.on_output =
                    [this](const MemberProcess& member, const std::string& line) {
                      console_.Print(absl::StrCat(member.name(), " | ", line));
                    },
                .on_ready = [this](const MemberProcess& member) { OnReady(member); },
                .on_end = [this](const MemberProcess& member,
                                 const ProcessEnd& end) { OnEnd(member, end); }}),
      restarts_(spec_.restart, loop_),
      save_(members_, coordinator_, console_, loop_, [this](int code) { StopInOrder(code); }) {}

void Supervisor::CancelTimers() {
  restarts_.Cancel();
  loop_.Cancel(poll_timer_);
  coordinator_.CancelCalls();
  loop_.Cancel(deadline_timer_);
}

// ---- start ----

void Supervisor::Start() {
  // Checked before anything runs, rather than when the first worker is due.
  const absl::Status found = WorkerProcess(local_.options, local_.job, 0, "").status();
  if (!found.ok()) return Fail(kExitNotReachable, std::string(found.message()));
  const absl::StatusOr<std::string> manifest = KeepManifest(local_);
  if (!manifest.ok()) return Fail(kExitNotReachable, std::string(manifest.status().message()));
  manifest_ = *manifest;
  const std::chrono::seconds deadline = spec_.start_deadline.value_or(kLocalStartDeadline);
  deadline_timer_ = loop_.RunAfter(deadline, [this, deadline] {
    Fail(kExitFailed,
         TookTooLong("not all members were ready within", deadline, "startDeadlineSeconds"));
  });
  StartMember(JobRole::kCoordinator, 0);
}

void Supervisor::StartMember(JobRole role, int index) {
  MemberProcess& member = members_.Add(role, index);
  const absl::StatusOr<ProcessSpec> spec =
      SpecOf(local_,
             role,
             index,
             {.manifest = manifest_, .goes_on = has_saved_, .recover_at = coordinator_.endpoint()});
  const absl::Status started = spec.ok() ? members_.Start(member, *spec) : spec.status();
  if (started.ok()) return;
  const std::string text(started.message());
  // A job that is already training continues without it.
  const bool is_pending = IsTrainingWithout(coordinator_.status(), role, member.endpoint().index);
  if (!is_pending) return Fail(kExitNotReachable, text);
  Apply(member, {.role = role, .has_started = false, .is_pending = true}, text);
}

void Supervisor::StartMembers(JobRole role, int count) {
  for (int i = 0; i < count && !stopping_with_; ++i) StartMember(role, i);
}

void Supervisor::OnReady(const MemberProcess& process) {
  members_.PublishEndpoints();
  if (stopping_with_) return;
  if (process.role() == JobRole::kCoordinator) {
    const bool is_first = coordinator_.address().empty();
    coordinator_.OnReady(process.endpoint());
    console_.PrintProgress(DescribeReady(process.endpoint()));
    if (!is_first) return;
    StartMembers(JobRole::kServer, spec_.servers.replicas);
    StartWorkersIfDue();  // at once in mode AllReduce
    return Poll();
  }
  StartWorkersIfDue();
}

// Due once every server has been ready; one that is not may also have been forgotten meanwhile.
void Supervisor::StartWorkersIfDue() {
  if (has_started_workers_ || !members_.AreServersReady()) return;
  if (spec_.servers.replicas > 0)
    console_.PrintProgress(absl::StrCat(spec_.servers.replicas, " servers ready"));
  has_started_workers_ = true;
  coordinator_.RestartSilence();
  StartMembers(JobRole::kWorker, spec_.workers.replicas);
}

// ---- ends of processes ----

void Supervisor::OnEnd(const MemberProcess& process, const ProcessEnd& end) {
  members_.PublishEndpoints();
  if (stopping_with_) {
    if (members_.ContinueStop()) End();
    return;
  }
  save_.OnEnd();
  if (is_failing_ || save_.has_begun()) return;
  const std::string name = process.name();
  const JobRole role = process.role();
  if (IsOver(role)) {
    if (members_.ContinueStop()) Finish();
    return;
  }
  if (role == JobRole::kWorker && !IsDesired(process)) return Forget(process);
  // Only the coordinator knows whether a worker whose end may end the job was released instead.
  const bool may_succeed = SucceedsWith(spec_.restart.success_policy, process.index());
  if (role == JobRole::kWorker && EndedInOrder(end) && !may_succeed)
    return ApplyRestartRules(name, end);
  if (!has_started_workers_ && NeverListened(process, end)) {
    return Fail(end.exit_code == 0 ? kExitFailed : end.exit_code,
                absl::StrCat(name, " ", ToString(end), " before it was ready"));
  }
  if (role == JobRole::kCoordinator) {
    // Steps continue without it, and members find its successor at the same address.
    coordinator_.OnCoordinatorEnd();
    return ApplyRestartRules(name, end);
  }
  if (role != JobRole::kServer) return Judge(name, end, loop_.Now() + kReasonGrace);
  lost_servers_.insert(name);
  Judge(name, end, loop_.Now() + kReasonGrace + NoticeTime(spec_));
}

void Supervisor::Judge(const std::string& name, const ProcessEnd& end, SteadyTime give_up) {
  coordinator_.FetchStatus([this, name, end, give_up, asked = loop_.Now()](bool has_answer) {
    OnStatus(has_answer);
    // Time without a coordinator, or with one that stands still, does not count.
    if (!stopping_with_ && !is_failing_) JudgeByStatus(name, end, give_up + (loop_.Now() - asked));
  });
}

void Supervisor::JudgeByStatus(const std::string& name, const ProcessEnd& end, SteadyTime give_up) {
  const JobStatus& status = coordinator_.status();
  if (!status.failure.empty()) return JudgeAfterFailure(name, end);
  const MemberProcess* member = members_.Find(name);
  if (member == nullptr || member->is_running()) return;  // the end of an earlier start
  const bool is_server = member->role() == JobRole::kServer;
  if (is_server && AwaitsServers()) return StartAgain(*member, end);
  const bool is_listed = is_server && IsListed(status, member->endpoint());
  const bool is_answering = coordinator_.is_answering();
  // A server's end is judged once the coordinator has noticed it. A worker that ends because the
  // job has failed is not the cause: servers are judged first. Whether it has made a step is in
  // reports that may be on their way.
  const bool is_late = loop_.Now() >= give_up;
  const bool is_known = is_late || status.phase != JobPhase::kRunning || status.has_stepped();
  const bool is_due = is_server ? !is_listed || is_late
                                : !IsDesired(*member) || (lost_servers_.empty() && is_known);
  if (!is_answering || !is_due) {
    // Nor does the pause before a coordinator that does not answer is asked again.
    const SteadyTime later = is_answering ? give_up : give_up + kReasonPeriod;
    return restarts_.RunAfter(
        name, kReasonPeriod, [this, name, end, later] { Judge(name, end, later); });
  }
  // Fails if the coordinator has not noticed the end in time; once it has, the job continues
  // without the server.
  if (is_listed) return Fail(kExitFailed, absl::StrCat(name, " ", ToString(end)));
  StartAgain(*member, end);
}

// The rules decide about the end of the server with which the job has failed. Only a restart of all
// members brings its shards back.
void Supervisor::JudgeAfterFailure(const std::string& name, const ProcessEnd& end) {
  const JobStatus& status = coordinator_.status();
  const MemberProcess* member = members_.Find(name);
  const bool is_lost = IsLost(status, name) && member != nullptr && !member->is_running();
  if (!is_lost) {
    if (!AwaitsVerdict(status, lost_servers_, members_)) FailWithReason(status.failure);
    return;
  }
  lost_servers_.erase(name);
  MemberExit exit = member->ExitOf(end, status, training_began_at_);
  exit.restarts_job = exit.restarts_job || status.can_resume;
  const ExitDecision decision = restarts_.Decide(name, exit);
  if (decision.is_limit_reached)
    return Fail(kExitFailed, absl::StrCat(status.failure, "; ", name, " ", decision.text));
  if (decision.action != ExitAction::kRestartJob) return FailWithReason(status.failure);
  console_.Print(absl::StrCat("pushpull: ", status.failure, "; ", name, " ", decision.text));
  RestartJob(decision.delay);
}

// A coordinator that recovers a job which has not begun waits for each of its servers. Later its
// status says who is needed.
bool Supervisor::AwaitsServers() const {
  return coordinator_.is_recovering() && !has_training_begun_;
}

void Supervisor::StartAgain(const MemberProcess& member, const ProcessEnd& end) {
  const std::string name = member.name();
  lost_servers_.erase(name);
  if (IsOver(member.role())) return;
  // The worker was rejected, or released before the launcher received the new size.
  if (!IsDesired(member)) return Forget(member);
  // A member that was released is desired again since.
  const bool was_released = EndedInOrder(end) && EndedByRelease(coordinator_.status(), member);
  was_released ? StartMember(member.role(), member.index()) : ApplyRestartRules(name, end);
}

void Supervisor::ApplyRestartRules(const std::string& name, const ProcessEnd& end) {
  MemberProcess& member = *members_.Find(name);
  Apply(member, member.ExitOf(end, coordinator_.status(), training_began_at_), member.last_words());
}

void Supervisor::Apply(MemberProcess& member, const MemberExit& exit, const std::string& detail) {
  const std::string name = member.name();
  const ExitDecision decision = restarts_.Decide(name, exit);
  const std::string text =
      absl::StrCat(name, " ", decision.text, detail.empty() ? "" : ": ", detail);
  if (decision.action == ExitAction::kFailJob)
    return Fail(decision.job_exit_code == 0 ? kExitFailed : decision.job_exit_code, text);
  if (decision.action != ExitAction::kDone) console_.Print(absl::StrCat("pushpull: ", text));
  if (decision.action == ExitAction::kRestartPod)
    return restarts_.RunAfter(name, decision.delay, [this, name] { Restart(name); });
  if (decision.action == ExitAction::kRestartJob) return RestartJob(decision.delay);
  member.SetDone();
  decision.action == ExitAction::kSucceedJob ? EndWorkers() : FinishIfDone();
}

void Supervisor::RestartJob(Duration delay) {
  start_again_after_ = delay;
  Stop(kExitFailed, MembersFirst(kStopGrace));
}

// A member that is no longer desired when its delay is over is forgotten instead.
void Supervisor::Restart(const std::string& name) {
  if (stopping_with_ || save_.has_begun()) return;
  const MemberProcess& member = *members_.Find(name);
  if (IsOver(member.role())) return;
  if (member.role() != JobRole::kCoordinator) {
    const bool is_awaited = member.role() == JobRole::kServer && AwaitsServers();
    if (!coordinator_.is_answering() && !is_awaited)  // no coordinator would register it
      return restarts_.RunAfter(name, kPollPeriod, [this, name] { Restart(name); });
    if (!IsDesired(member)) return Forget(member);
  }
  StartMember(member.role(), member.index());
}

bool Supervisor::IsDesired(const MemberProcess& member) const {
  return pushpull::IsDesired(coordinator_.status(), member.role(), member.endpoint().index);
}

void Supervisor::Forget(const MemberProcess& member) {
  const bool is_worker = member.role() == JobRole::kWorker;
  const std::string name = member.name();
  restarts_.Forget(name);
  members_.Remove(name);
  if (is_worker) FinishIfDone();
}

void Supervisor::FinishIfDone() {
  if (members_.AreWorkersDone()) Finish();
}

void Supervisor::EndWorkers() {
  is_ending_workers_ = true;
  loop_.Cancel(deadline_timer_);
  if (members_.Stop({{.roles = {JobRole::kWorker}, .grace = kStepGrace, .is_urgent = false}}))
    Finish();
}

// The report counts the contributors that the servers know of, and servers report once a second.
// The coordinator saves once it knows that no worker is left.
void Supervisor::Finish() {
  loop_.Cancel(deadline_timer_);
  const SteadyTime statistics_due = loop_.Now() + kStatisticsGrace;
  const auto is_enough = [this, statistics_due](const JobStatus& status) {
    const bool is_known = !is_ending_workers_ || status.phase == JobPhase::kSucceeded;
    if (is_known && IsSaved(status) && HasLastStatistics(status)) return true;
    const bool is_saving = coordinator_.is_answering() && !IsSaved(status);
    return loop_.Now() >= statistics_due && !is_saving;
  };
  coordinator_.AwaitStatus({.is_enough = is_enough,
                            .period = kStatisticsPeriod,
                            .give_up = statistics_due + kSaveGrace,
                            .then = [this] { StopInOrder(0); }});
}

// ---- the coordinator's status ----

void Supervisor::Poll() {
  poll_timer_ = loop_.RunAfter(kPollPeriod, [this] {
    coordinator_.FetchStatus([this](bool has_answer) {
      OnStatus(has_answer);
      if (!stopping_with_) Poll();
    });
  });
}

void Supervisor::OnStatus(bool has_answer) {
  if (stopping_with_ || is_failing_) return;
  if (AwaitsServers() && has_started_workers_) StartMissing(JobRole::kServer);
  if (!has_answer) return KillIfSilent(coordinator_, members_, console_);
  const JobStatus& status = coordinator_.status();
  has_saved_ = has_saved_ || status.checkpoint.saved > 0;
  const bool has_failed = status.phase == JobPhase::kFailed;
  if (has_failed && !AwaitsVerdict(status, lost_servers_, members_))
    return Fail(FailureExitCode(status), status.failure);
  if (has_failed || save_.has_begun()) return;
  if (status.phase != JobPhase::kStarting && !std::exchange(has_training_begun_, true))
    OnTrainingBegun();
  StartWorkersIfDue();
  if (has_started_workers_) StartMissing(JobRole::kWorker);
  members_.Follow(status);
  FollowLeftOut(coordinator_, restarts_, members_, console_);
  if (has_started_workers_) StartMissing(JobRole::kServer);
  console_.ShowStatus(loop_.Now(), status);
}

void Supervisor::StartMissing(JobRole role) {
  if (IsOver(role)) return;
  for (const int index : members_.Missing(role, coordinator_.status())) {
    if (!stopping_with_) StartMember(role, index);
  }
}

void Supervisor::OnTrainingBegun() {
  training_began_at_ = loop_.Now();
  loop_.Cancel(deadline_timer_);
  if (!spec_.active_deadline) return;
  deadline_timer_ = loop_.RunAfter(*spec_.active_deadline, [this] {
    Fail(kExitFailed, TookTooLong("ran for", *spec_.active_deadline, "activeDeadlineSeconds"));
  });
}

// ---- failure ----

// The coordinator's text names peer, tensor and step once the workers have reported them.
void Supervisor::FailWithReason(const std::string& text) {
  if (stopping_with_ || std::exchange(is_failing_, true)) return;
  CancelTimers();
  const auto has_failed = [](const JobStatus& status) { return status.phase == JobPhase::kFailed; };
  coordinator_.AwaitStatus({.is_enough = has_failed,
                            .period = kReasonPeriod,
                            .give_up = loop_.Now() + kReasonGrace,
                            .then = [this, text] {
                              const JobStatus& status = coordinator_.status();
                              Fail(FailureExitCode(status),
                                   status.failure.empty() ? text : status.failure);
                            }});
}

void Supervisor::Fail(int exit_code, const std::string& text) {
  if (stopping_with_) return;
  failure_ = text;
  console_.Print(absl::StrCat("pushpull: job ", local_.job.metadata.name, " failed: ", text));
  Stop(exit_code, MembersFirst(kFailureGrace));
}

// ---- stop ----

void Supervisor::OnSignal(int signal) {
  const bool is_first = (!stopping_with_ && !save_.has_begun()) || start_again_after_;
  start_again_after_.reset();
  if (!is_first) {
    members_.KillAll();
    if (!stopping_with_) StopInOrder(128 + signal);
    return;
  }
  console_.Print("pushpull: stopping");
  failure_ = absl::StrCat("stopped by signal ", signal);
  if (has_started_workers_ && !is_failing_ && CanSave(local_.options, coordinator_.status()))
    return save_.Begin(128 + signal);
  SayNothingIsSaved(local_.options, console_);
  StopInOrder(128 + signal);
}

// The coordinator ends before the servers and tells them to stop: if it were left, it would take
// the end of its servers for a failure.
void Supervisor::StopInOrder(int exit_code) {
  Stop(exit_code, InOrder());
}

void Supervisor::Stop(int exit_code, std::vector<StopStage> stages) {
  stopping_with_ = exit_code;
  CancelTimers();
  if (members_.Stop(std::move(stages))) End();
}

void Supervisor::End() {
  if (start_again_after_) return StartJobAgain(*std::exchange(start_again_after_, std::nullopt));
  console_.ClearProgressLine();
  local_.workdir.RemoveEndpoints();
  WriteReport();
  on_end_(*stopping_with_);
}

void Supervisor::StartJobAgain(Duration delay) {
  SayWhatIsLost(local_.options, coordinator_.status(), console_);
  stopping_with_.reset();
  save_.Reset();
  is_ending_workers_ = false;
  has_started_workers_ = has_training_begun_ = false;
  coordinator_.Reset();
  lost_servers_.clear();
  members_.Reset();
  deadline_timer_ = loop_.RunAfter(delay, [this] { Start(); });
}

void Supervisor::WriteReport() {
  RunOutcome outcome = OutcomeOf(coordinator_, restarts_, *stopping_with_, loop_.Now() - began_at_);
  outcome.failure = failure_;
  const absl::Status written =
      ReportOutcome(outcome, local_.workdir.path() + "/logs", local_.options.report_path);
  if (!written.ok() && *stopping_with_ == 0) stopping_with_ = kExitNotReachable;
}

}  // namespace pushpull
