// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/supervisor.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/job/local_rules.h"
#include "runtime/local/earlier_status.h"
#include "runtime/local/progress.h"
#include "runtime/local/role_commands.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

constexpr Duration kPollPeriod = std::chrono::milliseconds(500);
constexpr Duration kLinePeriod = std::chrono::seconds(5);  // of plain progress lines
constexpr Duration kAnswerTimeout = std::chrono::seconds(2);
constexpr Duration kStopGrace = std::chrono::seconds(10);
// There is nothing left to save when the job has failed; it must be over within 10 s in all.
constexpr Duration kFailureGrace = std::chrono::seconds(3);
// For the checkpoint of the job's end.
constexpr Duration kSaveGrace = std::chrono::minutes(5);
// A coordinator that gives no answer for so long is stopped or hangs. Longer than any load
// explains.
constexpr Duration kSilenceMax = std::chrono::seconds(45);
// After a server has died, how long the coordinator has to say which tensor and step it cost.
constexpr Duration kReasonGrace = std::chrono::seconds(2);
constexpr Duration kReasonPeriod = std::chrono::milliseconds(100);
// After the last worker is done, how long the servers' last statistics have to arrive.
constexpr Duration kStatisticsGrace = std::chrono::seconds(2);
constexpr Duration kStatisticsPeriod = std::chrono::milliseconds(50);
constexpr int kExitFailed = 1;
constexpr int kExitNotReachable = 3;

const char* RoleName(JobRole role) {
  switch (role) {
    case JobRole::kCoordinator:
      return "coordinator";
    case JobRole::kServer:
      return "server";
    case JobRole::kWorker:
      return "worker";
  }
  return "member";
}

std::string NameOf(JobRole role, int index) {
  return role == JobRole::kCoordinator ? RoleName(role) : absl::StrCat(RoleName(role), "-", index);
}

// The text at `key`, empty where there is none.
std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// Whether every server's statistics are of the last step.
bool HasLastStatistics(const JobStatus& status) {
  return std::all_of(status.servers.begin(), status.servers.end(), [&](const ServerStatus& server) {
    return server.stats.chunks == 0 || server.stats.highest_version >= status.step;
  });
}

// `line` in as many columns as the terminal has, so that it can be drawn over.
std::string FitTerminal(const std::string& line) {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, size.ws_col - 1u);
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options,
                       const TrainingJob& job,
                       Workdir& workdir,
                       Guardian& guardian,
                       EventLoop& loop,
                       std::function<void(int)> on_end)
    : options_(options),
      job_(job),
      workdir_(workdir),
      guardian_(guardian),
      loop_(loop),
      on_end_(std::move(on_end)),
      began_at_(loop.Now()),
      is_terminal_(options.shows_progress && isatty(STDERR_FILENO) == 1),
      self_(std::make_shared<Supervisor*>(this)),
      asking_(std::make_unique<EventLoop>("pp-status")) {
  status_.job = job.metadata.name;
}

Supervisor::~Supervisor() {
  self_.reset();
  loop_.Cancel(kill_timer_);
  CancelTimers();
}

void Supervisor::CancelTimers() {
  for (const auto& [name, timer] : restart_timers_) loop_.Cancel(timer);
  loop_.Cancel(poll_timer_);
  loop_.Cancel(finish_timer_);
  loop_.Cancel(deadline_timer_);
}

// ---- start ----

void Supervisor::Start() {
  // Said before anything runs, not when the first worker is due.
  const absl::Status found = WorkerProcess(options_, job_, 0, "").status();
  if (!found.ok()) return Fail(kExitNotReachable, std::string(found.message()));
  const std::chrono::seconds deadline = job_.spec.start_deadline.value_or(kLocalStartDeadline);
  deadline_timer_ = loop_.RunAfter(deadline, [this, deadline] {
    Fail(kExitFailed,
         absl::StrCat("not all members were ready within ",
                      deadline.count(),
                      " s (spec.startDeadlineSeconds)"));
  });
  StartCoordinator();
}

