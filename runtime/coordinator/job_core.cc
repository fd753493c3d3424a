// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

std::vector<ServerStatus> ServersOf(const MemberRegistry& registry,
                                    const JobStatistics& statistics) {
  std::vector<ServerStatus> servers;
  for (const auto& [id, server] : registry.servers()) {
    servers.push_back({.server = id,
                       .is_alive = true,
                       .data_address = server.info.data_address,
                       .metrics_address = server.info.metrics_address,
                       .pid = server.info.pid,
                       .stats = statistics.Server(id)});
  }
  return servers;
}

std::vector<WorkerStatus> WorkersOf(const WorkerRoster& roster,
                                    const View& view,
                                    const JobStatistics& statistics) {
  std::vector<WorkerStatus> workers;
  for (const auto& [id, entry] : roster.entries()) {
    workers.push_back({.worker = id,
                       .is_alive = entry.is_alive,
                       .is_member = view.Find(id) != nullptr,
                       .has_left = entry.has_left,
                       .was_released = entry.was_released,
                       .metrics_address = entry.info.metrics_address,
                       .pid = entry.info.pid,
                       .step = statistics.WorkerStep(id)});
  }
  return workers;
}

}  // namespace

JobCore::JobCore(JobCoreOptions options)
    : options_(std::move(options)),
      registry_(options_.peer_timeout),
      outbox_(registry_, options_.term),
      lifecycle_(options_.settings.job, options_.failure_grace),
      members_(options_, registry_, lifecycle_, statistics_, stalls_, outbox_),
      saver_(options_, registry_, members_, statistics_, outbox_) {}

// ---- events ----

std::vector<Command> JobCore::OnMessage(SteadyTime now,
                                        SessionId session,
                                        const FromMember& message) {
  now_ = now;
  registry_.OnReceived(now, session);
  const bool was_registered = registry_.IsRegistered(session);
  std::visit(
      [&](const auto& alternative) {
        if constexpr (requires { On(session, alternative); }) {
          On(session, alternative);
        } else {
          members_.Receive(now, session, alternative);
        }
      },
      message);
  if (!was_registered && registry_.IsRegistered(session)) saver_.SendCaptureTo(session);
  return Settle();
}

std::vector<Command> JobCore::OnClosed(SteadyTime now, SessionId session, const absl::Status& why) {
  now_ = now;
  if (is_stopped_) return {};
  members_.Lose(now, session, absl::StrCat("its connection closed (", why.message(), ")"));
  return Settle();
}

std::vector<Command> JobCore::OnTick(SteadyTime now) {
  now_ = now;
  if (is_stopped_) return {};
  for (const SessionId session : registry_.FindSilent(now)) {
    members_.Drop(
        now, session, absl::StrCat("silent for ", ToSeconds(options_.peer_timeout), " s"));
  }
  lifecycle_.OnTick(now);
  members_.OnTick(now);
  if (lifecycle_.has_started()) saver_.OnTick(now);
  return Settle();
}

std::vector<Command> JobCore::OnStop() {
  is_stopped_ = true;
  if (IsNeededNoMore()) StopAll(absl::OkStatus());
  return outbox_.Take();
}

bool JobCore::IsNeededNoMore() const {
  if (lifecycle_.has_succeeded()) return true;
  const std::vector<SessionId> sessions = registry_.sessions();
  if (members_.is_recovering()) return sessions.empty();
  return std::all_of(sessions.begin(), sessions.end(), [this](SessionId session) {
    const std::optional<ServerId> server = registry_.ServerAt(session);
    return server && members_.resizer().IsLeaving(*server);
  });
}

// What follows from an event in the parts that it was not addressed to. Members come first: saves
// depend on them, and a failure, whatever part found it, is announced last.
std::vector<Command> JobCore::Settle() {
  members_.Settle(now_, saver_.FolderInUse(), saver_.is_idle());
  if (lifecycle_.has_started()) saver_.Start(now_);
  if (lifecycle_.is_running() && members_.IsComplete()) {
    lifecycle_.Succeed(now_);
    saver_.EndJob(now_);
  }
  saver_.UpdateMembers(now_);
  if (lifecycle_.has_failed() && !std::exchange(has_announced_failure_, true)) {
    outbox_.Warn(absl::StrCat("the job fails: ", lifecycle_.failure()));
    saver_.GiveUp();
    StopAll(absl::UnavailableError(lifecycle_.failure()));
  }
  return outbox_.Take();
}

void JobCore::StopAll(const absl::Status& status) {
  for (const SessionId session : registry_.sessions())
    outbox_.Send(session, Stop{status, options_.term});
}

// ---- messages ----

