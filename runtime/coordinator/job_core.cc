// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_core.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

std::vector<ServerStatus> ServersOf(const JobState& job) {
  std::vector<ServerStatus> servers;
  for (const auto& [id, server] : job.members.servers()) {
    servers.push_back({.server = id,
                       .is_alive = true,
                       .data_address = server.info.data_address,
                       .metrics_address = server.info.metrics_address,
                       .pid = server.info.pid,
                       .stats = job.statistics.Server(id),
                       .rack = server.info.rack});
  }
  return servers;
}

std::vector<WorkerStatus> WorkersOf(const WorkerRoster& roster,
                                    const View& view,
                                    const JobStatistics& statistics,
                                    SteadyTime now) {
  std::vector<WorkerStatus> workers;
  for (const auto& [id, entry] : roster.entries()) {
    workers.push_back(entry);
    workers.back().is_member = view.Find(id) != nullptr;
    workers.back().step = statistics.WorkerStep(id);
    workers.back().steps_made = statistics.StepsMade(id, entry.is_alive);
    workers.back().activity = statistics.Activity(id);
    workers.back().joined_seconds = ToSeconds(roster.JoinedAgo(id, now));
  }
  return workers;
}

// The steps that the last checkpoint proves to be finished, as programs count them: workers'
// reports are up to a heartbeat older. Where steps are not those of all workers, it proves none.
Step SavedSteps(const JobStatus& status) {
  const Consistency& mode = status.consistency;
  const uint64_t saved = status.checkpoint.step.value();
  if (!mode.is_sync()) return Step{};
  return Step{saved - std::min(saved, mode.steps_skipped)};
}

TraceCollector::Workers WorkerProcesses(const MemberRegistry& members) {
  TraceCollector::Workers processes;
  for (const auto& [id, worker] : members.workers()) processes[id] = worker.info.incarnation;
  return processes;
}

bool IsRegistered(const MemberRegistry& members, SessionId session) {
  return members.ServerAt(session) || members.WorkerAt(session);
}

// The error for a session that already has a role, which it keeps until it ends.
absl::Status HasRoleAlready(const MemberRegistry& members, SessionId session) {
  const std::optional<ServerId> server = members.ServerAt(session);
  return absl::FailedPreconditionError(
      absl::StrCat("the session of ",
                   server ? ToString(*server) : ToString(*members.WorkerAt(session)),
                   " has registered again: a session has one role, connect anew for another"));
}

bool IsRegistration(const FromMember& message) {
  return std::holds_alternative<RegisterServer>(message) ||
         std::holds_alternative<RegisterWorker>(message);
}

}  // namespace

// ---- events ----

void JobCore::Begin(SteadyTime now) {
  job_.now = now;
  job_.members.Excuse(own_silence_.OnEvent(now));
}

std::vector<Command> JobCore::OnMessage(SteadyTime now,
                                        SessionId session,
                                        const FromMember& message) {
  Begin(now);
  if (is_stopped_) return {};
  job_.members.OnReceived(now, session);
  const bool was_registered = IsRegistered(job_.members, session);
  if (was_registered && IsRegistration(message)) {
    job_.outbox.Refuse(session, HasRoleAlready(job_.members, session));
    return Settle();
  }
  if (!was_registered && !IsRegistration(message)) {
    job_.outbox.Refuse(session,
                       absl::FailedPreconditionError("a session begins with a registration"));
    return Settle();
  }
  if (const std::optional<SessionId> closing = job_.members.EarlierSessionOf(message))
    if (StepsDownOver(*closing)) return job_.outbox.Take();
  std::visit(
      [&](const auto& alternative) {
        if constexpr (requires { On(session, alternative); }) {
          On(session, alternative);
        } else {
          members_.Receive(session, alternative);
        }
      },
      message);
  if (!was_registered && IsRegistered(job_.members, session)) saver_.SendCaptureTo(session);
  return Settle();
}

std::vector<Command> JobCore::OnClosed(SteadyTime now, SessionId session, const absl::Status& why) {
  Begin(now);
  if (is_stopped_) return {};
  if (StepsDownOver(session)) return job_.outbox.Take();
  members_.Lose(session, absl::StrCat("its connection closed (", why.message(), ")"));
  return Settle();
}

// A member that closed its connection because it got no answer is alive and will reconnect.
bool JobCore::StepsDownOver(SessionId closing) {
  const std::optional<Duration> silence = own_silence_.Recent(job_.now);
  if (!silence || !CountsAsLost(closing)) return false;
  StepDown(absl::StrFormat("it stood still for %.1f s, and connections of its members have closed",
                           ToSeconds(*silence)));
  return true;
}