void Supervisor::StartCoordinator() {
  const absl::StatusOr<std::string> manifest = workdir_.KeepManifest(options_.manifest_path);
  const absl::StatusOr<uint64_t> term = workdir_.NextTerm();
  if (!manifest.ok()) return Fail(kExitNotReachable, std::string(manifest.status().message()));
  if (!term.ok()) return Fail(kExitNotReachable, std::string(term.status().message()));
  manifest_ = *manifest;
  Member& member = members_["coordinator"];
  member.role = JobRole::kCoordinator;
  StartMember(member, CoordinatorProcess(options_, {manifest_, *term, has_saved_, ""}));
}

void Supervisor::RestartCoordinator() {
  const absl::StatusOr<uint64_t> term = workdir_.NextTerm();
  if (!term.ok()) return Fail(kExitNotReachable, std::string(term.status().message()));
  StartMember(members_.at("coordinator"),
              CoordinatorProcess(options_, {manifest_, *term, has_saved_, coordinator_address_}));
}

void Supervisor::StartServers() {
  for (int i = 0; i < job_.spec.servers.replicas && !stopping_with_; ++i) StartServer(i);
}

void Supervisor::StartServer(int index) {
  Member& member = members_[absl::StrCat("server-", index)];
  member.role = JobRole::kServer;
  member.index = index;
  member.is_listed = false;
  member.unlisted_since.reset();
  StartMember(member, ServerProcess(options_, job_, index, coordinator_address_));
}

void Supervisor::StartWorkers() {
  has_started_workers_ = true;
  answered_at_ = loop_.Now();
  for (int i = 0; i < job_.spec.workers.replicas && !stopping_with_; ++i) StartWorker(i);
  Poll();
}

void Supervisor::StartWorker(int index) {
  Member& member = members_[absl::StrCat("worker-", index)];
  member.index = index;
  member.is_done = false;
  StartMember(member, WorkerProcess(options_, job_, index, coordinator_address_));
}

void Supervisor::StartMember(Member& member, absl::StatusOr<ProcessSpec> spec) {
  if (!spec.ok()) return Fail(kExitNotReachable, std::string(spec.status().message()));
  if (!member.log.is_open()) member.log.open(workdir_.log_path(spec->name), std::ios::trunc);
  member.is_ready = false;
  member.started_at = loop_.Now();
  absl::StatusOr<std::unique_ptr<ChildProcess>> process = ChildProcess::Start(
      *spec,
      loop_,
      {.on_forked = [this](pid_t group) { guardian_.Watch(group); },
       .on_output = [this, &member](const std::string& line) { OnOutput(member, line); },
       .on_ready = [this, &member](const std::string& line) { OnReady(member, line); },
       .on_end = [this, &member](const ProcessEnd& end) { OnEnd(member, end); }});
  if (!process.ok()) return Fail(kExitNotReachable, std::string(process.status().message()));
  member.process = *std::move(process);
  member.endpoint = {.role = RoleName(member.role),
                     .index = static_cast<uint32_t>(member.index),
                     .pid = member.process->pid()};
  UpdateEndpoints();
}

void Supervisor::OnReady(Member& member, const std::string& line) {
  const nlohmann::json addresses = nlohmann::json::parse(line, nullptr, false);
  if (!addresses.is_object()) return;
  member.is_ready = true;
  member.endpoint.control = TextAt(addresses, "control");
  member.endpoint.data = TextAt(addresses, "data");
  member.endpoint.metrics = TextAt(addresses, "metrics");
  UpdateEndpoints();
  if (stopping_with_) return;
  if (member.role == JobRole::kCoordinator) return OnCoordinatorReady(member);
  const bool all_ready = std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.is_ready || entry.second.role == JobRole::kWorker;
  });
  if (!all_ready || has_started_workers_) return;
  if (options_.shows_progress) Print(absl::StrCat(job_.spec.servers.replicas, " servers ready"));
  StartWorkers();
}

void Supervisor::OnCoordinatorReady(Member& member) {
  const bool is_first = coordinator_address_.empty();
  coordinator_address_ = member.endpoint.control;
  answered_at_ = loop_.Now();
  if (options_.shows_progress) Print(absl::StrCat("coordinator ready at ", coordinator_address_));
  if (is_first) StartServers();
}

void Supervisor::OnOutput(Member& member, const std::string& line) {
  member.log << line << '\n' << std::flush;
  Print(absl::StrCat(NameOf(member.role, member.index), " | ", line));
}

// ---- ends ----

