// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/server.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/optim/optimizer.h"

namespace pushpull {
namespace {

// For a leaving server that no coordinator has welcomed: one may have registered it and given it
// shards, with its Welcome still on the way; otherwise nobody knows of this server.
constexpr Duration kWelcomeTimeout = std::chrono::seconds(2);

// Minimum time between two log lines about peers without certificates.
constexpr Duration kStrangerPeriod = std::chrono::seconds(10);

bool ArePlacedAlike(const std::vector<PlacedTensor>& a, const std::vector<PlacedTensor>& b) {
  return absl::c_equal(a, b, [](const PlacedTensor& one, const PlacedTensor& other) {
    return one.first_chunk == other.first_chunk && one.shards == other.shards;
  });
}

std::string WithHost(const std::string& address, const std::string& host) {
  return host.empty() ? address : absl::StrCat(host, address.substr(address.rfind(':')));
}

// Whether a checkpoint may have something of the shard that the workers lack.
bool NeedsCheckpoint(const RebuildShard& order, const std::vector<PlacedTensor>& tensors) {
  if (order.checkpoint.empty()) return false;
  const bool needs_value = absl::c_any_of(order.chunks, [](const RebuiltChunk& chunk) {
    return chunk.source == RebuiltChunk::Source::kCheckpoint;
  });
  return needs_value || absl::c_any_of(tensors, [&](const PlacedTensor& tensor) {
           return StateFloatsPerValue(tensor.spec.optimizer) > 0 &&
                  absl::c_linear_search(tensor.shards, order.shard);
         });
}

// Reads the shard from the checkpoint; returns the checkpoint's step.
absl::StatusOr<Step> ReadStored(FileSystem& files,
                                const RebuildShard& order,
                                const std::vector<PlacedTensor>& tensors,
                                const std::function<absl::Status(RestoredChunk)>& deliver) {
  PUSHPULL_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                            ReadManifest(files, order.checkpoint));
  PUSHPULL_RETURN_IF_ERROR(ReadChunks(
      files,
      {.folder = order.checkpoint, .sequence = manifest.sequence, .shards = {order.shard}},
      tensors,
      deliver));
  return manifest.step;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options,
                                                      ServerDependencies dependencies,
                                                      Log log,
                                                      EndHandler on_end) {
  std::unique_ptr<Server> server(
      new Server(std::move(options), dependencies, std::move(log), std::move(on_end)));
  PUSHPULL_ASSIGN_OR_RETURN(server->listener_,
                            dependencies.transport.Listen(server->options_.listen, *server));
  server->data_address_ =
      absl::StrCat(dependencies.transport.scheme(),
                   WithHost(server->listener_->address(), server->options_.advertise_host));
  const auto registration = [who = server.get()](Term promised) {
    return RegisterServer{.server = who->options_.server,
                          .incarnation = who->options_.incarnation,
                          .data_address = who->data_address_,
                          .metrics_address = who->options_.metrics_address,
                          .lanes = static_cast<uint32_t>(who->lanes_->size()),
                          .weight = who->options_.weight,
                          .pid = static_cast<uint64_t>(getpid()),
                          .promised = promised,
                          .rack = who->options_.rack};
  };
  server->session_.emplace(server->options_.session,
                           dependencies.coordinator,
                           dependencies.control,
                           *server,
                           registration,
                           server->log_);
  return server;
}

Server::Server(ServerOptions options, ServerDependencies dependencies, Log log, EndHandler on_end)
    : options_(std::move(options)),
      dependencies_(dependencies),
      log_(std::move(log)),
      on_end_(std::move(on_end)),
      busy_since_(dependencies.control.Now()),
      self_(std::make_shared<Server*>(this)) {
  const size_t lane_count = dependencies_.transport.lane_count();
  const CoordinatorNotifier notify = [post = Poster()](FromMember message) {
    post([message = std::move(message)](Server& server) { server.session_->Send(message); });
  };
  writer_ = std::make_shared<CheckpointWriter>(
      options_.server, lane_count, dependencies_.disk, dependencies_.files, notify);
  lanes_.emplace(dependencies_.transport, dependencies_.control, [&](size_t index) {
    return std::make_shared<Lane>(LaneOptions{.job = options_.job,
                                              .server = options_.server,
                                              .incarnation = options_.incarnation,
                                              .index = index,
                                              .lane_count = lane_count,
                                              .fault_point = options_.fault_point,
                                              .retry_after = options_.ask_again_after,
                                              .transport = dependencies_.transport,
                                              .metrics = dependencies_.metrics,
                                              .writer = writer_,
                                              .log = log_,
                                              .notify = notify});
  });
  timer_ = dependencies_.control.RunAfter(heartbeat_, [this] { SendHeartbeat(); });
}

Server::~Server() {
  self_.reset();
  writer_->Abandon();
  dependencies_.control.Cancel(timer_);
  session_.reset();
  listener_.reset();
  lanes_.reset();
}

void Server::Leave() {
  if (std::exchange(is_leaving_, true)) return;
  log_.Info("leaving: hands its shards to others");
  session_->Send(DrainRequest{});
}

// ---- the coordinator ----

void Server::OnMessage(ToMember message) {
  std::visit([&](const auto& alternative) { On(alternative); }, message);
}

void Server::OnClosed(const absl::Status& why) {
  End(absl::UnavailableError(absl::StrCat("the coordinator is lost: ", why.message())));
}

void Server::On(const Welcome& message) {
  heartbeat_ = std::chrono::milliseconds(message.heartbeat_milliseconds);
  dependencies_.control.Cancel(timer_);
  timer_ = dependencies_.control.RunAfter(heartbeat_, [this] { SendHeartbeat(); });
  const JobSettings settings = message.settings;
  lanes_->PostToAll([settings, term = message.term](Lane& lane) {
    lane.PromiseTerm(term);
    lane.Configure(settings);
  });
  if (is_leaving_) session_->Send(DrainRequest{});
  is_ready_ = true;
  log_.Info("registered", {{"job", settings.job}, {"term", message.term.value()}});
}

void Server::On(const SetReplicas& message) {
  lanes_->Ask([message](Lane& lane) { return lane.SetReplicas(message); },
              [this, generation = session_->generation()](const auto& lanes) {
                Promises all;
                for (const auto& promises : lanes)
                  absl::c_copy(promises, std::back_inserter(all.promises));
                if (!all.promises.empty()) Reply(generation, std::move(all));
              });
}

void Server::On(const Handover& message) {
  lanes_->Post(lanes_->IndexOf(message.shard),
               [message](Lane& lane) { lane.BeginHandover(message); });
}

void Server::On(const SetServers& message) {
  if (message.desired.revision > desired_.revision) desired_ = message.desired;
  lanes_->PostToAll([desired = desired_, servers = message.servers](Lane& lane) {
    lane.SetDesired(desired);
    lane.SetServers(servers);
  });
}

// Lanes keep the placement with which they received the tensors. A coordinator to which no server
// reported it in time places the tensors anew.
void Server::On(const InstallTensors& message) {
  if (tensors_ != nullptr && !ArePlacedAlike(*tensors_, message.tensors)) {
    return End(absl::AbortedError(
        "a new coordinator has placed the tensors otherwise: the next process of this server gets "
        "them"));
  }
  tensors_ = std::make_shared<const std::vector<PlacedTensor>>(message.tensors);
  lanes_->Ask([tensors = tensors_](Lane& lane) { return lane.Install(tensors); },
              [this, generation = session_->generation(), version = message.table_version](
                  const auto&) { Reply(generation, TensorsInstalled{version}); });
}

// Answered after the lanes have promised the term: from then on no earlier coordinator's decision
// can change what they report.
void Server::On(const Collect& message) {
  lanes_->Ask([](Lane& lane) { return lane.Report(); },
              [this, generation = session_->generation(), term = message.term](const auto& lanes) {
                ServerReport all = lanes.front();
                for (size_t i = 1; i < lanes.size(); ++i) {
                  const ServerReport& lane = lanes[i];
                  absl::c_copy(lane.entries, std::back_inserter(all.entries));
                  absl::c_copy(lane.promises, std::back_inserter(all.promises));
                  // A lane may have refused what another accepted.
                  if (lane.proposed != all.proposed) all.proposed.reset();
                }
                all.term = term;
                all.desired = desired_;
                Reply(generation, std::move(all));
              });
  SendStats();
}

std::function<void(std::function<void(Server&)>)> Server::Poster() const {
  return [self = std::weak_ptr<Server*>(self_),
          &control = dependencies_.control](std::function<void(Server&)> task) {
    control.Post([self, task = std::move(task)] {
      if (const auto server = self.lock()) task(**server);
    });
  };
}

void Server::Reply(uint64_t generation, FromMember message) {
  if (generation == session_->generation()) session_->Send(std::move(message));
}

void Server::On(const ProposeView& message) {
  const View view = message.view;
  lanes_->Ask([view](Lane& lane) { return lane.Propose(view); },
              [this, generation = session_->generation()](const auto& answers) {
                ViewAnswer all = answers.front();
                for (const ViewAnswer& answer : answers) {
                  all.is_accepted = all.is_accepted && answer.is_accepted;
                  all.lowest_free_step = std::max(all.lowest_free_step, answer.lowest_free_step);
                }
                Reply(generation, all);
              });
}

void Server::On(const ActivateView& message) {
  const View view = message.view;
  log_.Info("view", {{"number", view.number}, {"members", view.members.size()}});
  lanes_->PostToAll([view](Lane& lane) { lane.Activate(view); });
  // A short job may be over before the next heartbeat.
  SendStats();
}

// ---- checkpoints ----

void Server::On(const Capture& message) {
  writer_->Begin(message);
  lanes_->Ask([](Lane& lane) { return lane.CaptureSizes(); },
              [this, message](const auto& lanes) {
                std::vector<uint64_t> sizes;
                // Nothing changes after the last step.
                for (const auto& lane : lanes)
                  if (!message.is_last) absl::c_copy(lane, std::back_inserter(sizes));
                writer_->Prepare(message.attempt, std::move(sizes), [message, post = Poster()] {
                  post([message](Server& server) { server.BeginCapture(message); });
                });
              });
}

void Server::BeginCapture(const Capture& message) {
  if (!writer_->is_wanted(message.attempt)) return;
  lanes_->PostToAll([message](Lane& lane) { lane.BeginCapture(message); });
}

void Server::On(const EndCapture& message) {
  writer_->End(message.attempt);
  lanes_->PostToAll([attempt = message.attempt](Lane& lane) { lane.EndCapture(attempt); });
}

// For the disk's thread: posts each chunk that was read to its lane, which calls `take`.
Server::ChunkDelivery Server::DeliverTo(std::function<void(Lane&, RestoredChunk)> take) {
  return [take = std::move(take), post = lanes_->remote(), self = std::weak_ptr<Server*>(self_)](
             RestoredChunk chunk) -> absl::Status {
    if (self.expired()) return absl::CancelledError("the server ends");
    const ShardId shard = chunk.shard;
    const auto moved = std::make_shared<RestoredChunk>(std::move(chunk));
    post(shard, [take, moved](Lane& lane) { take(lane, std::move(*moved)); });
    return absl::OkStatus();
  };
}

// The coordinator is notified once every lane has taken all chunks posted to it.
void Server::On(const Restore& message) {
  if (tensors_ == nullptr) return;
  log_.Info("restoring", {{"folder", message.folder}, {"shards", message.shards.size()}});
  const auto deliver =
      DeliverTo([](Lane& lane, RestoredChunk chunk) { lane.Restore(std::move(chunk)); });
  dependencies_.disk.Post([message,
                           deliver,
                           generation = session_->generation(),
                           tensors = tensors_,
                           post = Poster(),
                           &files = dependencies_.files] {
    const absl::Status read = ReadChunks(files, message, *tensors, deliver);
    post([read, generation](Server& server) {
      server.lanes_->Ask(
          [](Lane&) { return true; },
          [&server, read, generation](const auto&) { server.Reply(generation, Restored{read}); });
    });
  });
}

// Reads a lost shard from the job's newest checkpoint, if needed; the lane does the rest
// (lane_rebuilds.h).
void Server::On(const RebuildShard& message) {
  if (tensors_ == nullptr) return;
  const ShardId shard = message.shard;
  const Epoch epoch = message.entry.epoch;
  const bool reads_checkpoint = NeedsCheckpoint(message, *tensors_);
  lanes_->Post(lanes_->IndexOf(shard), [message, reads_checkpoint](Lane& lane) {
    lane.rebuilds().Begin(message, reads_checkpoint);
  });
  if (!reads_checkpoint) return;
  const auto deliver = DeliverTo([epoch](Lane& lane, RestoredChunk chunk) {
    lane.rebuilds().TakeStored(epoch, std::move(chunk));
  });
  dependencies_.disk.Post([message,
                           deliver,
                           shard,
                           epoch,
                           tensors = tensors_,
                           post = lanes_->remote(),
                           &files = dependencies_.files] {
    const absl::StatusOr<Step> read = ReadStored(files, message, *tensors, deliver);
    post(shard, [=](Lane& lane) { lane.rebuilds().EndReading(shard, epoch, read); });
  });
}

void Server::On(const Stop& message) {
  // To the end handler kUnavailable means that the coordinator cannot be reached, but it can.
  End(absl::IsUnavailable(message.status) ? absl::AbortedError(message.status.message())
                                          : message.status);
}

void Server::End(const absl::Status& status) {
  is_ready_ = false;
  if (const EndHandler on_end = std::exchange(on_end_, nullptr)) on_end(status);
}

void Server::SendHeartbeat() {
  timer_ = dependencies_.control.RunAfter(heartbeat_, [this] { SendHeartbeat(); });
  UpdateBusyRatio();
  SendStats();
  EndIfAlone();
}

void Server::EndIfAlone() {
  if (!is_leaving_ || session_->is_open()) return alone_since_.reset();
  const SteadyTime now = dependencies_.control.Now();
  if (!alone_since_) alone_since_ = now;
  const bool is_known = session_->promised() != Term{};
  if (now - *alone_since_ < (is_known ? options_.leaves_alone_after : kWelcomeTimeout)) return;
  if (is_known) log_.Warning("leaves with what it holds: no coordinator");
  End(absl::OkStatus());
}

void Server::SendStats() {
  lanes_->Ask([](Lane& lane) { return lane.Stats(); },
              [this](const auto& lanes) {
                ServerStats stats = Sum(lanes);
                if (options_.busy_time) {
                  stats.busy_seconds =
                      ToSeconds(options_.busy_time()) / static_cast<double>(lanes.size());
                }
                dependencies_.metrics.SetBytesOwned(stats.bytes_owned);
                dependencies_.metrics.SetStep(stats.highest_version.value());
                session_->Send(Heartbeat{stats});
              });
}

void Server::UpdateBusyRatio() {
  if (!options_.busy_time) return;
  const SteadyTime now = dependencies_.control.Now();
  const Duration busy = options_.busy_time();
  const double available = ToSeconds(now - busy_since_) * static_cast<double>(lanes_->size());
  if (available > 0)
    dependencies_.metrics.SetBusyRatio(std::min(1.0, ToSeconds(busy - busy_before_) / available));
  busy_since_ = now;
  busy_before_ = busy;
}

// ---- the workers ----

absl::Status Server::Admit(const Hello& hello) {
  if (hello.job != options_.job) {
    return absl::PermissionDeniedError(absl::StrCat(
        ToString(options_.server), " serves job \"", options_.job, "\", not \"", hello.job, "\""));
  }
  if (hello.lane >= lanes_->size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(options_.server), " has ", lanes_->size(), " lanes, asked for ", hello.lane));
  }
  return absl::OkStatus();
}

void Server::OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) {
  lanes_->lane(hello.lane).Adopt(hello, std::move(channel));
}

void Server::OnRejected(const absl::Status& why) {
  dependencies_.metrics.AddError(ServerError::kRejected);
  if (absl::IsUnauthenticated(why) && MayLogStranger()) {
    log_.Warning("peer without this job's certificates refused", {{"why", why.message()}});
  } else {
    log_.Debug("connection rejected", {{"why", why.message()}});
  }
}

// A wrong certificate must be visible, but strangers must not fill the log.
bool Server::MayLogStranger() {
  const SteadyTime::rep now = dependencies_.control.Now().time_since_epoch().count();
  SteadyTime::rep due = logs_strangers_at_.load(std::memory_order_relaxed);
  const SteadyTime::rep next = now + SteadyTime::duration(kStrangerPeriod).count();
  return now >= due && logs_strangers_at_.compare_exchange_strong(due, next);
}

}  // namespace pushpull