// Whether the end of this session is the loss of a member rather than its departure.
bool JobCore::CountsAsLost(SessionId session) const {
  if (job_.lifecycle.is_over()) return false;
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (worker) return !job_.members.Find(*worker)->is_leaving;
  const std::optional<ServerId> server = job_.members.ServerAt(session);
  return server && !members_.resizer().IsReleased(*server);
}

// Its successor asks the members, which this coordinator would declare lost.
void JobCore::StepDown(const std::string& why) {
  is_stopped_ = true;
  job_.outbox.Add(pushpull::StepDown{why});
}

std::vector<Command> JobCore::OnTick(SteadyTime now) {
  Begin(now);
  if (is_stopped_) return {};
  DropSilent();
  if (is_stopped_) return job_.outbox.Take();
  job_.lifecycle.OnTick(now);
  WatchStall();
  WatchCulprits();
  members_.OnTick();
  WatchRacks();
  if (job_.lifecycle.has_started()) saver_.OnTick();
  if (job_.lifecycle.is_running()) saver_.FollowStep();
  takedown_.OnTick();
  traces_.KeepOnly(WorkerProcesses(job_.members));
  traces_.OnTick(now);
  return Settle();
}

void JobCore::DropSilent() {
  const Duration limit = job_.options.peer_timeout;
  const std::vector<SessionId> silent = job_.members.FindSilent(job_.now, limit);
  if (silent.empty()) return;
  const auto count = [this](const std::vector<SessionId>& sessions) {
    return static_cast<size_t>(
        absl::c_count_if(sessions, [this](SessionId id) { return CountsAsLost(id); }));
  };
  const size_t unheard = count(job_.members.FindSilent(job_.now, limit / 2));
  const size_t members = count(job_.members.sessions());
  if (OwnSilence::IsCutOff(unheard, members)) {
    return StepDown(absl::StrFormat("%d of its %d members have been silent for up to %g s",
                                    unheard,
                                    members,
                                    ToSeconds(limit)));
  }
  for (const SessionId session : silent)
    members_.Drop(session, absl::StrCat("silent for ", ToSeconds(limit), " s"));
}

std::vector<Command> JobCore::OnStop(Successor successor) {
  const bool has_stepped_down = std::exchange(is_stopped_, true);
  if (has_stepped_down) return job_.outbox.Take();
  const bool is_taken_down =
      takedown_.has_begun() && (HasNobodyToServe() || takedown_.IsOfWholeJob());
  if (successor == Successor::kMayCome && is_taken_down && job_.lifecycle.is_running())
    job_.outbox.Add(takedown_.Describe());
  if (successor == Successor::kNone || job_.lifecycle.has_succeeded()) {
    StopAll(absl::OkStatus());
  } else if (HasNobodyToServe()) {
    job_.outbox.SendToServers(Stop{absl::OkStatus(), job_.options.term});
  }
  return job_.outbox.Take();
}

std::vector<Command> JobCore::BeginLeave(SteadyTime now) {
  Begin(now);
  if (is_stopped_) return {};
  takedown_.Begin();
  return Settle();
}

bool JobCore::HasNobodyToServe() const {
  if (job_.lifecycle.has_succeeded()) return true;
  const std::vector<SessionId> sessions = job_.members.sessions();
  if (members_.is_recovering()) return sessions.empty();
  return absl::c_all_of(sessions, [this](SessionId session) {
    if (const std::optional<ServerId> server = job_.members.ServerAt(session))
      return members_.resizer().IsLeaving(*server);
    // The next coordinator admits it.
    return takedown_.has_begun() &&
           members_.contributors().active().Find(*job_.members.WorkerAt(session)) == nullptr;
  });
}

// Carries an event over to the parts that it was not addressed to. Members come first, because
// saves depend on them; a failure, whichever part found it, is announced last.
std::vector<Command> JobCore::Settle() {
  for (const auto& [session, leave] : saver_.TakeLeaves()) members_.Receive(session, leave);
  members_.Settle(job_.saved.values_only ? "" : job_.saved.folder, saver_.is_idle());
  if (job_.lifecycle.has_started()) saver_.Start();
  if (job_.lifecycle.is_running() && members_.IsComplete()) {
    job_.lifecycle.Succeed(job_.now);
    saver_.EndJob();
  }
  saver_.UpdateMembers();
  takedown_.Settle();
  if (job_.lifecycle.has_failed() && !std::exchange(has_announced_failure_, true)) {
    job_.outbox.Warn(absl::StrCat("the job fails: ", job_.lifecycle.failure()));
    saver_.GiveUp();
    StopAll(absl::UnavailableError(job_.lifecycle.failure()));
  }
  return job_.outbox.Take();
}

void JobCore::StopAll(const absl::Status& status) {
  for (const SessionId session : job_.members.sessions())
    job_.outbox.Send(session, Stop{status, job_.options.term});
}