void Supervisor::OnEnd(Member& member, const ProcessEnd& end) {
  guardian_.Forget(member.process->pid());
  // Its own callback is running, so it goes when that has returned.
  loop_.Post([ended = std::shared_ptr<ChildProcess>(std::move(member.process))] {});
  UpdateEndpoints();
  if (stopping_with_) return StopNext();
  if (is_failing_ || is_saving_) return;
  const std::string name = NameOf(member.role, member.index);
  const bool is_in_order = end.signal == 0 && end.exit_code == 0;
  if (member.role == JobRole::kWorker && !IsWanted(member)) return Forget(name);
  if (member.role == JobRole::kWorker && is_in_order) return Decide(name, end);
  // One that never got to listen has said why itself: a port in use, an address that is not ours.
  const bool is_starting = !has_started_workers_;
  if (!member.is_ready && member.role != JobRole::kWorker && is_starting) {
    return Fail(end.exit_code == 0 ? kExitFailed : end.exit_code,
                absl::StrCat(name, " ", ToString(end), " before it was ready"));
  }
  if (member.role == JobRole::kCoordinator) return OnCoordinatorEnd(end);
  if (member.role != JobRole::kServer) return Judge(name, end, loop_.Now() + kReasonGrace);
  lost_servers_.insert(name);
  // Where the job may go on, the coordinator has as long as it takes it to find a member silent.
  const bool may_go_on = job_.spec.servers.replication > 0 || job_.spec.restart.backoff_limit > 0;
  const Duration more = may_go_on ? Duration(job_.spec.restart.peer_timeout) : Duration(0);
  Judge(name, end, loop_.Now() + kReasonGrace + more);
}

// Steps go on without it, and members find the next one where it was.
void Supervisor::OnCoordinatorEnd(const ProcessEnd& end) {
  is_answering_ = false;
  earlier_ = status_;
  Decide("coordinator", end);
}

void Supervisor::Judge(const std::string& name, const ProcessEnd& end, SteadyTime give_up) {
  AskStatus([this, name, end, give_up](std::optional<JobStatus> status) {
    OnStatus(std::move(status));
    if (stopping_with_ || is_failing_) return;
    if (!status_.failure.empty()) return FailWithReason(status_.failure);
    const auto member = members_.find(name);
    if (member == members_.end() || member->second.is_running()) return;  // of an earlier start
    if (!is_answering_) {  // who is judged by what the next coordinator says
      const SteadyTime later = give_up + kReasonPeriod;
      restart_timers_[name] =
          loop_.RunAfter(kReasonPeriod, [this, name, end, later] { Judge(name, end, later); });
      return;
    }
    if (member->second.role == JobRole::kServer) return JudgeServer(name, end, give_up);
    // Refused, or released, before this process had heard that it is not wanted any more.
    if (!IsWanted(member->second)) return Forget(name);
    // A worker that ends because the job has failed is not to blame: hear of the servers first.
    if (lost_servers_.empty()) return Decide(name, end);
    restart_timers_[name] =
        loop_.RunAfter(kReasonPeriod, [this, name, end, give_up] { Judge(name, end, give_up); });
  });
}

// The job goes on without a server when the coordinator has noticed its end and does not fail.
void Supervisor::JudgeServer(const std::string& name, const ProcessEnd& end, SteadyTime give_up) {
  Member& server = members_.at(name);
  if (IsListed(server)) {
    if (loop_.Now() >= give_up) return Fail(kExitFailed, absl::StrCat(name, " ", ToString(end)));
    restart_timers_[name] =
        loop_.RunAfter(kReasonPeriod, [this, name, end, give_up] { Judge(name, end, give_up); });
    return;
  }
  lost_servers_.erase(name);
  const bool is_released = end.signal == 0 && end.exit_code == 0;
  if (!IsWanted(server)) {
    Forget(name);
  } else if (is_released) {  // and wanted again since
    StartServer(server.index);
  } else {
    Decide(name, end);
  }
}

