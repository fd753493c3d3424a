// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kSilentAboutCopies[] =
    "it did not report in time what it has of the shards that were lost";

absl::Status GivenUp() {
  return absl::AbortedError("this worker was given up and is no longer a member");
}

pushpull::Welcome MakeWelcome(const JobCoreOptions& options) {
  const auto heartbeat = std::chrono::duration_cast<std::chrono::milliseconds>(options.heartbeat);
  return {options.term, options.settings, static_cast<uint32_t>(heartbeat.count())};
}

std::string DescribeRecovered(const CollectedJob& job, Term term, size_t servers) {
  return absl::StrCat("recovered in term ",
                      term.value(),
                      ": ",
                      servers,
                      " servers, ",
                      job.view.members.size(),
                      " workers in view ",
                      job.view.number,
                      ", ",
                      job.entries.size(),
                      " shards");
}

Resizer::LeaveRule LeaveRuleOf(const JobLifecycle& lifecycle,
                               const ShardDirectory& shards,
                               bool is_saved) {
  using Rule = Resizer::LeaveRule;
  if (lifecycle.has_succeeded()) return is_saved ? Rule::kAtOnce : Rule::kNever;
  // Before the first entries it is not decided yet what a server has to hold.
  const bool has_entries = !shards.replicas().table().empty() && !shards.is_restoring();
  return has_entries ? Rule::kDrained : Rule::kNever;
}

uint64_t HighestView(const ServerReport& report) {
  return std::max(report.active.number, report.proposed ? report.proposed->number : 0);
}

// kUnavailable, kFailedPrecondition: the job's size cannot change now.
absl::Status CheckResizable(const std::string& job,
                            const JobLifecycle& lifecycle,
                            const ShardDirectory& shards,
                            bool is_recovering,
                            const JobSize& size) {
  if (is_recovering && !lifecycle.is_over()) {
    return absl::UnavailableError(
        absl::StrCat(job, " is being recovered: try again in a few seconds"));
  }
  const bool needs_step = size.workers || shards.is_restoring();
  if (needs_step || lifecycle.is_over()) PUSHPULL_RETURN_IF_ERROR(lifecycle.CheckRunning());
  if (shards.is_prepared()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(job, " has not started yet: wait until its servers are there"));
}

}  // namespace

JobMembers::JobMembers(const JobCoreOptions& options,
                       MemberRegistry& registry,
                       JobLifecycle& lifecycle,
                       JobStatistics& statistics,
                       StallWatch& stalls,
                       Outbox& outbox)
    : options_(options),
      registry_(registry),
      lifecycle_(lifecycle),
      statistics_(statistics),
      stalls_(stalls),
      outbox_(outbox),
      shards_(options, registry, outbox),
      contributors_(options, registry, shards_.catalog(), outbox),
      resizer_(options, registry),
      recovery_(options, registry),
      tensors_(registry, shards_, contributors_, outbox, [this] { OnPlaced(); }) {}

// ---- members that come ----

absl::Status JobMembers::CheckRegistration(Term promised, const absl::Status& index) {
  PUSHPULL_RETURN_IF_ERROR(recovery_.CheckTerm(promised));
  if (lifecycle_.has_failed()) return absl::UnavailableError(lifecycle_.failure());
  // The size is known when the recovery is over.
  return is_recovering() ? absl::OkStatus() : index;
}

void JobMembers::On(SessionId session, const RegisterServer& message) {
  const ServerId id = message.server;
  absl::Status status = CheckRegistration(message.promised, resizer_.CheckIndex(id));
  if (!status.ok()) return outbox_.Refuse(session, std::move(status));
  // The same process connects again before its old session was seen to end. Another process has to
  // wait until the old one is dead.
  const auto* known = registry_.Find(id);
  if (known != nullptr && known->info.incarnation == message.incarnation)
    Drop(now_, known->session, "it has connected anew");
  status = registry_.Check(message);
  if (!status.ok()) return outbox_.Refuse(session, std::move(status));
  registry_.Add(session, message);
  outbox_.Log(absl::StrCat(ToString(id), " registered at ", message.data_address));
  Welcome(session, message.promised);
  if (is_recovering()) return AdvanceRecovery();
  if (!shards_.is_prepared()) {
    if (registry_.HasFirstServers(options_.settings.servers)) PrepareShards();
    return;
  }
  // It gets everything that the others have received before, then shards.
  shards_.SendTableTo(session, true);
  contributors_.SendViewsTo(session);
  UpdateServers();
  shards_.AddServer(message);
  if (resizer_.has_leaving()) Retarget();
}