// ---- messages ----

void JobCore::On(SessionId session, const Heartbeat& message) {
  const std::optional<ServerId> server = job_.members.ServerAt(session);
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (const auto* stats = std::get_if<ServerStats>(&message.stats); stats != nullptr && server) {
    job_.statistics.OnServer(*server, *stats);
    const bool has_news = job_.stalls.OnServer(*server, stats->stall);
    job_.culprits.OnServer(job_.now, *server, stats->busy_seconds);
    if (has_news) WatchStall();
  }
  if (const auto* stats = std::get_if<WorkerStats>(&message.stats); stats != nullptr && worker) {
    job_.statistics.OnWorker(*worker, *stats);
    job_.culprits.OnWorker(job_.now, *worker, stats->costs);
    job_.stalls.OnWorker(job_.now, *worker, stats->activity);
    members_.contributors().OnProgress(*worker, *stats);
  }
}

// A worker that does not push is not dead while it sends heartbeats: spec.sync.onStall says how to
// treat it.
void JobCore::WatchStall() {
  for (auto& [worker, waits] : job_.stalls.TakeWaits(job_.now))
    job_.outbox.Send(worker, std::move(waits));
  const std::optional<StallWatch::News> news = job_.stalls.Take(job_.now);
  if (!news || !job_.lifecycle.is_running()) return;
  job_.outbox.Add(Announce{news->has_begun, news->text});
  if (job_.options.on_stall == StallPolicy::kFail && news->has_begun) {
    job_.Fail({.text = absl::StrCat(news->text, " (spec.sync.onStall: Fail)")});
  } else if (job_.options.on_stall == StallPolicy::kDropWorker) {
    for (const WorkerId worker : news->missing) {
      if (const auto* member = job_.members.Find(worker)) {
        members_.Drop(member->session,
                      absl::StrCat(news->text, " (spec.sync.onStall: DropWorker)"));
      }
    }
  }
}

// Decides only once nothing is moving.
void JobCore::WatchRacks() {
  const ReplicaAgreement& replicas = members_.shards().replicas();
  if (replicas.shards_moving() > 0) return;
  const size_t shards = replicas.shards_in_one_rack();
  if (std::exchange(are_in_one_rack_, shards > 0) == (shards > 0)) return;
  if (shards == 0) return job_.outbox.Log("every shard has replicas in several racks");
  job_.outbox.Warn(absl::StrCat(
      shards,
      " shards have all their replicas in one rack: no server of another rack can take one"));
}

void JobCore::WatchCulprits() {
  if (!job_.lifecycle.is_running()) return;
  job_.culprits.Update(job_.now);
  for (const CulpritWatch::News& news : job_.culprits.Take())
    job_.outbox.Add(Announce{news.has_begun, news.text});
}

// A failure reported by a server ends the job; in a job without servers, so does a worker's.
// Otherwise a worker's describes the outcome of its own operations: it adds tensor
// and step to the loss of a server, and means nothing while no server is lost.
void JobCore::On(SessionId session, const Failure& message) {
  const std::optional<ServerId> server = job_.members.ServerAt(session);
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (!server && !worker) return;
  const std::string who = server ? ToString(*server) : ToString(*worker);
  const std::string text = absl::StrCat(who, ": ", message.status.message());
  const bool is_fatal = server || job_.options.consistency.is_ring();
  if (!job_.lifecycle.AddDetail(text) && is_fatal) job_.Fail({.text = text});
}

void JobCore::On(SessionId session, const Leave& message) {
  if (!saver_.KeepLeave(session, message)) members_.Receive(session, message);
}

// A worker sends it only to say that it cannot read the checkpoint with which a ring begins.
void JobCore::On(SessionId session, const Restored& message) {
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (!worker || !job_.options.consistency.is_ring()) return members_.Receive(session, message);
  if (message.status.ok()) return;
  job_.Fail({absl::StrCat(
                 ToString(*worker), " cannot restore the checkpoint: ", message.status.message()),
             kExitNotReachable});
}

void JobCore::On(SessionId session, const Captured& message) {
  if (members_.is_recovering()) return;  // from a save that ended with the earlier coordinator
  if (const std::optional<ServerId> server = job_.members.ServerAt(session))
    return saver_.OnCaptured(*server, message);
  if (const std::optional<WorkerId> worker = job_.members.WorkerAt(session))
    return saver_.OnCaptured(*worker, message);
  job_.outbox.Refuse(session, absl::FailedPreconditionError("only a member can capture"));
}

void JobCore::On(SessionId session, const TraceReport& message) {
  if (const std::optional<WorkerId> worker = job_.members.WorkerAt(session))
    traces_.OnReport(*worker, message);
}

void JobCore::On(SessionId session, const RingStopped& message) {
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (worker && !members_.is_recovering()) members_.contributors().OnStopped(*worker, message);
}