void Supervisor::Decide(const std::string& name, const ProcessEnd& end) {
  Member& member = members_.at(name);
  const ExitDecision decision = DecideAfterExit(
      job_.spec.restart,
      {.role = member.role,
       .exit_code = end.exit_code,
       .signal = end.signal,
       .ran_for = std::chrono::duration_cast<std::chrono::seconds>(Since(member.started_at))},
      {.counted = counted_restarts_, .in_a_row = member.restarts_in_a_row});
  counted_restarts_ = decision.history.counted;
  member.restarts_in_a_row = decision.history.in_a_row;
  const std::string text = absl::StrCat(name, " ", decision.text);
  switch (decision.action) {
    case ExitAction::kIgnore:
      Print(absl::StrCat("pushpull: ", text));
      [[fallthrough]];
    case ExitAction::kDone:
      member.is_done = true;
      return FinishIfDone();
    case ExitAction::kRestartPod:
      Print(absl::StrCat("pushpull: ", text));
      ++restarts_;
      restart_timers_[name] = loop_.RunAfter(decision.delay, [this, name] { StartAgain(name); });
      return;
    case ExitAction::kRestartJob:
      Print(absl::StrCat("pushpull: ", text));
      ++restarts_;
      return RestartJob(decision.delay);
    case ExitAction::kFailJob:
      return Fail(decision.job_exit_code == 0 ? kExitFailed : decision.job_exit_code, text);
  }
}

// One that is not wanted any more when its delay is over is forgotten instead.
void Supervisor::StartAgain(const std::string& name) {
  if (stopping_with_) return;
  Member& member = members_.at(name);
  if (member.role == JobRole::kCoordinator) return RestartCoordinator();
  if (!is_answering_) {  // nobody would welcome it
    restart_timers_[name] = loop_.RunAfter(kPollPeriod, [this, name] { StartAgain(name); });
    return;
  }
  if (!IsWanted(member)) return Forget(name);
  if (member.role == JobRole::kWorker) return StartWorker(member.index);
  StartServer(member.index);
}

bool Supervisor::IsWanted(const Member& member) const {
  const uint32_t wanted =
      member.role == JobRole::kWorker ? status_.workers_wanted : status_.servers_wanted;
  // Before the first answer those of the manifest are.
  return wanted == 0 || static_cast<uint32_t>(member.index) < wanted;
}

void Supervisor::Forget(const std::string& name) {
  const bool is_worker = members_.at(name).role == JobRole::kWorker;
  members_.erase(name);
  if (is_worker) FinishIfDone();
}

void Supervisor::FinishIfDone() {
  const bool all_done = std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.role != JobRole::kWorker || entry.second.is_done;
  });
  if (!all_done) return;
  loop_.Cancel(deadline_timer_);
  Finish(loop_.Now() + kStatisticsGrace);
}

// The coordinator goes before the servers, whom it tells to stop: one that is left behind would
// take the end of its servers for their death.
void Supervisor::StopInOrder(int exit_code) {
  Stop(exit_code,
       {{{JobRole::kWorker}, kStopGrace},
        {{JobRole::kCoordinator}, kStopGrace},
        {{JobRole::kServer}, kStopGrace}});
}

// The report's contributors are those that the servers know of, and servers report once a second.
void Supervisor::Finish(SteadyTime give_up) {
  AskStatus([this, give_up](std::optional<JobStatus> status) {
    if (stopping_with_ || is_failing_) return;
    const bool answers = status.has_value();
    if (answers) status_ = *std::move(status);
    const bool is_saved = status_.checkpoint.finished == status_.checkpoint.requested;
    const bool is_complete = HasLastStatistics(status_) && is_saved;
    const Duration more = answers && !is_saved ? kSaveGrace : Duration(0);
    if (!is_complete && loop_.Now() < give_up + more) {
      finish_timer_ = loop_.RunAfter(kStatisticsPeriod, [this, give_up] { Finish(give_up); });
      return;
    }
    StopInOrder(0);
  });
}

// ---- the coordinator's status ----

ControlTarget Supervisor::Coordinator() const {
  return {.address = coordinator_address_, .tls = CurrentIdentity(options_.tls)};
}

void Supervisor::AskStatus(std::function<void(std::optional<JobStatus>)> then) {
  asking_->Post([coordinator = Coordinator(),
                 then = std::move(then),
                 self = std::weak_ptr<Supervisor*>(self_),
                 &loop = loop_] {
    absl::StatusOr<JobStatus> answer = FetchStatus(coordinator, Deadline::After(kAnswerTimeout));
    auto status = std::make_shared<std::optional<JobStatus>>();
    if (answer.ok()) *status = *std::move(answer);
    loop.Post([self, then, status] {
      if (const auto supervisor = self.lock()) then((*supervisor)->Complete(std::move(*status)));
    });
  });
}