void JobMembers::On(SessionId session, const RegisterWorker& message) {
  const WorkerId id = message.worker;
  absl::Status status = CheckRegistration(message.promised, resizer_.CheckIndex(id));
  if (!status.ok()) return outbox_.Refuse(session, std::move(status));
  if (const auto* known = registry_.Find(id))
    Drop(now_, known->session, "replaced by a new process");
  if (!is_recovering() && contributors_.IsGivenUp(message))
    return outbox_.Refuse(session, GivenUp());
  registry_.Add(session, message);
  roster_.OnRegistered(message);
  outbox_.Log(absl::StrCat(ToString(id), " registered"));
  Welcome(session, message.promised);
  if (!shards_.is_prepared()) return;
  outbox_.Send(session, SetServers{registry_.Endpoints(), resizer_.desired()});
  shards_.SendTableTo(session, false);
}

void JobMembers::Welcome(SessionId session, Term promised) {
  outbox_.Send(session, MakeWelcome(options_));
  recovery_.OnRegistered(now_);
  // A process that no coordinator has welcomed before has nothing to report.
  if (promised > Term{}) outbox_.Send(session, Collect{options_.term});
}

// ---- members that go ----

void JobMembers::On(WorkerId worker, const Leave& message) {
  if (is_recovering()) return recovery_.Defer(worker, message);
  registry_.OnLeaving(worker);
  statistics_.OnWorker(worker, message.stats);
  const bool is_released = message.is_released && lifecycle_.has_started();
  roster_.OnLeft(worker, is_released);
  end_step_ = std::max(end_step_, message.end_step);
  outbox_.Log(absl::StrCat(ToString(worker), " leaves after step ", message.end_step.value()));
  contributors_.OnLeave(worker, message.end_step, is_released);
}

void JobMembers::On(ServerId server, const DrainRequest& /*message*/) {
  if (!resizer_.RequestDrain(server)) return;
  outbox_.Log(absl::StrCat(ToString(server), " is to end and asks to leave"));
  if (is_recovering() || lifecycle_.has_failed()) return;
  if (!shards_.is_prepared()) {  // nothing was ever placed: the next process has its place at once
    const SessionId session = registry_.Find(server)->session;
    outbox_.Send(session, Stop{absl::OkStatus(), options_.term});
    outbox_.Add(CloseSession{session});
    registry_.Remove(session);
    resizer_.OnServerGone(server);
    return;
  }
  Retarget();
  if (resizer_.IsTarget(server) && !shards_.replicas().is_drained(server)) {
    outbox_.Warn(
        absl::StrCat(ToString(server), " keeps its shards for now: nobody is there to take them"));
  }
}

void JobMembers::Drop(SteadyTime now, SessionId session, const std::string& why) {
  outbox_.Add(CloseSession{session});
  Lose(now, session, why);
}

void JobMembers::Lose(SteadyTime now, SessionId session, const std::string& why) {
  now_ = now;
  const MemberRegistry::Departed departed = registry_.Remove(session);
  if (const auto* server = std::get_if<MemberRegistry::Server>(&departed)) Lose(*server, why);
  if (const auto* worker = std::get_if<MemberRegistry::Worker>(&departed)) Lose(*worker, why);
}

void JobMembers::Lose(const MemberRegistry::Server& server, const std::string& why) {
  const ServerId id = server.info.server;
  const bool was_released = resizer_.IsReleased(id);
  const bool has_leaving = resizer_.has_leaving();
  resizer_.OnServerGone(id);
  statistics_.RetireServer(id);
  stalls_.Remove(id);
  if (is_recovering()) return recovery_.Remove(id);
  if (lifecycle_.is_over()) return;
  const std::string who = absl::StrCat(ToString(id), " (", server.info.data_address, ")");
  const View& view = contributors_.active();
  const auto [change, fatal] = shards_.RemoveServer(id, view.consistency);
  if (fatal) {
    // Workers with a push under way report next which tensor and step it was.
    return FailIf(
        JobFailure{.text = absl::StrCat(who, " is lost: ", why, fatal->empty() ? "" : "; ", *fatal),
                   .is_final = view.members.empty()});
  }
  const char* then = change.lost.empty() ? "; its shards go to others" : "";
  if (!was_released) outbox_.Warn(absl::StrCat(who, " is lost: ", why, then));
  if (was_released) outbox_.Log(absl::StrCat(who, " has gone"));
  UpdateServers();
  shards_.Apply(change);
  if (has_leaving) Retarget();
}

void JobMembers::Lose(const MemberRegistry::Worker& worker, const std::string& why) {
  const WorkerId id = worker.info.worker;
  tensors_.Forget(id);
  roster_.OnGone(id);
  statistics_.RetireWorker(id);
  if (is_recovering()) return recovery_.Remove(id);
  if (!worker.is_leaving)
    outbox_.Warn(absl::StrCat(ToString(id), " is lost: ", why, "; the others go on without it"));
  contributors_.Remove(id);
}

