// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/colocated_server.h"
#include "runtime/shard/placement.h"

namespace pushpull {
namespace {

// A worker's step may take a while, and nobody else's begins meanwhile.
constexpr Duration kModeSwitchPatience = std::chrono::seconds(120);

}  // namespace

std::set<ServerId> JobCore::FirstServers(uint32_t count) {
  std::set<ServerId> servers;
  for (uint32_t i = 0; i < count; ++i) servers.insert(ServerId{i});
  return servers;
}

JobCore::JobCore(JobCoreOptions options)
    : options_(std::move(options)),
      workers_(options_.settings.workers),
      agreement_(FirstServers(options_.settings.servers), FirstConsistency(options_)),
      mode_switch_(kModeSwitchPatience),
      replicas_({.term = options_.term,
                 .replication = options_.settings.replication,
                 .rebuilds = options_.repairs_losses}),
      wanted_servers_(options_.settings.servers),
      resizes_(options_.heartbeat),
      losses_({.grace = options_.loss_grace, .answer_within = options_.peer_timeout}) {
  if (options_.checkpoint) checkpoints_.emplace(*options_.checkpoint);
  if (options_.restore && checkpoints_) checkpoints_->SetRestored(options_.restore->manifest.step);
  if (options_.recovery != JobCoreOptions::Recovery::kNone) collection_.emplace();
}

std::vector<Command> JobCore::OnMessage(SteadyTime now,
                                        SessionId session,
                                        const FromMember& message) {
  now_ = now;
  members_[session].last_heard = now;
  if (collection_ && !IsOfThisTerm(message)) return {};
  std::visit([&](const auto& alternative) { On(session, alternative); }, message);
  return TakeCommands();
}

std::vector<Command> JobCore::OnClosed(SteadyTime now, SessionId session, const absl::Status& why) {
  now_ = now;
  Lose(session, absl::StrCat("its connection closed (", why.message(), ")"));
  return TakeCommands();
}

std::vector<Command> JobCore::OnTick(SteadyTime now) {
  now_ = now;
  ForgiveOwnPause();
  std::vector<SessionId> silent;
  for (const auto& [session, member] : members_) {
    if (now - member.last_heard > options_.peer_timeout) silent.push_back(session);
  }
  for (const SessionId session : silent) {
    commands_.push_back(CloseSession{session});
    Lose(session, absl::StrCat("silent for ", ToSeconds(options_.peer_timeout), " s"));
  }
  if (failed_at_ && phase_ != JobPhase::kFailed && now - *failed_at_ >= options_.failure_grace) {
    phase_ = JobPhase::kFailed;
  }
  RecoverIfKnown();
  if (checkpoints_ && started_at_) Carry(checkpoints_->OnTick(now, CheckpointView()));
  if (resizes_.is_open()) resizes_.Update(now, IsSettled(), ResizeTotals());
  if (phase_ == JobPhase::kSucceeded) ReleaseDrained();  // the last checkpoint may be written now
  return TakeCommands();
}

// A process that was stopped itself, or starved, has heard nobody meanwhile: that is not the
// members' silence.
void JobCore::ForgiveOwnPause() {
  const Duration pause = now_ - ticked_at_.value_or(now_);
  ticked_at_ = now_;
  if (pause <= options_.peer_timeout / 2) return;
  for (auto& [session, member] : members_) member.last_heard += pause;
}

std::vector<Command> JobCore::OnStop() {
  is_stopped_ = true;
  if (IsNeededNoMore()) StopAll(absl::OkStatus());
  return TakeCommands();
}

void JobCore::EndIfComplete() {
  if (failed_at_ || phase_ != JobPhase::kRunning || !workers_.IsComplete()) return;
  phase_ = JobPhase::kSucceeded;
  ended_at_ = now_;
  SaveAtEnd();
}

std::vector<Command> JobCore::TakeCommands() {
  AdvanceLosses();
  AdvanceModeSwitch();
  return std::exchange(commands_, {});
}

// ---- what members say ----

void JobCore::On(SessionId session, const RegisterServer& message) {
  if (IsSuperseded(session, message.promised)) return;
  if (failed_at_) return Refuse(session, absl::UnavailableError(failure_));
  if (!IsWanted(message.server) && !collection_) {
    return Refuse(session,
                  absl::FailedPreconditionError(absl::StrCat(
                      "job ",
                      options_.settings.job,
                      " has ",
                      wanted_servers_,
                      " servers",
                      options_.has_colocated_servers ? " and one beside each of its workers" : "",
                      ", there is no place for ",
                      ToString(message.server))));
  }
  const auto known = servers_.find(message.server);
  if (known != servers_.end() &&
      Find<Server>(known->second)->info.incarnation == message.incarnation) {
    const SessionId earlier = known->second;
    commands_.push_back(CloseSession{earlier});
    Lose(earlier, "it has connected anew");
  }
  if (servers_.contains(message.server)) {
    return Refuse(session,
                  absl::FailedPreconditionError(
                      absl::StrCat(ToString(message.server), " is already registered")));
  }
  if (!(message.weight > 0) || message.lanes == 0) {
    return Refuse(
        session,
        absl::InvalidArgumentError(absl::StrCat(ToString(message.server),
                                                ": weight and threads must be above 0, are ",
                                                message.weight,
                                                " and ",
                                                message.lanes)));
  }
  members_[session].role = Server{.info = message};
  servers_[message.server] = session;
  Say(absl::StrCat(ToString(message.server), " registered at ", message.data_address));
  Send(session, MakeWelcome());
  AskForReport(session, message.promised);
  if (collection_) return RecoverIfKnown();
  if (!primaries_.empty()) return WelcomeLateServer(message, session);
  if (AreFirstThere(options_.settings.servers)) PrepareCatalog();
}

// It gets everything that the others have heard before, then shards.
void JobCore::WelcomeLateServer(const RegisterServer& server, SessionId session) {
  if (!catalog_.tensors().empty()) {
    Send(session, InstallTensors{catalog_.version(), catalog_.tensors()});
    Send(session, MakeReplicas());
  }
  if (checkpoints_ && checkpoints_->capture()) Send(session, *checkpoints_->capture());
  if (agreement_.active().number > 0) Send(session, ActivateView{agreement_.active()});
  if (const std::optional<View> proposed = agreement_.proposed())
    Send(session, ProposeView{*proposed});
  UpdateServers();
  Carry(replicas_.AddServer(server.server, server.weight));
  if (HasLeavingServers()) Retarget();
}

// Who is there has changed.
void JobCore::UpdateServers() {
  SendToServers(MakeServerList());
  SendToWorkers(MakeServerList());
  Carry(agreement_.SetServers(ServersThere()));
  UpdateCheckpointServers();
}

void JobCore::On(SessionId session, const RegisterWorker& message) {
  if (IsSuperseded(session, message.promised)) return;
  if (!workers_.IsWanted(message.worker) && !collection_) {
    return Refuse(session,
                  absl::FailedPreconditionError(absl::StrCat("job ",
                                                             options_.settings.job,
                                                             " has ",
                                                             workers_.wanted(),
                                                             " workers, there is no place for ",
                                                             ToString(message.worker))));
  }
  if (failed_at_) return Refuse(session, absl::UnavailableError(failure_));
  const SessionId earlier = SessionOfWorker(message.worker);
  if (earlier != SessionId{}) {
    commands_.push_back(CloseSession{earlier});
    Lose(earlier, "replaced by a new process");
  }
  if (IsGivenUp(message)) {
    return Refuse(session,
                  absl::AbortedError("this worker was given up and is no longer a member"));
  }
  members_[session].role = Worker{.info = message};
  workers_.OnRegistered(message);
  Say(absl::StrCat(ToString(message.worker), " registered"));
  Send(session, MakeWelcome());
  AskForReport(session, message.promised);
  if (!primaries_.empty()) {
    Send(session, MakeServerList());
    Send(session, MakeReplicas());
  }
  if (checkpoints_ && checkpoints_->capture() && catalog_.has_codec_memory())
    Send(session, *checkpoints_->capture());
}

void JobCore::On(SessionId session, const RegisterTensors& message) {
  if (Find<Worker>(session) == nullptr) {
    return Refuse(session,
                  absl::FailedPreconditionError("only a registered worker can register tensors"));
  }
  waiting_[session] = message;
  if (!primaries_.empty()) RegisterWaiting();
}

void JobCore::On(SessionId session, const TensorsInstalled& message) {
  Server* server = Find<Server>(session);
  if (server == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can install tensors"));
  server->table_version = message.table_version;
  AdmitReady();
}

void JobCore::On(SessionId session, const ViewAnswer& message) {
  const Server* server = Find<Server>(session);
  if (server == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can answer a view"));
  Carry(agreement_.Answer(server->info.server, message));
}

void JobCore::On(SessionId session, const Promises& message) {
  const Server* server = Find<Server>(session);
  if (server == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can promise"));
  for (const Promise& promise : message.promises)
    Carry(replicas_.OnPromise(server->info.server, promise));
}

void JobCore::On(SessionId session, const MemberCaughtUp& message) {
  if (Find<Server>(session) == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server has members to speak of"));
  Carry(replicas_.OnCaughtUp(message));
}

void JobCore::On(SessionId session, const HandedOver& message) {
  if (Find<Server>(session) == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can take over"));
  Carry(replicas_.OnHandedOver(message));
}

void JobCore::On(SessionId session, const Heartbeat& message) {
  if (const Server* server = Find<Server>(session)) {
    if (const auto* stats = std::get_if<ServerStats>(&message.stats)) {
      statistics_.OnServer(server->info.server, *stats);
      stalls_.OnServer(server->info.server, stats->stall);
      WatchStall();
    }
  } else if (const Worker* worker = Find<Worker>(session)) {
    if (const auto* stats = std::get_if<WorkerStats>(&message.stats)) {
      statistics_.OnWorker(worker->info.worker, *stats);
      const uint64_t skipped = agreement_.active().consistency.steps_skipped;
      agreement_.OnProgress(worker->info.worker, Step{stats->step.value() + skipped});
    }
  }
}

// A worker that does not push is not dead while it sends heartbeats; what becomes of it is the
// policy's business.
void JobCore::WatchStall() {
  const std::optional<StallWatch::News> news = stalls_.Take();
  if (!news || phase_ != JobPhase::kRunning || failed_at_) return;
  Say(news->text, news->has_begun);
  if (!news->has_begun || options_.on_stall == StallPolicy::kWarn) return;
  if (options_.on_stall == StallPolicy::kFail) {
    Fail(absl::StrCat(news->text, " (spec.sync.onStall: Fail)"));
    phase_ = JobPhase::kFailed;
    return;
  }
  const Stall stall = *stalls_.Current();
  for (const WorkerId worker : stall.missing) {
    const SessionId session = SessionOfWorker(worker);
    if (session == SessionId{}) continue;
    commands_.push_back(CloseSession{session});
    Lose(session, absl::StrCat(ToString(stall), " (spec.sync.onStall: DropWorker)"));
  }
}

void JobCore::On(SessionId session, const Leave& message) {
  Worker* worker = Find<Worker>(session);
  if (worker == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a worker can leave"));
  if (collection_) {
    deferred_leaves_[session] = message;
    return;
  }
  worker->is_leaving = true;
  statistics_.OnWorker(worker->info.worker, message.stats);
  const bool is_released = message.is_released && started_at_.has_value();
  workers_.OnLeft(worker->info.worker, is_released);
  end_step_ = std::max(end_step_, message.end_step);
  Say(absl::StrCat(ToString(worker->info.worker), " leaves after step ", message.end_step.value()));
  ViewChange change = agreement_.Leave(worker->info.worker, message.end_step, is_released);
  // A worker that was never admitted still waits for an answer.
  if (!change.activate) Send(session, ActivateView{agreement_.active()});
  Carry(std::move(change));
  EndIfComplete();
}

// A server's word ends the job. A worker's is about what became of its own operations: it says what
// a lost server was needed for, and is nobody else's business where no server is lost.
void JobCore::On(SessionId session, const Failure& message) {
  const Server* server = Find<Server>(session);
  const Worker* worker = Find<Worker>(session);
  const bool is_detail = failed_at_ && phase_ != JobPhase::kFailed;
  if (server == nullptr && (worker == nullptr || !is_detail)) return;
  const std::string who =
      server != nullptr ? ToString(server->info.server) : ToString(worker->info.worker);
  const std::string text = absl::StrCat(who, ": ", message.status.message());
  if (is_detail) {
    absl::StrAppend(&failure_, "; ", text);
  } else if (!failed_at_) {
    Fail(text);
  }
  phase_ = JobPhase::kFailed;
}

// ---- members that go ----

void JobCore::Refuse(SessionId session, absl::Status why) {
  Say(absl::StrCat("session refused: ", why.message()), true);
  Send(session, Stop{std::move(why), options_.term});
  commands_.push_back(CloseSession{session});
}

void JobCore::Lose(SessionId session, const std::string& why) {
  const auto it = members_.find(session);
  if (it == members_.end() || is_stopped_) return;
  const Member member = std::move(it->second);
  members_.erase(it);
  waiting_.erase(session);
  deferred_leaves_.erase(session);
  if (const auto* server = std::get_if<Server>(&member.role)) LoseServer(*server, why);
  if (const auto* worker = std::get_if<Worker>(&member.role)) LoseWorker(*worker, why);
}

void JobCore::LoseServer(const Server& server, const std::string& why) {
  servers_.erase(server.info.server);
  statistics_.RetireServer(server.info.server);
  stalls_.Remove(server.info.server);
  if (collection_) return collection_->Remove(server.info.server);
  if (phase_ == JobPhase::kSucceeded) return UpdateCheckpointServers();
  if (failed_at_) return;
  const std::string who =
      absl::StrCat(ToString(server.info.server), " (", server.info.data_address, ")");
  losses_.LoseServer(server.info.server);
  const ReplicaChange change = replicas_.LoseServer(server.info.server);
  const bool is_end = !change.lost.empty() && !MayRepair();
  // A job can begin without a server beside a worker that was to hold nothing yet.
  const bool is_to_hold =
      !WorkerBeside(server.info.server) ||
      std::find(primaries_.begin(), primaries_.end(), server.info.server) != primaries_.end();
  if ((replicas_.table().empty() && is_to_hold) || is_end || first_entries_) {
    const bool lacks_steps = options_.repairs_losses && !change.lost.empty() && !MayRepair();
    Fail(absl::StrCat(
        who, " is lost: ", why, lacks_steps ? absl::StrCat("; ", WhyNotRepaired()) : ""));
    // Workers with a push under way say next which tensor and step it was.
    if (agreement_.active().members.empty()) phase_ = JobPhase::kFailed;
    return;
  }
  if (server.is_leaving) {
    Say(absl::StrCat(who, " has gone"));
  } else if (change.lost.empty()) {
    Say(absl::StrCat(who, " is lost: ", why, "; its shards go to others"), true);
  } else {
    Say(absl::StrCat(who, " is lost: ", why), true);
  }
  UpdateServers();
  Carry(change);
  if (server.leave_turn > 0 || HasLeavingServers()) Retarget();
}

void JobCore::LoseWorker(const Worker& worker, const std::string& why) {
  const WorkerId id = worker.info.worker;
  workers_.OnGone(id);
  statistics_.RetireWorker(id);
  if (collection_) return collection_->Remove(id);
  if (!worker.is_leaving) {
    Say(absl::StrCat(ToString(id), " is lost: ", why, "; the others go on without it"), true);
  }
  Carry(agreement_.Remove(id));
}

void JobCore::Fail(const std::string& text, uint32_t exit_code) {
  failure_ = text;
  failure_exit_code_ = exit_code;
  failed_at_ = now_;
  ended_at_ = now_;
  Say(absl::StrCat("the job fails: ", text), true);
  if (checkpoints_) Carry(checkpoints_->GiveUp());
  StopAll(absl::UnavailableError(text));
}

void JobCore::StopAll(const absl::Status& status) {
  for (const auto& [session, member] : members_) Send(session, Stop{status, options_.term});
}

// ---- the way to the first step ----

void JobCore::PrepareCatalog() {
  std::vector<double> weights;
  for (const auto& [server, session] : servers_) {
    weights.push_back(Find<Server>(session)->info.weight);
    Carry(replicas_.AddServer(server, weights.back()));
  }
  Retarget();
  // Placement counts servers from 0 on; those beside workers have other numbers.
  absl::StatusOr<std::vector<ServerId>> places = AssignShards(weights);
  if (!places.ok()) return Fail(absl::StrCat("placing shards: ", places.status().message()));
  const std::set<ServerId> there = ServersThere();
  const std::vector<ServerId> ids(there.begin(), there.end());
  primaries_.clear();
  for (const ServerId place : *places) primaries_.push_back(ids[place.value()]);
  catalog_.SetServers(*std::move(places), std::move(weights));
  UpdateServers();
  if (!catalog_.tensors().empty()) {  // placed by an earlier coordinator, and still without values
    SendToServers(InstallTensors{catalog_.version(), catalog_.tensors()});
    PlaceShards();
  }
  RegisterWaiting();
}

void JobCore::PlaceShards() {
  std::vector<ReplicaAgreement::FirstEntry> entries;
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const uint64_t bytes = catalog_.shard_bytes()[shard];
    if (bytes > 0) entries.push_back({ShardId{shard}, bytes, primaries_[shard]});
  }
  ReplicaChange first = replicas_.Place(entries);
  if (options_.restore) return RestoreThen(std::move(first));
  PlaceFirst(first);
}

// Where shards are placed at first may be about to leave, and servers that have come since then get
// theirs now.
void JobCore::PlaceFirst(const ReplicaChange& first) {
  Carry(first, true);
  if (!HasLeavingServers() && !options_.has_colocated_servers) return;
  target_.clear();
  Retarget();
}

void JobCore::RegisterWaiting() {
  for (const auto& [session, request] : std::exchange(waiting_, {})) {
    Worker* worker = Find<Worker>(session);
    if (worker == nullptr) continue;
    const bool is_first = catalog_.tensors().empty();
    absl::Status registered =
        CheckCodecs(request.tensors, CodecRulesIn(agreement_.active().consistency));
    if (registered.ok()) registered = catalog_.Register(worker->info.worker, request.tensors);
    if (!registered.ok()) {
      Refuse(session, registered);
      continue;
    }
    worker->has_registered_tensors = true;
    RemindOfMembership(session, *worker);
    if (is_first) {
      if (!IsRestorable(request.tensors)) return;
      SendToServers(InstallTensors{catalog_.version(), catalog_.tensors()});
      PlaceShards();
    }
  }
  AdmitReady();
}

void JobCore::AdmitReady() {
  if (catalog_.tensors().empty() || !AllServersHave(catalog_.version())) return;
  if (first_entries_) return;
  if (mode_switch_.is_under_way() || losses_.is_under_way()) return;  // then
  std::map<WorkerId, Incarnation> ready;
  size_t registered = 0;
  for (const auto& [session, member] : members_) {
    const auto* worker = std::get_if<Worker>(&member.role);
    if (worker == nullptr || !worker->has_registered_tensors || worker->is_leaving) continue;
    ++registered;
    if (!agreement_.IsMember(worker->info.worker))
      ready[worker->info.worker] = worker->info.incarnation;
  }
  if (!started_at_ && registered < options_.settings.workers) return;
  Carry(agreement_.Join(ready));
}

void JobCore::Carry(ViewChange change) {
  if (change.activate) {
    SendToServers(ActivateView{*change.activate});
    SendToWorkers(ActivateView{*change.activate});
    UpdateCheckpointWorkers();
  }
  for (const ViewMember& member : change.admitted) {
    // A restored job has values everywhere.
    const bool is_fresh = member.from_step == Step{0} && !options_.restore;
    Send(SessionOfWorker(member.worker),
         TensorsRegistered{catalog_.tensors(), member.from_step, is_fresh});
    Say(absl::StrCat(ToString(member.worker), " contributes from step ", member.from_step.value()));
  }
  if (!change.admitted.empty() && !started_at_) {
    started_at_ = now_;
    phase_ = JobPhase::kRunning;
    if (checkpoints_) checkpoints_->Start(now_);
  }
  if (change.propose) SendToServers(ProposeView{*change.propose});
}

void JobCore::Carry(const ReplicaChange& change, bool are_first) {
  if (!change.entries.empty()) {
    const SetReplicas message{change.entries, are_first};
    SendToServers(message);
    SendToWorkers(message);
  }
  for (const auto& [server, handover] : change.handovers) {
    const auto session = servers_.find(server);
    if (session != servers_.end()) Send(session->second, handover);
  }
  if (!change.lost.empty() && !failed_at_) {
    if (MayRepair()) {
      BeginRepair(change.lost);
      return ReleaseDrained();
    }
    Fail(absl::StrCat("shard ",
                      change.lost.front().value(),
                      change.lost.size() > 1
                          ? absl::StrCat(" and ", change.lost.size() - 1, " more have")
                          : " has",
                      " no server left that holds their state"));
  }
  ReleaseDrained();
}

// ---- small parts ----

void JobCore::Send(SessionId session, ToMember message) {
  commands_.push_back(SendMessage{session, std::move(message)});
}

void JobCore::SendToServers(const ToMember& message) {
  for (const auto& [server, session] : servers_) Send(session, message);
}

void JobCore::SendToWorkers(const ToMember& message) {
  for (const auto& [session, member] : members_) {
    if (std::holds_alternative<Worker>(member.role)) Send(session, message);
  }
}

void JobCore::Say(std::string text, bool is_problem) {
  commands_.push_back(Announce{is_problem, std::move(text)});
}

Welcome JobCore::MakeWelcome() const {
  const auto heartbeat = std::chrono::duration_cast<std::chrono::milliseconds>(options_.heartbeat);
  return {options_.term, options_.settings, static_cast<uint32_t>(heartbeat.count())};
}

SetServers JobCore::MakeServerList() const {
  SetServers list{
      .servers = {},
      .wanted = {
          .revision = wanted_revision_, .servers = wanted_servers_, .workers = workers_.wanted()}};
  for (const auto& [server, session] : servers_) {
    const RegisterServer& info = std::get<Server>(members_.at(session).role).info;
    list.servers.push_back({server, info.incarnation, info.data_address, info.lanes});
  }
  return list;
}

SetReplicas JobCore::MakeReplicas() const {
  SetReplicas replicas;
  for (const auto& [shard, entry] : replicas_.table()) replicas.entries.emplace_back(shard, entry);
  return replicas;
}

std::set<ServerId> JobCore::ServersThere() const {
  std::set<ServerId> servers;
  for (const auto& [server, session] : servers_) servers.insert(server);
  return servers;
}

bool JobCore::AllServersHave(uint64_t table_version) const {
  return std::all_of(servers_.begin(), servers_.end(), [&](const auto& entry) {
    return std::get<Server>(members_.at(entry.second).role).table_version >= table_version;
  });
}

SessionId JobCore::SessionOfWorker(WorkerId worker) const {
  for (const auto& [session, member] : members_) {
    const auto* role = std::get_if<Worker>(&member.role);
    if (role != nullptr && role->info.worker == worker) return session;
  }
  return SessionId{};
}

}  // namespace pushpull