// Adds what earlier coordinators said. One that is still hearing its members has no answer yet.
std::optional<JobStatus> Supervisor::Complete(std::optional<JobStatus> status) {
  if (status) answered_at_ = loop_.Now();
  if (status && status->phase == JobPhase::kRecovering) status.reset();
  const Member& coordinator = members_.at("coordinator");
  is_answering_ = status.has_value() && coordinator.is_running();
  if (!status) return status;
  if (!trained_since_ && status->phase != JobPhase::kStarting)
    trained_since_ = loop_.Now() - FromSeconds(status->seconds);
  if (!earlier_) return status;
  status = WithEarlier(*earlier_, *std::move(status));
  if (trained_since_ && std::exchange(counting_from_, status->term) != status->term)
    trained_before_ = Since(*trained_since_) - FromSeconds(status->seconds);
  status->seconds += ToSeconds(trained_before_);
  return status;
}

void Supervisor::Poll() {
  poll_timer_ = loop_.RunAfter(kPollPeriod, [this] {
    AskStatus([this](std::optional<JobStatus> status) {
      if (stopping_with_) return;
      OnStatus(std::move(status));
      if (!stopping_with_) Poll();
    });
  });
}

void Supervisor::OnStatus(std::optional<JobStatus> status) {
  if (stopping_with_ || is_failing_) return;
  if (!status) return OnSilence();
  const bool has_begun =
      status_.phase == JobPhase::kStarting && status->phase != JobPhase::kStarting;
  status_ = *std::move(status);
  has_saved_ = has_saved_ || status_.checkpoint.saved > 0;
  if (status_.phase == JobPhase::kFailed) return Fail(FailureExitCode(), status_.failure);
  if (has_begun) {
    loop_.Cancel(deadline_timer_);
    if (const auto limit = job_.spec.active_deadline) {
      deadline_timer_ = loop_.RunAfter(*limit, [this, limit = *limit] {
        Fail(kExitFailed,
             absl::StrCat("ran for ", limit.count(), " s (spec.activeDeadlineSeconds)"));
      });
    }
  }
  FollowWorkers();
  FollowServers();
  if (options_.shows_progress) ShowProgress();
}

void Supervisor::OnSilence() {
  Member& coordinator = members_.at("coordinator");
  if (!coordinator.is_running() || Since(answered_at_) < kSilenceMax) return;
  answered_at_ = loop_.Now();
  Print(
      absl::StrCat("pushpull: coordinator at ", coordinator_address_, " does not answer; killed"));
  coordinator.process->KillGroup();
}

// Starts the workers that are wanted and not there, takes from the status what only the workers
// themselves know, and ends those that the coordinator has given up: a process that is stopped or
// hangs would never end by itself.
void Supervisor::FollowWorkers() {
  bool has_changed = false;
  for (int i = 0; static_cast<uint32_t>(i) < status_.workers_wanted && !stopping_with_; ++i) {
    const auto it = members_.find(absl::StrCat("worker-", i));
    if (it == members_.end() || WasReleased(it->second)) StartWorker(i);
  }
  for (const WorkerStatus& worker : status_.workers) {
    const auto it = members_.find(ToString(worker.worker));
    if (it == members_.end()) continue;
    Member& member = it->second;
    if (!member.is_running()) continue;
    const auto pid = static_cast<pid_t>(worker.pid);
    // The worker may be a child of a shell; one of an earlier start is in no group of ours.
    if (pid <= 0 || getpgid(pid) != member.process->pid()) continue;
    has_changed |= member.endpoint.pid != pid || member.endpoint.metrics != worker.metrics_address;
    member.endpoint.pid = pid;
    member.endpoint.metrics = worker.metrics_address;
    const bool is_given_up = !worker.is_alive && !worker.has_left && !worker.was_released;
    if (is_given_up) member.process->KillGroup();
  }
  if (has_changed) UpdateEndpoints();
}

// A worker that ended in order because it was not wanted at that moment.
bool Supervisor::WasReleased(const Member& worker) const {
  if (worker.is_running() || !worker.is_done) return false;
  const auto it =
      std::find_if(status_.workers.begin(), status_.workers.end(), [&](const WorkerStatus& status) {
        return status.worker.value() == static_cast<uint32_t>(worker.index);
      });
  return it != status_.workers.end() && it->was_released && !it->is_alive;
}