void JobCore::On(SessionId session, const RingNews& message) {
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (worker && !members_.is_recovering()) members_.contributors().OnNews(*worker, message);
}

// ---- user requests ----

absl::Status JobCore::CheckKnown() const {
  if (is_stopped_) {
    return absl::UnavailableError(
        absl::StrCat("job ",
                     job_.options.settings.job,
                     ": this coordinator is ending, try again in a few seconds"));
  }
  if (!members_.is_recovering() || job_.lifecycle.is_over()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("job ",
                   job_.options.settings.job,
                   ": its new coordinator is still collecting its members, try again in a few "
                   "seconds"));
}

absl::StatusOr<std::vector<Command>> JobCore::Resize(SteadyTime now, const JobSize& size) {
  PUSHPULL_RETURN_IF_ERROR(CheckKnown());
  Begin(now);
  PUSHPULL_RETURN_IF_ERROR(members_.Resize(size));
  return Settle();
}

absl::StatusOr<std::vector<Command>> JobCore::SetMode(SteadyTime now, const ModeChange& change) {
  PUSHPULL_RETURN_IF_ERROR(CheckKnown());
  Begin(now);
  PUSHPULL_RETURN_IF_ERROR(members_.SetMode(change));
  return Settle();
}

absl::StatusOr<std::vector<Command>> JobCore::SaveCheckpoint(SteadyTime now) {
  PUSHPULL_RETURN_IF_ERROR(CheckKnown());
  Begin(now);
  if (job_.options.checkpoint) {
    PUSHPULL_RETURN_IF_ERROR(job_.lifecycle.CheckRunning());
    PUSHPULL_RETURN_IF_ERROR(takedown_.CheckHasValues());
  }
  PUSHPULL_RETURN_IF_ERROR(saver_.Request());
  return Settle();
}

absl::StatusOr<std::vector<Command>> JobCore::StartTrace(SteadyTime now,
                                                         const TraceRequest& request) {
  PUSHPULL_RETURN_IF_ERROR(CheckKnown());
  Begin(now);
  PUSHPULL_RETURN_IF_ERROR(job_.lifecycle.CheckRunning());
  PUSHPULL_ASSIGN_OR_RETURN(const TraceSteps order,
                            traces_.Start(request, WorkerProcesses(job_.members), now));
  job_.outbox.SendToWorkers(order);
  job_.outbox.Log(absl::StrFormat(
      "trace of the next %d steps of %d workers", request.steps, job_.members.workers().size()));
  return Settle();
}

std::vector<Command> JobCore::OnManifest(SteadyTime now,
                                         uint64_t attempt,
                                         const absl::Status& written) {
  Begin(now);
  saver_.OnManifest(attempt, written);
  return Settle();
}

std::vector<Command> JobCore::OnCleared(SteadyTime now, uint64_t attempt) {
  Begin(now);
  saver_.OnCleared(attempt);
  return Settle();
}

std::vector<Command> JobCore::OnProbed(SteadyTime now, const absl::Status& written) {
  Begin(now);
  saver_.OnProbed(written);
  return Settle();
}

JobStatus JobCore::Status(SteadyTime now) const {
  const ReplicaAgreement& replicas = members_.shards().replicas();
  const Contributors& contributors = members_.contributors();
  const Resizer& resizer = members_.resizer();
  JobStatus status;
  job_.lifecycle.AddTo(status, now);
  job_.statistics.AddTo(status);
  if (members_.is_recovering() && status.phase == JobPhase::kStarting)
    status.phase = JobPhase::kRecovering;
  status.checkpoint = saver_.status();
  status.began_step = job_.began_step;
  status.step_before = job_.step_before;
  status.steps_lost = job_.steps_lost;
  status.term = job_.options.term;
  status.epoch = replicas.epoch();
  status.desired_servers = resizer.desired().servers;
  status.desired_workers = resizer.desired().workers;
  status.global_batch = resizer.desired().global_batch;
  status.shards_moving = replicas.shards_moving();
  status.shards_in_one_rack = replicas.shards_in_one_rack();
  status.resizes = resizer.resizes();
  status.state_losses = members_.losses().losses();
  status.view = contributors.active().number;
  status.consistency = contributors.active().consistency;
  status.step = std::max(status.step, SavedSteps(status));
  status.is_mode_changing = contributors.mode_switch().is_under_way();
  status.mode_problem = contributors.mode_switch().problem();
  status.stall = job_.stalls.Current(now);
  status.servers = ServersOf(job_);
  status.workers = WorkersOf(members_.roster(), contributors.active(), job_.statistics, now);
  if (job_.lifecycle.is_running()) job_.culprits.AddTo(status);
  return status;
}

}  // namespace pushpull