// ---- the way to the first step ----

void JobMembers::PrepareShards() {
  FailIf(shards_.Prepare());
  if (lifecycle_.has_failed()) return;
  Retarget();
  UpdateServers();
  // Tensors that an earlier coordinator placed, and that have no values yet.
  if (!shards_.catalog().tensors().empty()) {
    FailIf(shards_.Place());
    OnPlaced();
  }
  FailIf(tensors_.RegisterWaiting());
}

void JobMembers::On(WorkerId worker, const RegisterTensors& message) {
  tensors_.Add(worker, message);
  if (shards_.is_prepared()) FailIf(tensors_.RegisterWaiting());
}

// Servers of the first entries may be about to leave, and servers that have come since shards were
// assigned get theirs now.
void JobMembers::OnPlaced() {
  if (shards_.is_restoring() || lifecycle_.has_failed()) return;
  if (!resizer_.has_leaving() && !options_.has_colocated_servers) return;
  shards_.SetTarget(*resizer_.TakeTarget(true));
}

void JobMembers::On(ServerId server, const TensorsInstalled& message) {
  registry_.OnTensorsInstalled(server, message.table_version);
  tensors_.AdmitReady();
}

void JobMembers::On(ServerId server, const Restored& message) {
  if (lifecycle_.has_failed() || !shards_.is_restoring()) return;
  FailIf(shards_.OnRestored(server, message));
  if (lifecycle_.has_failed() || shards_.is_restoring()) return;
  OnPlaced();
  tensors_.AdmitReady();
}

// After a change of the servers that are desired, present, or about to leave. Not before the first
// entries are given out, and not when the job's values are final.
void JobMembers::Retarget() {
  if (shards_.is_restoring() || lifecycle_.has_succeeded()) return;
  if (const auto target = resizer_.TakeTarget()) shards_.SetTarget(*target);
}

// The registered servers have changed.
void JobMembers::UpdateServers() {
  SendServerList();
  contributors_.UpdateServers();
}

// ---- requests of users ----

absl::Status JobMembers::Resize(SteadyTime now, const JobSize& size) {
  now_ = now;
  PUSHPULL_RETURN_IF_ERROR(resizer_.Check(size));
  PUSHPULL_RETURN_IF_ERROR(CheckResizable(
      absl::StrCat("job ", options_.settings.job), lifecycle_, shards_, is_recovering(), size));
  const DesiredSize before = resizer_.desired();
  if (size.servers && *size.servers != before.servers) {
    outbox_.Log(absl::StrCat("servers: ", before.servers, " -> ", *size.servers));
    resizer_.ResizeServers(
        now, *size.servers, statistics_.HighestVersion(), statistics_.ResizeTotals());
  }
  if (size.workers && *size.workers != before.workers) {
    outbox_.Log(absl::StrCat("workers: ", before.workers, " -> ", *size.workers));
    for (auto& [worker, release] : resizer_.ResizeWorkers(*size.workers))
      outbox_.Send(worker, release);
  }
  // Members keep the size for the next coordinator.
  if (resizer_.desired().revision != before.revision) SendServerList();
  Retarget();  // servers beside workers come and go with them
  return absl::OkStatus();
}

absl::Status JobMembers::SetMode(SteadyTime now, const ModeChange& change) {
  now_ = now;
  PUSHPULL_ASSIGN_OR_RETURN(const Consistency desired,
                            contributors_.CheckMode(change, resizer_.desired().workers));
  PUSHPULL_RETURN_IF_ERROR(lifecycle_.CheckRunning());
  return contributors_.ChangeMode(now, desired);
}

// ---- what follows from an event ----

void JobMembers::OnTick(SteadyTime now) {
  now_ = now;
  AdvanceRecovery();
  if (resizer_.is_log_open())
    resizer_.UpdateLog(now, shards_.replicas().shards_moving(), statistics_.ResizeTotals());
}

void JobMembers::Settle(SteadyTime now, const std::string& checkpoints, bool is_saved) {
  now_ = now;
  if (contributors_.has_started() && !lifecycle_.has_started() && !lifecycle_.has_failed())
    lifecycle_.Start(now);
  AdvanceLosses(checkpoints);
  if (!lifecycle_.has_failed() && contributors_.AdvanceMode(now, lifecycle_.is_running()))
    tensors_.AdmitReady();
  ReleaseServers(is_saved);
}