// Starts the servers that are wanted and not there, and ends one that the coordinator has lost and
// that does not notice. One that was released ends by itself.
void Supervisor::FollowServers() {
  if (!has_started_workers_) return;
  for (int i = 0; static_cast<uint32_t>(i) < status_.servers_wanted && !stopping_with_; ++i) {
    if (!members_.contains(absl::StrCat("server-", i))) StartServer(i);
  }
  for (auto& [name, member] : members_) {
    if (member.role != JobRole::kServer || !member.is_running()) continue;
    if (IsListed(member)) {
      member.is_listed = true;
      member.unlisted_since.reset();
    } else if (member.is_listed && !IsAwaited(member)) {
      if (!member.unlisted_since) member.unlisted_since = loop_.Now();
      if (Since(*member.unlisted_since) >= kFailureGrace) member.process->KillGroup();
    }
  }
}

bool Supervisor::IsListed(const Member& server) const {
  return std::any_of(status_.servers.begin(), status_.servers.end(), [&](const auto& status) {
    return status.is_alive && status.server.value() == static_cast<uint32_t>(server.index) &&
           static_cast<int64_t>(status.pid) == server.endpoint.pid;
  });
}

// What it holds is nowhere else: the coordinator waits for it to come back.
bool Supervisor::IsAwaited(const Member& server) const {
  const auto is_it = [&](ServerId id) { return id.value() == static_cast<uint32_t>(server.index); };
  return std::any_of(
      status_.state_losses.begin(), status_.state_losses.end(), [&](const StateLoss& loss) {
        return loss.is_waiting && std::any_of(loss.servers.begin(), loss.servers.end(), is_it);
      });
}

void Supervisor::ShowProgress() {
  const SteadyTime now = loop_.Now();
  if (!is_terminal_ && now - shown_at_ < kLinePeriod) return;
  const std::string line = FormatProgress(status_, status_shown_);
  shown_at_ = now;
  status_shown_ = status_;
  if (!is_terminal_) return Print(line);
  std::fprintf(stderr, "\r\033[K%s", FitTerminal(line).c_str());
  std::fflush(stderr);
  has_progress_line_ = true;
}

// ---- failure and stop ----

void Supervisor::FailWithReason(const std::string& text) {
  if (stopping_with_ || std::exchange(is_failing_, true)) return;
  CancelTimers();
  AwaitReason(text, loop_.Now() + kReasonGrace);
}

// The coordinator's text names peer, tensor and step once the workers have told it.
void Supervisor::AwaitReason(const std::string& text, SteadyTime give_up) {
  AskStatus([this, text, give_up](std::optional<JobStatus> status) {
    if (stopping_with_) return;
    if (status) status_ = *std::move(status);
    if (status_.phase == JobPhase::kFailed || loop_.Now() >= give_up) {
      return Fail(FailureExitCode(), status_.failure.empty() ? text : status_.failure);
    }
    poll_timer_ =
        loop_.RunAfter(kReasonPeriod, [this, text, give_up] { AwaitReason(text, give_up); });
  });
}

void Supervisor::Fail(int exit_code, const std::string& text) {
  if (stopping_with_) return;
  failure_ = text;
  ClearProgressLine();
  std::fprintf(stderr, "pushpull: job %s failed: %s\n", job_.metadata.name.c_str(), text.c_str());
  Stop(exit_code,
       {{{JobRole::kWorker, JobRole::kServer}, kFailureGrace},
        {{JobRole::kCoordinator}, kFailureGrace}});
}

void Supervisor::RestartJob(Duration delay) {
  start_again_after_ = delay;
  Stop(kExitFailed,
       {{{JobRole::kWorker, JobRole::kServer}, kStopGrace}, {{JobRole::kCoordinator}, kStopGrace}});
}

void Supervisor::OnSignal(int signal) {
  const bool is_first = (!stopping_with_ && !is_saving_) || start_again_after_;
  start_again_after_.reset();
  if (!is_first) {
    for (const auto& [name, member] : members_) {
      if (member.is_running()) member.process->KillGroup();
    }
    if (!stopping_with_) StopInOrder(128 + signal);
    return;
  }
  Print("pushpull: stopping");
  failure_ = absl::StrCat("stopped by signal ", signal);
  if (MaySave()) return SaveThenStop(128 + signal);
  StopInOrder(128 + signal);
}

