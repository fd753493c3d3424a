// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/coordinator/ring_rules.h"

namespace pushpull {
namespace {

constexpr char kSilentAboutCopies[] =
    "it did not report in time what it has of the shards that were lost";

absl::Status GivenUp() {
  return absl::AbortedError("this worker was given up and is no longer a member");
}

absl::Status CheckPlace(const JobCoreOptions& options,
                        const Resizer& resizer,
                        const RegisterWorker& worker) {
  PUSHPULL_RETURN_IF_ERROR(CheckRingAddress(options, worker));
  return resizer.CheckIndex(worker.worker);
}

pushpull::Welcome MakeWelcome(const JobCoreOptions& options) {
  const auto heartbeat = std::chrono::duration_cast<std::chrono::milliseconds>(options.heartbeat);
  return {options.term, options.settings, static_cast<uint32_t>(heartbeat.count())};
}

std::string DescribeRecovered(const CollectedJob& job, Term term, size_t servers) {
  return absl::StrFormat("recovered in term %d: %d servers, %d workers in view %d, %d shards",
                         term.value(),
                         servers,
                         job.view.members.size(),
                         job.view.number,
                         job.entries.size());
}

Resizer::LeaveRule LeaveRuleOf(const JobLifecycle& lifecycle,
                               const ShardDirectory& shards,
                               bool is_saved) {
  using Rule = Resizer::LeaveRule;
  if (lifecycle.has_succeeded()) return is_saved ? Rule::kAtOnce : Rule::kNever;
  return shards.is_placed() ? Rule::kDrained : Rule::kAtOnce;
}

uint64_t HighestView(const ServerReport& report) {
  return std::max(report.active.number, report.proposed ? report.proposed->number : 0);
}

// kInvalidArgument: the size is invalid; kFailedPrecondition: the job's size cannot change now.
absl::Status CheckResizable(const JobLifecycle& lifecycle,
                            const ShardDirectory& shards,
                            const Resizer& resizer,
                            const JobSize& size) {
  PUSHPULL_RETURN_IF_ERROR(resizer.Check(size));
  // A server that reads a checkpoint keeps its place until it has done so.
  const bool needs_step =
      size.workers || size.global_batch || (size.servers && shards.is_restoring());
  return needs_step || lifecycle.is_over() ? lifecycle.CheckRunning() : absl::OkStatus();
}

// kFailedPrecondition: steps have no batch.
absl::Status SetBatch(const JobSize& size,
                      const Contributors& contributors,
                      Resizer& resizer,
                      Outbox& outbox) {
  if (!size.global_batch) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(contributors.CheckDividesSamples());
  if (*size.global_batch == resizer.desired().global_batch) return absl::OkStatus();
  outbox.Log(absl::StrCat("globalBatch: ", *size.global_batch, " requested"));
  resizer.SetGlobalBatch(*size.global_batch);
  return absl::OkStatus();
}

// Whether a worker turned out to be in another rack. Servers' shards move accordingly.
bool SetRacks(const std::vector<MemberRack>& racks,
              MemberRegistry& members,
              ShardDirectory& shards,
              WorkerRoster& roster) {
  bool have_workers_changed = false;
  for (const MemberRack& member : racks) {
    // No job has a member with a higher index.
    if (member.index >= JobSize::kRacksMax || !members.SetRack(member)) continue;
    if (!member.is_server) {
      roster.SetRack(WorkerId{member.index}, member.rack);
      have_workers_changed = true;
    } else if (shards.is_prepared()) {
      shards.AddServer(members.Find(ServerId{member.index})->info);
    }
  }
  return have_workers_changed;
}

// What the launcher or the operator knows of members. Whether a worker turned out to be in another
// rack.
bool UpdateMembers(const JobSize& size,
                   const Resizer& resizer,
                   JobState& job,
                   ShardDirectory& shards,
                   WorkerRoster& roster) {
  const uint32_t workers = size.workers.value_or(resizer.desired().workers);
  roster.OnResized(workers);
  for (const LeftOutWorker& left_out : size.left_out) {
    if (left_out.worker.value() >= workers) continue;
    roster.LeaveOut(left_out);
    const std::string who = ToString(left_out.worker);
    if (left_out.why.empty()) {
      job.outbox.Log(absl::StrCat(who, " is done, as its end has shown"));
    } else {
      job.outbox.Warn(absl::StrCat(who, " ", left_out.why));
    }
  }
  return SetRacks(size.racks, job.members, shards, roster);
}

absl::Status CheckRegistration(const JobState& job,
                               Recovery& recovery,
                               Term promised,
                               const absl::Status& index) {
  PUSHPULL_RETURN_IF_ERROR(recovery.CheckTerm(promised));
  if (job.lifecycle.has_failed()) return absl::UnavailableError(job.lifecycle.failure());
  // The size is not known until the recovery is over.
  return recovery.is_under_way() ? absl::OkStatus() : index;
}

void Retire(ServerId server, JobState& job) {
  job.statistics.RetireServer(server);
  job.stalls.Remove(server);
  job.culprits.Remove(server);
}

void Retire(WorkerId worker, JobState& job) {
  job.statistics.RetireWorker(worker);
  job.culprits.Remove(worker);
  job.stalls.Remove(worker);
}

JobFailure LossOf(ServerId server, std::string text, bool is_final, const JobState& job) {
  return {.text = std::move(text),
          .is_final = is_final,
          .lost_server = server,
          .can_resume = job.can_resume()};
}

Announce DescribeGone(const std::string& server,
                      const std::string& why,
                      bool was_released,
                      bool were_shards_lost) {
  if (was_released) return {false, absl::StrCat(server, " has gone")};
  const char* then = were_shards_lost ? "" : "; its shards go to others";
  return {true, absl::StrCat(server, " is lost: ", why, then)};
}

std::string DescribeLost(WorkerId worker, const std::string& why) {
  return absl::StrCat(ToString(worker), " is lost: ", why, "; the others go on without it");
}

std::string KeepsShards(ServerId server) {
  return absl::StrCat(ToString(server), " keeps its shards for now: nobody is there to take them");
}

}  // namespace

// ---- members that join ----

void JobMembers::On(SessionId session, const RegisterServer& message) {
  const ServerId id = message.server;
  absl::Status status =
      CheckRegistration(job_, recovery_, message.promised, resizer_.CheckIndex(id));
  if (!status.ok()) return job_.outbox.Refuse(session, std::move(status));
  // The same process has reconnected before the end of its old session was noticed. Another process
  // has to wait until the old one is dead.
  const auto* known = job_.members.Find(id);
  if (known != nullptr && known->info.incarnation == message.incarnation)
    Drop(known->session, "it has connected again");
  status = job_.members.Check(message);
  if (!status.ok()) return job_.outbox.Refuse(session, std::move(status));
  job_.members.Add(session, message);
  job_.outbox.Log(absl::StrCat(ToString(id), " registered at ", message.data_address));
  Welcome(session, message.promised);
  if (is_recovering()) return AdvanceRecovery();
  if (!shards_.is_prepared()) return;
  // It first gets everything that the others have already received, then shards.
  shards_.SendTableTo(session, true);
  contributors_.SendViewsTo(session);
  UpdateServers();
  shards_.AddServer(job_.members.Find(id)->info);
  if (resizer_.has_leaving()) Retarget();
}

void JobMembers::On(SessionId session, const RegisterWorker& message) {
  const WorkerId id = message.worker;
  absl::Status status = CheckRegistration(
      job_, recovery_, message.promised, CheckPlace(job_.options, resizer_, message));
  if (!status.ok()) return job_.outbox.Refuse(session, std::move(status));
  if (const auto* known = job_.members.Find(id)) Drop(known->session, "replaced by a new process");
  if (!is_recovering() && contributors_.IsGivenUp(message))
    return job_.outbox.Refuse(session, GivenUp());
  job_.members.Add(session, message);
  roster_.OnRegistered(job_.members.Find(id)->info, job_.now);
  job_.outbox.Log(absl::StrCat(ToString(id), " registered"));
  Welcome(session, message.promised);
  if (!shards_.is_prepared()) return;
  job_.outbox.Send(session, SetServers{job_.members.Endpoints(), resizer_.desired()});
  shards_.SendTableTo(session, false);
}

void JobMembers::Welcome(SessionId session, Term promised) {
  job_.outbox.Send(session, MakeWelcome(job_.options));
  recovery_.OnRegistered(job_.now);
  // A process that no coordinator has ever welcomed has nothing to report.
  if (promised > Term{}) job_.outbox.Send(session, Collect{job_.options.term});
}

// ---- members that leave ----

void JobMembers::On(WorkerId worker, const Leave& message) {
  if (is_recovering()) return recovery_.Defer(worker, message);
  job_.members.OnLeaving(worker);
  job_.statistics.OnWorker(worker, message.stats);
  const bool is_released = message.is_released && job_.lifecycle.has_started();
  roster_.OnLeft(worker, is_released);
  end_step_ = std::max(end_step_, message.end_step);
  job_.outbox.Log(absl::StrCat(ToString(worker), " leaves after step ", message.end_step.value()));
  was_last_lost_ = false;
  contributors_.OnLeave(worker, message.end_step, is_released);
}

void JobMembers::On(ServerId server, const DrainRequest& /*message*/) {
  if (!resizer_.RequestDrain(server)) return;
  job_.outbox.Log(absl::StrCat(ToString(server), " is to end and asks to leave"));
  if (is_recovering() || job_.lifecycle.has_failed()) return;
  Retarget();
  if (resizer_.IsTarget(server) && !shards_.replicas().is_drained(server))
    job_.outbox.Warn(KeepsShards(server));
}

void JobMembers::Lose(SessionId session, const std::string& why) {
  const MemberRegistry::Departed departed = job_.members.Remove(session);
  if (const auto* server = std::get_if<MemberRegistry::Server>(&departed)) Lose(*server, why);
  if (const auto* worker = std::get_if<MemberRegistry::Worker>(&departed)) Lose(*worker, why);
}

void JobMembers::Lose(const MemberRegistry::Server& server, const std::string& why) {
  const ServerId id = server.info.server;
  const bool was_released = resizer_.IsReleased(id);
  const bool has_leaving = resizer_.has_leaving();
  resizer_.OnServerGone(id);
  Retire(id, job_);
  if (is_recovering()) return recovery_.Remove(id);
  if (job_.lifecycle.is_over()) return;
  const std::string who = absl::StrCat(ToString(id), " (", server.info.data_address, ")");
  if (shards_.LoseAtStart(id)) {
    if (!was_released)
      job_.outbox.Warn(absl::StrCat(who, " is lost: ", why, "; the start waits for the next one"));
    return UpdateServers();
  }
  const View& view = contributors_.active();
  losses_.OnServerLost(id);
  const ReplicaChange change = shards_.replicas().LoseServer(id);
  const std::string fatal = change.lost.empty() ? "" : losses_.WhyFatal(view.consistency);
  if (!fatal.empty()) {
    // Workers with a push under way will report which tensor and step it was.
    return job_.Fail(
        LossOf(id, absl::StrCat(who, " is lost: ", why, "; ", fatal), view.members.empty(), job_));
  }
  job_.outbox.Add(DescribeGone(who, why, was_released, !change.lost.empty()));
  UpdateServers();
  shards_.Apply(change);
  if (has_leaving || was_released) Retarget();
  AdmitReady();  // it may have been the last one without the tensors
}

void JobMembers::Lose(const MemberRegistry::Worker& worker, const std::string& why) {
  const WorkerId id = worker.info.worker;
  waiting_.erase(id);
  roster_.OnGone(id);
  Retire(id, job_);
  if (is_recovering()) return recovery_.Remove(id);
  if (!worker.is_leaving) job_.outbox.Warn(DescribeLost(id, why));
  was_last_lost_ |= !worker.is_leaving && contributors_.active().Find(id) != nullptr;
  contributors_.Remove(id);
}

// ---- the way to the first step ----

void JobMembers::PrepareShards() {
  shards_.Prepare();
  if (job_.lifecycle.has_failed()) return;
  Retarget();
  UpdateServers();
  // Tensors that an earlier coordinator placed, and that have no values yet.
  if (!shards_.catalog().tensors().empty()) {
    shards_.Place();
    OnPlaced();
  }
  RegisterWaiting();
  for (const auto& [worker, leave] : recovery_.TakeLeaves()) On(worker, leave);
}

void JobMembers::On(WorkerId worker, const RegisterTensors& message) {
  waiting_[worker] = message;
  if (shards_.is_prepared()) RegisterWaiting();
}

// The first list is placed. A list that does not match ends its worker's session.
void JobMembers::RegisterWaiting() {
  for (const auto& [id, request] : std::exchange(waiting_, {})) {
    if (job_.lifecycle.has_failed()) return;
    const MemberRegistry::Worker& worker = *job_.members.Find(id);
    const bool is_first = shards_.catalog().tensors().empty();
    absl::Status registered = contributors_.Check(request.tensors);
    if (registered.ok()) registered = shards_.Register(id, request.tensors);
    if (!registered.ok()) {
      job_.outbox.Refuse(worker.session, std::move(registered));
      continue;
    }
    job_.members.OnTensorsRegistered(id);
    contributors_.Remind(worker);
    if (!is_first) continue;
    shards_.Place();
    OnPlaced();
  }
  AdmitReady();
}

// While servers lack tensors, a checkpoint's chunks or lost shards, a joining worker would wait for
// values that nobody can publish.
void JobMembers::AdmitReady() {
  if (is_ending_) return;
  if (shards_.is_installed() && !losses_.is_under_way() && !job_.lifecycle.has_failed())
    contributors_.AdmitReady(resizer_.desired().workers);
}

// Servers of the first entries may be about to leave, and servers that have registered since shards
// were assigned now get theirs.
void JobMembers::OnPlaced() {
  if (shards_.is_restoring() || job_.lifecycle.has_failed()) return;
  if (!resizer_.has_leaving() && !job_.options.has_colocated_servers) return Retarget();
  shards_.SetTarget(*resizer_.TakeTarget(true));
}

void JobMembers::On(ServerId server, const TensorsInstalled& message) {
  job_.members.OnTensorsInstalled(server, message.table_version);
  AdmitReady();
}

void JobMembers::On(ServerId server, const Restored& message) {
  if (job_.lifecycle.has_failed() || !shards_.is_restoring()) return;
  shards_.OnRestored(server, message);
  OnPlaced();
  AdmitReady();
}

// To be called after a change in the servers that are desired, present, or about to leave. Does
// nothing before the first entries are issued, or once the job's values are final.
void JobMembers::Retarget() {
  if (shards_.is_restoring() || job_.lifecycle.has_succeeded()) return;
  if (const auto target = resizer_.TakeTarget()) shards_.SetTarget(*target);
}

// The registered servers have changed.
void JobMembers::UpdateServers() {
  SendServerList();
  contributors_.UpdateServers();
}

// ---- user requests ----

absl::Status JobMembers::Resize(const JobSize& size) {
  PUSHPULL_RETURN_IF_ERROR(CheckResizable(job_.lifecycle, shards_, resizer_, size));
  if (UpdateMembers(size, resizer_, job_, shards_, roster_)) contributors_.OnRacks();
  const DesiredSize before = resizer_.desired();
  PUSHPULL_RETURN_IF_ERROR(SetBatch(size, contributors_, resizer_, job_.outbox));
  if (size.servers && *size.servers != before.servers) {
    job_.outbox.Log(absl::StrCat("servers: ", before.servers, " -> ", *size.servers));
    resizer_.ResizeServers(
        job_.now, *size.servers, job_.statistics.HighestVersion(), job_.statistics.ResizeTotals());
  }
  if (size.workers && *size.workers != before.workers) {
    job_.outbox.Log(absl::StrCat("workers: ", before.workers, " -> ", *size.workers));
    for (auto& [worker, release] : resizer_.ResizeWorkers(*size.workers))
      job_.outbox.Send(worker, release);
  }
  // Members keep the size for the next coordinator.
  if (resizer_.desired().revision != before.revision) SendServerList();
  Retarget();  // servers beside workers join and leave with them
  return absl::OkStatus();
}

absl::Status JobMembers::SetMode(const ModeChange& change) {
  PUSHPULL_ASSIGN_OR_RETURN(const Consistency desired,
                            contributors_.CheckMode(change, resizer_.desired().workers));
  PUSHPULL_RETURN_IF_ERROR(job_.lifecycle.CheckRunning());
  return contributors_.ChangeMode(desired);
}

// ---- the end of all processes ----

void JobMembers::SetEnding() {
  is_ending_ = true;
  resizer_.KeepPlaces();
  if (resizer_.has_leaving()) Retarget();
}

// ---- what follows from an event ----

void JobMembers::OnTick() {
  AdvanceRecovery();
  if (resizer_.is_log_open())
    resizer_.UpdateLog(
        job_.now, shards_.replicas().shards_moving(), job_.statistics.ResizeTotals());
}

void JobMembers::Settle(const std::string& checkpoint, bool is_saved) {
  if (contributors_.has_started() && !job_.lifecycle.has_started() &&
      !job_.lifecycle.has_failed()) {
    job_.Begin();
  }
  AdvanceLosses(checkpoint);
  if (!job_.lifecycle.has_failed() && contributors_.AdvanceMode(job_.lifecycle.is_running()))
    AdmitReady();
  ReleaseServers(is_saved);
  const bool is_complete = job_.members.HasFirstServers(resizer_.desired().servers);
  if (is_complete && !shards_.is_prepared() && !is_recovering() && !job_.lifecycle.has_failed())
    PrepareShards();
}

// Removes workers that do not answer in time; the others' answers then decide.
void JobMembers::AdvanceLosses(const std::string& checkpoint) {
  while (losses_.is_under_way() && !job_.lifecycle.is_over() && !is_recovering()) {
    const std::set<WorkerId> silent = losses_.Advance(contributors_.active().consistency,
                                                      contributors_.Reachable(),
                                                      resizer_.HasDesiredServer(),
                                                      checkpoint);
    for (const WorkerId worker : silent)
      Drop(job_.members.Find(worker)->session, kSilentAboutCopies);
    if (!losses_.is_under_way() && !job_.lifecycle.is_over()) AdmitReady();
    if (silent.empty()) return;
  }
}

// Before anything is placed, a released server is gone at once: nothing will be placed on it, and
// the next process takes its place.
void JobMembers::ReleaseServers(bool is_saved) {
  if (job_.lifecycle.has_failed() || is_recovering() || shards_.is_restoring()) return;
  const auto rule = LeaveRuleOf(job_.lifecycle, shards_, is_saved);
  const auto is_drained = [&](ServerId server) { return shards_.replicas().is_drained(server); };
  for (const ServerId server : resizer_.TakeReleased(rule, is_drained)) {
    job_.outbox.Log(absl::StrCat(ToString(server), " holds nothing any more and is released"));
    job_.outbox.Send(server, Stop{absl::OkStatus(), job_.options.term});
    if (!shards_.is_placed()) Drop(job_.members.Find(server)->session, "it was released");
  }
}

// ---- recovery ----

void JobMembers::On(SessionId session, const ServerReport& message) {
  const std::optional<ServerId> server = job_.members.ServerAt(session);
  if (!server || message.term != job_.options.term) return;
  job_.members.OnTensorsInstalled(
      *server,
      std::max(job_.members.Find(*server)->table_version, uint64_t{message.tensors.size()}));
  if (is_recovering()) {
    recovery_.Add(*server, message);
    return AdvanceRecovery();
  }
  // The report is late, and may contain a view that nobody else has reported.
  const uint64_t seen = HighestView(message);
  if (job_.lifecycle.has_started() && seen > contributors_.active().number)
    contributors_.Renew(seen);
}

void JobMembers::On(SessionId session, const WorkerReport& message) {
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (!worker || message.term != job_.options.term || !is_recovering()) return;
  recovery_.Add(job_.members.Find(*worker)->info, message);
  AdvanceRecovery();
}

void JobMembers::AdvanceRecovery() {
  if (!is_recovering() || job_.lifecycle.has_failed()) return;
  // At once, because the launcher or the operator starts missing servers according to the size in
  // the status.
  resizer_.Restore(recovery_.desired());
  const Recovery::Decision decision = recovery_.Advance(job_.now, resizer_.desired().servers);
  if (const auto* wait = std::get_if<Recovery::Wait>(&decision)) {
    if (!wait->warning.empty()) job_.outbox.Warn(wait->warning);
  } else if (const auto* go_on = std::get_if<Recovery::GoOn>(&decision)) {
    Recover(go_on->job);
  } else {
    PrepareShards();
  }
}

void JobMembers::Recover(const CollectedJob& job) {
  shards_.RecoverTensors(job);
  if (job_.lifecycle.has_failed()) return;
  contributors_.Recover(job);
  if (!job.has_begun) return PrepareShards();
  job_.outbox.Log(DescribeRecovered(job, job_.options.term, job_.members.servers().size()));
  job_.lifecycle.Start(job_.now);
  shards_.RecoverServers(*resizer_.TakeTarget(true));
  UpdateServers();
  // Views before entries: a server that becomes primary counts contributions by the view.
  contributors_.Renew(job.last_view_number);
  shards_.RecoverEntries(job.entries);
  losses_.OnHoldersAwaited();
  RecoverWorkers(job.view);
}

// Registered workers take their places in the view again; the others have died meanwhile.
void JobMembers::RecoverWorkers(const View& view) {
  for (const ViewMember& member : view.members) {
    const auto* worker = job_.members.Find(member.worker);
    if (worker != nullptr && worker->info.incarnation == member.incarnation) continue;
    const std::string who = ToString(member.worker);
    if (member.end_step) {
      roster_.OnLeft(member.worker, member.is_released || !resizer_.IsDesired(member.worker));
      job_.outbox.Log(absl::StrCat(who, " has left"));
    } else {
      job_.outbox.Warn(absl::StrCat(who, " is lost: it did not come back in time"));
      was_last_lost_ = true;
    }
    contributors_.Remove(member.worker);
  }
  for (const auto& [id, worker] : job_.members.workers()) {
    job_.outbox.Send(id, Release{!resizer_.IsDesired(id)});
    if (contributors_.IsGivenUp(worker.info)) job_.outbox.Refuse(worker.session, GivenUp());
  }
  for (const auto& [worker, leave] : recovery_.TakeLeaves()) On(worker, leave);
  RegisterWaiting();
}

}  // namespace pushpull