void JobCore::On(SessionId session, const Heartbeat& message) {
  const std::optional<ServerId> server = registry_.ServerAt(session);
  const std::optional<WorkerId> worker = registry_.WorkerAt(session);
  if (const auto* stats = std::get_if<ServerStats>(&message.stats); stats != nullptr && server) {
    statistics_.OnServer(*server, *stats);
    stalls_.OnServer(*server, stats->stall);
    WatchStall();
  }
  if (const auto* stats = std::get_if<WorkerStats>(&message.stats); stats != nullptr && worker) {
    statistics_.OnWorker(*worker, *stats);
    members_.OnProgress(*worker, *stats);
  }
}

// A worker that does not push is not dead while it sends heartbeats: spec.sync.onStall says what
// becomes of it.
void JobCore::WatchStall() {
  const std::optional<StallWatch::News> news = stalls_.Take();
  if (!news || !lifecycle_.is_running()) return;
  outbox_.Add(Announce{news->has_begun, news->text});
  if (options_.on_stall == StallPolicy::kFail && news->has_begun) {
    lifecycle_.Fail(now_, {.text = absl::StrCat(news->text, " (spec.sync.onStall: Fail)")});
  } else if (options_.on_stall == StallPolicy::kDropWorker) {
    for (const WorkerId worker : news->missing) {
      if (const auto* member = registry_.Find(worker)) {
        members_.Drop(
            now_, member->session, absl::StrCat(news->text, " (spec.sync.onStall: DropWorker)"));
      }
    }
  }
}

// A server's failure ends the job. A worker's describes what became of its own operations: it adds
// tensor and step to the loss of a server, and means nothing while no server is lost.
void JobCore::On(SessionId session, const Failure& message) {
  const std::optional<ServerId> server = registry_.ServerAt(session);
  const std::optional<WorkerId> worker = registry_.WorkerAt(session);
  if (!server && !worker) return;
  const std::string who = server ? ToString(*server) : ToString(*worker);
  const std::string text = absl::StrCat(who, ": ", message.status.message());
  if (!lifecycle_.AddDetail(text) && server) lifecycle_.Fail(now_, {.text = text});
}

void JobCore::On(SessionId session, const Captured& message) {
  if (members_.is_recovering()) return;  // of a save that ended with the earlier coordinator
  if (const std::optional<ServerId> server = registry_.ServerAt(session))
    return saver_.OnCaptured(now_, *server, message);
  if (const std::optional<WorkerId> worker = registry_.WorkerAt(session))
    return saver_.OnCaptured(*worker, message);
  outbox_.Refuse(session, absl::FailedPreconditionError("only a member can capture"));
}

// ---- requests of users ----

absl::StatusOr<std::vector<Command>> JobCore::Resize(SteadyTime now, const JobSize& size) {
  now_ = now;
  PUSHPULL_RETURN_IF_ERROR(members_.Resize(now, size));
  return Settle();
}

absl::StatusOr<std::vector<Command>> JobCore::SetMode(SteadyTime now, const ModeChange& change) {
  now_ = now;
  PUSHPULL_RETURN_IF_ERROR(members_.SetMode(now, change));
  return Settle();
}

absl::StatusOr<JobCore::Save> JobCore::SaveCheckpoint(SteadyTime now) {
  now_ = now;
  if (options_.checkpoint) PUSHPULL_RETURN_IF_ERROR(lifecycle_.CheckRunning());
  PUSHPULL_ASSIGN_OR_RETURN(const uint64_t number, saver_.Request(now));
  return Save{number, Settle()};
}

std::vector<Command> JobCore::OnManifest(SteadyTime now,
                                         uint64_t attempt,
                                         const absl::Status& written) {
  now_ = now;
  saver_.OnManifest(now, attempt, written);
  return Settle();
}

std::vector<Command> JobCore::OnCleared(SteadyTime now, uint64_t attempt) {
  now_ = now;
  saver_.OnCleared(now, attempt);
  return Settle();
}

JobStatus JobCore::Status(SteadyTime now) const {
  const ReplicaAgreement& replicas = members_.shards().replicas();
  const Contributors& contributors = members_.contributors();
  const Resizer& resizer = members_.resizer();
  JobStatus status;
  lifecycle_.AddTo(status, now);
  statistics_.AddTo(status);
  if (members_.is_recovering() && status.phase == JobPhase::kStarting)
    status.phase = JobPhase::kRecovering;
  status.checkpoint = saver_.status();
  status.term = options_.term;
  status.epoch = replicas.epoch();
  status.desired_servers = resizer.desired().servers;
  status.desired_workers = resizer.desired().workers;
  status.shards_moving = replicas.shards_moving();
  status.resizes = resizer.resizes();
  status.state_losses = members_.shards().losses().losses();
  status.view = contributors.active().number;
  status.consistency = contributors.active().consistency;
  status.is_mode_changing = contributors.is_mode_changing();
  status.mode_problem = contributors.mode_problem();
  status.stall = stalls_.Current();
  status.servers = ServersOf(registry_, statistics_);
  status.workers = WorkersOf(members_.roster(), contributors.active(), statistics_);
  return status;
}

}  // namespace pushpull