// ---- stop ----

void Supervisor::Stop(int exit_code, std::vector<StopStage> stages) {
  stopping_with_ = exit_code;
  stop_stages_ = std::move(stages);
  is_stage_asked_ = false;
  CancelTimers();
  StopNext();
}

std::vector<ChildProcess*> Supervisor::RunningIn(const StopStage& stage) const {
  std::vector<ChildProcess*> running;
  for (const auto& [name, member] : members_) {
    const bool is_in_stage =
        std::find(stage.roles.begin(), stage.roles.end(), member.role) != stage.roles.end();
    if (is_in_stage && member.is_running()) running.push_back(member.process.get());
  }
  return running;
}

// Called at the beginning and whenever a process has ended.
void Supervisor::StopNext() {
  while (!stop_stages_.empty()) {
    const std::vector<ChildProcess*> running = RunningIn(stop_stages_.front());
    if (running.empty()) {
      stop_stages_.erase(stop_stages_.begin());
      is_stage_asked_ = false;
      continue;
    }
    if (std::exchange(is_stage_asked_, true)) return;
    for (const ChildProcess* process : running) {
      process->EndNow();
      process->Signal(SIGCONT);  // a stopped one could not end
    }
    loop_.Cancel(kill_timer_);
    kill_timer_ = loop_.RunAfter(stop_stages_.front().grace, [this] {
      for (const ChildProcess* process : RunningIn(stop_stages_.front())) process->KillGroup();
    });
    return;
  }
  loop_.Cancel(kill_timer_);
  End();
}

void Supervisor::End() {
  if (start_again_after_) {
    const Duration delay = *std::exchange(start_again_after_, std::nullopt);
    stopping_with_.reset();
    is_saving_ = false;
    status_ = {};
    status_.job = job_.metadata.name;
    has_started_workers_ = false;
    is_answering_ = false;
    coordinator_address_.clear();
    earlier_.reset();
    trained_since_.reset();
    lost_servers_.clear();
    std::erase_if(members_, [this](const auto& entry) {
      const Member& member = entry.second;
      return member.role == JobRole::kServer ? member.index >= job_.spec.servers.replicas
                                             : member.index >= job_.spec.workers.replicas;
    });
    for (auto& [name, member] : members_) member.is_ready = member.is_done = false;
    deadline_timer_ = loop_.RunAfter(delay, [this] { Start(); });
    return;
  }
  ClearProgressLine();
  workdir_.RemoveEndpoints();
  WriteReport();
  on_end_(*stopping_with_);
}

void Supervisor::WriteReport() {
  const RunOutcome outcome{.status = status_,
                           .has_succeeded = *stopping_with_ == 0,
                           .was_stopped = *stopping_with_ > 128,
                           .seconds = ToSeconds(Since(began_at_)),
                           .restarts = restarts_,
                           .failure = failure_};
  std::fprintf(stderr, "%s", FormatSummary(outcome, workdir_.path() + "/logs").c_str());
  if (options_.report_path.empty()) return;
  const absl::Status written = WriteFileAtomically(options_.report_path, FormatReport(outcome));
  if (written.ok()) return;
  std::fprintf(stderr, "pushpull: report: %s\n", std::string(written.message()).c_str());
  if (*stopping_with_ == 0) stopping_with_ = kExitNotReachable;
}

void Supervisor::UpdateEndpoints() {
  std::vector<Endpoint> endpoints;
  for (const auto& [name, member] : members_) {
    if (member.is_running()) endpoints.push_back(member.endpoint);
  }
  // A full disk must not end the job; `status` and scrapers then see the list of before.
  const absl::Status written = workdir_.WriteEndpoints(endpoints);
  if (!written.ok()) std::fprintf(stderr, "pushpull: %s\n", std::string(written.message()).c_str());
}

void Supervisor::Print(const std::string& line) {
  ClearProgressLine();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Supervisor::ClearProgressLine() {
  if (!std::exchange(has_progress_line_, false)) return;
  std::fprintf(stderr, "\r\033[K");
}

}  // namespace pushpull