// Workers that do not answer in time are removed, and the others' answers decide.
void JobMembers::AdvanceLosses(const std::string& checkpoints) {
  while (shards_.has_losses() && !lifecycle_.is_over() && !is_recovering()) {
    const LossRecovery::Job job{.workers = contributors_.Reachable(),
                                .has_server = resizer_.HasDesiredServer(),
                                .has_begun = lifecycle_.has_started(),
                                .has_steps = statistics_.HighestVersion() > Step{},
                                .has_checkpoint = !checkpoints.empty()};
    const LossHandler::Result result =
        shards_.AdvanceLosses(now_, contributors_.active().consistency, job, checkpoints);
    FailIf(result.failure);
    for (const WorkerId worker : result.silent)
      Drop(now_, registry_.Find(worker)->session, kSilentAboutCopies);
    if (!shards_.has_losses() && !lifecycle_.is_over()) tensors_.AdmitReady();
    if (result.silent.empty()) return;
  }
}

void JobMembers::ReleaseServers(bool is_saved) {
  if (lifecycle_.has_failed() || is_recovering() || !shards_.is_prepared()) return;
  const auto rule = LeaveRuleOf(lifecycle_, shards_, is_saved);
  const auto is_drained = [&](ServerId server) { return shards_.replicas().is_drained(server); };
  for (const ServerId server : resizer_.TakeReleased(rule, is_drained)) {
    outbox_.Log(absl::StrCat(ToString(server), " holds nothing any more and is released"));
    outbox_.Send(server, Stop{absl::OkStatus(), options_.term});
  }
}

// ---- recovery ----

void JobMembers::On(SessionId session, const ServerReport& message) {
  const std::optional<ServerId> server = registry_.ServerAt(session);
  if (!server || message.term != options_.term) return;
  registry_.OnTensorsInstalled(
      *server, std::max(registry_.Find(*server)->table_version, uint64_t{message.tensors.size()}));
  if (is_recovering()) {
    recovery_.Add(*server, message);
    return AdvanceRecovery();
  }
  // It comes late, and may know of a view that nobody else has reported.
  const uint64_t seen = HighestView(message);
  if (lifecycle_.has_started() && seen > contributors_.active().number) contributors_.Renew(seen);
}

void JobMembers::On(SessionId session, const WorkerReport& message) {
  const std::optional<WorkerId> worker = registry_.WorkerAt(session);
  if (!worker || message.term != options_.term || !is_recovering()) return;
  recovery_.Add(registry_.Find(*worker)->info, message);
  AdvanceRecovery();
}

void JobMembers::AdvanceRecovery() {
  if (!is_recovering() || lifecycle_.has_failed()) return;
  const Recovery::Decision decision = recovery_.Advance(now_, resizer_.desired().servers);
  if (const auto* wait = std::get_if<Recovery::Wait>(&decision)) {
    if (!wait->warning.empty()) outbox_.Warn(wait->warning);
  } else if (const auto* go_on = std::get_if<Recovery::GoOn>(&decision)) {
    Recover(go_on->job);
  } else {
    PrepareShards();
  }
}

void JobMembers::Recover(const CollectedJob& job) {
  FailIf(shards_.RecoverTensors(job));
  if (lifecycle_.has_failed()) return;
  resizer_.Restore(job.desired);
  contributors_.Recover(job);
  if (!job.has_begun) return PrepareShards();
  outbox_.Log(DescribeRecovered(job, options_.term, registry_.servers().size()));
  lifecycle_.Start(now_);
  shards_.RecoverServers(*resizer_.TakeTarget(true));
  UpdateServers();
  // Views before entries: a server that becomes primary counts contributions by the view.
  contributors_.Renew(job.last_view_number);
  shards_.RecoverEntries(job.entries);
  RecoverWorkers(job.view);
}

// Workers that are registered take their places in the view again; the others have died meanwhile.
void JobMembers::RecoverWorkers(const View& view) {
  for (const ViewMember& member : view.members) {
    const auto* worker = registry_.Find(member.worker);
    if (worker != nullptr && worker->info.incarnation == member.incarnation) continue;
    const std::string who = ToString(member.worker);
    if (member.end_step) {
      roster_.OnLeft(member.worker, member.is_released || !resizer_.IsDesired(member.worker));
      outbox_.Log(absl::StrCat(who, " has left"));
    } else {
      outbox_.Warn(absl::StrCat(who, " is lost: it did not come back in time"));
    }
    contributors_.Remove(member.worker);
  }
  for (const auto& [id, worker] : registry_.workers()) {
    outbox_.Send(id, Release{!resizer_.IsDesired(id)});
    if (contributors_.IsGivenUp(worker.info)) outbox_.Refuse(worker.session, GivenUp());
  }
  for (const auto& [worker, leave] : recovery_.TakeLeaves()) On(worker, leave);
  FailIf(tensors_.RegisterWaiting());
}

}  // namespace pushpull
