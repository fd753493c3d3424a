// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/server/push_checks.h"
#include "runtime/server/sample_chunk.h"

namespace pushpull {
namespace {

bool HasValues(FrameType type) {
  return type == FrameType::kInit || type == FrameType::kPush || type == FrameType::kPushPull;
}

// A pull with keys, which exists only for chunks of rows, has one too.
bool HasPayload(const FrameHeader& header) {
  return HasValues(header.type) || (header.type == FrameType::kPull && header.payload_bytes > 0);
}

bool IsFromWorker(FrameType type) {
  return HasValues(type) || type == FrameType::kPull || type == FrameType::kFetch ||
         type == FrameType::kDecided || type == FrameType::kScale ||
         type == FrameType::kReturnCopy || type == FrameType::kExchange;
}

// A step that has begun and does not complete: some workers have pushed, and for longer than
// `limit` others have not. The coordinator merges all servers' reports
// (coordinator/stall_watch.h). None if the step waits for nobody, or the first contribution came
// less than `limit` ago.
std::optional<Stall> StallOf(const Chunk& chunk,
                             const StepRules& rules,
                             SteadyTime now,
                             Duration limit) {
  const OpenStep& step = chunk.step();
  const bool waits =
      step.has_begun() && !rules.policy().AppliesEachPush() && now - step.began_at() >= limit;
  if (!waits) return std::nullopt;
  Stall stall{.step = chunk.state().version(),
              .tensor = chunk.tensor().spec.name,
              .missing = {},
              .seconds = ToSeconds(now - step.began_at()),
              .waiting = {},
              .detail = {}};
  const Admission* admitted = rules.policy().Admitted(chunk);
  rules.membership().ForEachRequired(chunk.state().version(), [&](WorkerId worker) {
    if (admitted != nullptr && !admitted->Has(worker)) return;
    const bool has_pushed = step.counted().HasCounted(worker) || step.HasHeld(worker);
    std::vector<WorkerId>& named = has_pushed ? stall.waiting : stall.missing;
    if (!absl::c_linear_search(named, worker)) named.push_back(worker);
  });
  return stall.missing.empty() ? std::nullopt : std::optional<Stall>(std::move(stall));
}

void TakeLonger(const std::optional<Stall>& other, std::optional<Stall>& kept) {
  if (other && (!kept || other->seconds > kept->seconds)) kept = other;
}

}  // namespace

Lane::Lane(LaneOptions options)
    : context_(std::move(options)),
      pages_(context_),
      responder_(context_, pages_),
      exchanges_(context_),
      engine_(context_, pages_, responder_, capture_, replication_, exchanges_),
      replication_(context_, engine_),
      capture_(context_),
      rebuilds_(context_, replication_) {}

// ---- what the coordinator decides ----

void Lane::SetDesired(const DesiredSize& desired) {
  context_.rules.SetGlobalBatch(desired.global_batch);
  if (desired.workers == context_.rules.desired_workers()) return;
  context_.rules.SetDesiredWorkers(desired.workers);
  // The leading chunk may have enough for its step now.
  if (Chunk* leading = context_.shards.Find(kLeadingChunk)) engine_.Recheck(*leading);
}

bool Lane::Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors) {
  const bool is_first = context_.shards.Install(std::move(tensors));
  for (const pushpull::SetReplicas& message : std::exchange(early_, {})) SetReplicas(message);
  return is_first;
}

std::vector<Promise> Lane::SetReplicas(const pushpull::SetReplicas& message) {
  std::vector<Promise> promises;
  // Entries may overtake the tensors, which determine the chunks of a shard.
  if (!context_.shards.is_installed()) {
    early_.push_back(message);
    return promises;
  }
  const auto via = message.are_first ? ShardMember::Via::kFirst : ShardMember::Via::kCoordinator;
  for (const auto& [id, entry] : message.entries) {
    if (!context_.shards.Update(id, entry)) continue;
    rebuilds_.DropOutdated(id, entry.epoch);
    Shard* shard = context_.shards.Find(id);
    if (shard == nullptr) continue;
    replication_.Install(*shard, entry, via);
    promises.push_back(shard->Report());
  }
  exchanges_.OnEntries();
  return promises;
}

ServerReport Lane::Report() const {
  ServerReport report = context_.shards.Report();
  report.active = context_.rules.membership().active();
  report.proposed = context_.rules.membership().proposed();
  return report;
}

void Lane::SetServers(const std::vector<ServerEndpoint>& servers) {
  replication_.incoming().SetServers(servers);
}

void Lane::BeginHandover(const Handover& message) {
  Shard* shard = context_.shards.Find(message.shard);
  if (shard == nullptr) return;
  shard->DeferHandover(message);
  engine_.BeginHandoverIfFree(*shard);
}

void Lane::Restore(RestoredChunk restored) {
  context_.shards.FindOrAdd(restored.shard);
  Chunk* chunk = context_.shards.Find(restored.chunk);
  if (chunk == nullptr) return;  // placed differently here: this server ends (Server::On)
  const absl::Status taken = chunk->Restore(std::move(restored.state));
  if (!taken.ok()) context_.notify(Failure{taken});
}

std::vector<uint64_t> Lane::CaptureSizes() const {
  std::vector<uint64_t> sizes;
  for (const auto& [id, chunk] : context_.shards.chunks()) {
    // Rows are captured as an image, and changed in place.
    if (!chunk->shard().member().is_primary() || HoldsRows(*chunk)) continue;
    sizes.push_back(chunk->state().num_bytes());
    sizes.push_back(chunk->state().state_bytes());
  }
  return sizes;
}

ViewAnswer Lane::Propose(const View& view) {
  const Step lowest_free = LowestFreeStep(view);
  const bool is_accepted = context_.rules.Propose(view, lowest_free);
  replication_.incoming().OnViewChanged();
  return {view.number, is_accepted, lowest_free};
}

// The first step that no chunk has begun: there a joiner may start or, if `view` changes the mode,
// the new mode.
Step Lane::LowestFreeStep(const View& view) const {
  const View& active = context_.rules.membership().active();
  const Consistency& now = active.consistency;
  const bool has_begun = active.number > 0;
  const bool changes_mode = has_begun && view.consistency != now;
  const bool has_clocks = absl::c_any_of(context_.shards.chunks(), [](const auto& chunk) {
    return chunk.second->clocks().Highest() > Step{};
  });
  // A job that begins from a checkpoint of Async or Bounded continues by its clocks.
  const bool counts_versions =
      view.consistency.is_sync() || (now.is_sync() && (has_begun || !has_clocks));
  Step highest = now.from_step;
  for (const auto& [id, chunk] : context_.shards.chunks()) {
    highest = std::max(highest, chunk->clocks().Highest());
    if (counts_versions) highest = std::max(highest, chunk->state().version());
  }
  // The step of the highest version may be under way, except before the first view and between two
  // modes.
  const bool is_under_way = now.is_sync() && !changes_mode && has_begun;
  const Step lowest = is_under_way ? Step{highest.value() + 1} : highest;
  // An exchange of this step has completed without the joiner.
  const std::optional<Step> exchanged = exchanges_.highest_completed();
  return exchanged ? std::max(lowest, Step{exchanged->value() + 1}) : lowest;
}

void Lane::Activate(const View& view) {
  // Connections of departed workers end before steps are rechecked: a payload that is still being
  // received would keep its chunk's step from completing.
  const View before = context_.rules.membership().active();
  const StepRules::Contributions contributions = context_.rules.Activate(view);
  DropDeparted(before, view);
  for (const auto& [id, chunk] : context_.shards.chunks())
    engine_.OnViewActivated(*chunk, contributions);
  exchanges_.OnViewActivated();
  for (const auto& [id, shard] : context_.shards.all()) engine_.BeginHandoverIfFree(*shard);
  replication_.incoming().OnViewChanged();
}

// Fences departed workers: payloads on their way from them never count, and they never accept those
// on their way to them.
void Lane::DropDeparted(const View& before, const View& now) {
  std::vector<Connection*> departed;
  for (const auto& [key, connection] : connections_) {
    const Hello& hello = connection->hello();
    const ViewMember* was = before.Find(hello.worker);
    const ViewMember* is = now.Find(hello.worker);
    const bool was_member = was != nullptr && was->incarnation == hello.incarnation;
    const bool is_member = is != nullptr && is->incarnation == hello.incarnation;
    if (was_member && !is_member) departed.push_back(connection.get());
  }
  for (Connection* connection : departed) Drop(*connection);
}

ServerStats Lane::Stats() const {
  const Duration limit = std::min<Duration>(context_.rules.settings().stall, Stall::kReportedAfter);
  ServerStats stats;
  engine_.AddTo(stats);
  stats.bytes_replicated = replication_.bytes_sent();
  stats.bytes_copied = replication_.incoming().bytes_copied();
  for (const auto& [id, chunk] : context_.shards.chunks()) {
    if (!chunk->shard().member().is_primary()) continue;
    const Step version = chunk->state().version();
    stats.bytes_owned += OwnedBytes(chunk->state());
    stats.lowest_version = stats.chunks == 0 ? version : std::min(stats.lowest_version, version);
    stats.highest_version = std::max(stats.highest_version, version);
    ++stats.chunks;
    stats.batch = std::max(stats.batch, BatchOf(*chunk));
    const GradientNoise noise = chunk->step().sum().noise().average();
    stats.gradient_squares += noise.squares;
    stats.gradient_variance += noise.variance;
    TakeLonger(StallOf(*chunk, context_.rules, context_.executor.Now(), limit), stats.stall);
  }
  return stats;
}

ServerStats Sum(std::span<const ServerStats> lanes) {
  ServerStats total;
  for (const ServerStats& lane : lanes) {
    total.bytes_owned += lane.bytes_owned;
    total.duplicates += lane.duplicates;
    total.bytes_replicated += lane.bytes_replicated;
    total.bytes_copied += lane.bytes_copied;
    total.batch = std::max(total.batch, lane.batch);
    total.gradient_squares += lane.gradient_squares;
    total.gradient_variance += lane.gradient_variance;
    TakeLonger(lane.stall, total.stall);
    if (lane.contributors_max > 0) {
      total.contributors_min = total.contributors_max == 0
                                   ? lane.contributors_min
                                   : std::min(total.contributors_min, lane.contributors_min);
      total.contributors_max = std::max(total.contributors_max, lane.contributors_max);
    }
    if (lane.chunks == 0) continue;
    total.lowest_version = total.chunks == 0 ? lane.lowest_version
                                             : std::min(total.lowest_version, lane.lowest_version);
    total.highest_version = std::max(total.highest_version, lane.highest_version);
    total.chunks += lane.chunks;
  }
  return total;
}

// ---- connections ----

void Lane::Adopt(const Hello& hello, std::unique_ptr<Channel> channel) {
  if (hello.server) return replication_.Adopt(hello, std::move(channel));
  auto connection = std::make_unique<Connection>(*this, num_adopted_++, hello, std::move(channel));
  Connection& adopted = *connection;
  connections_.emplace(&adopted, std::move(connection));
  adopted.channel().Start(adopted);
  DropOldestStranger();
}

// Workers may connect before their view arrives; at the start of a job all of them do.
void Lane::DropOldestStranger() {
  const MembershipView& membership = context_.rules.membership();
  const View& active = membership.active();
  const size_t workers = std::max<size_t>(active.members.size(), context_.rules.desired_workers());
  if (connections_.size() <= kStrangersMax + 2 * workers) return;
  Connection* oldest = nullptr;
  for (const auto& [key, connection] : connections_) {
    const WorkerId worker = connection->hello().worker;
    const bool is_proposed =
        membership.proposed() && membership.proposed()->Find(worker) != nullptr;
    if (is_proposed || active.Find(worker) != nullptr) continue;
    if (oldest == nullptr || connection->number() < oldest->number()) oldest = connection.get();
  }
  if (oldest == nullptr) return;
  context_.metrics.AddError(ServerError::kRejected);
  Drop(*oldest);
}

void Lane::Drop(Connection& connection) {
  const auto it = connections_.find(&connection);
  if (it == connections_.end()) return;
  connection.channel().Close();
  Chunk* receiver = connection.reception().chunk;
  engine_.AbandonReception(connection);
  for (const auto& [id, chunk] : context_.shards.chunks()) chunk->DropRequestsOf(connection);
  exchanges_.OnDropped(connection);
  // Its own callback may be on the stack: it is destroyed after that has returned.
  context_.executor.Post([doomed = std::shared_ptr<Connection>(std::move(it->second))] {});
  connections_.erase(it);
  if (receiver != nullptr) engine_.Recheck(*receiver);
}

// ---- a worker's frames ----

// The chunk that can receive the frame's payload; null if there is none. Looked up once per frame:
// the reception keeps it until the frame is complete.
Chunk* Connection::FindReceiver(const FrameHeader& header) {
  if (reception_.chunk != nullptr || !HasPayload(header)) return reception_.chunk;
  Chunk* chunk = lane_.context_.shards.Find(header.chunk);
  const bool may_receive =
      chunk != nullptr && chunk->shard().member().is_open() && CheckPayload(*chunk, header).ok();
  if (may_receive) reception_.chunk = chunk;
  return reception_.chunk;
}

std::span<std::byte> Connection::PayloadBuffer(Channel&, const FrameHeader& header) {
  if (header.type == FrameType::kReturnCopy) return lane_.rebuilds_.PlaceCopy(reception_, header);
  if (header.type == FrameType::kExchange) return lane_.exchanges_.PlacePayload(reception_, header);
  Chunk* chunk = FindReceiver(header);
  return chunk == nullptr ? std::span<std::byte>()
                          : lane_.engine_.PlacePayload(*this, *chunk, header);
}

bool Connection::TakesInPlace(Channel&, const FrameHeader& header) {
  Chunk* chunk = FindReceiver(header);
  return chunk != nullptr && IsPush(header.type) &&
         lane_.engine_.TakesInPlace(*this, *chunk, header);
}

void Connection::OnFrame(Channel&, const ReceivedFrame& frame) {
  const FrameHeader& header = frame.header;
  if (header.worker != hello_.worker || header.incarnation != hello_.incarnation) {
    return Violate(absl::StrCat(
        "a frame of ", ToString(header.worker), " on the connection of ", ToString(hello_.worker)));
  }
  if (!IsFromWorker(header.type)) {
    return Violate(absl::StrCat("frame type ", static_cast<int>(header.type), " from a worker"));
  }
  if (header.type == FrameType::kReturnCopy) return OnCopy(header);
  if (header.type == FrameType::kExchange) {
    if (!lane_.exchanges_.OnFrame(*this, frame).ok()) Violate("an exchange that cannot be read");
    return;
  }
  // The checks of the header still hold here, except for the shard: it may have moved while the
  // payload was being received.
  const bool is_checked = reception_.chunk != nullptr;
  Chunk* chunk = is_checked ? reception_.chunk : lane_.context_.shards.Find(header.chunk);
  if (chunk == nullptr || !chunk->shard().member().is_open()) {
    lane_.engine_.AbandonReception(*this);
    return lane_.responder_.Redirect(*this, header);
  }
  if (HasPayload(header) && !is_checked) {
    const absl::Status fits = CheckPayload(*chunk, header);
    if (!fits.ok()) return lane_.responder_.Refuse(*this, header, fits);
  }
  // Before the push itself is judged: the admission says whether it counts.
  if (!lane_.engine_.LearnAdmission(*chunk, frame).ok())
    return Violate("an admission that cannot be read");
  switch (header.type) {
    case FrameType::kDecided:
      return;  // it has only the admission
    case FrameType::kScale:
      return lane_.engine_.OnScale(*chunk, header);
    case FrameType::kInit:
      return lane_.engine_.OnInit(*this, *chunk, header);
    case FrameType::kFetch:
    case FrameType::kPull:
      return lane_.engine_.OnRead(*this, *chunk, header);
    default:
      return lane_.engine_.OnPush(*this, *chunk, frame);
  }
}

void Connection::OnCopy(const FrameHeader& header) {
  Reception reception = std::exchange(reception_, Reception{});
  const std::optional<ShardId> shard = lane_.context_.shards.ShardOf(header.chunk);
  if (!shard) return Violate("a copy of a chunk that does not exist");
  const absl::Status taken = lane_.rebuilds_.TakeCopy(*shard, std::move(reception), header);
  if (!taken.ok()) lane_.responder_.Refuse(*this, header, taken);
}

void Connection::OnPayloadLost(Channel&, const FrameHeader&) {
  Chunk* chunk = reception_.chunk;
  lane_.engine_.AbandonReception(*this);
  // Others may have waited for the sum.
  if (chunk != nullptr) lane_.engine_.Recheck(*chunk);
}

void Connection::OnClosed(Channel&, const absl::Status& why) {
  lane_.context_.metrics.AddError(absl::IsDataLoss(why) ? ServerError::kBadFrame
                                                        : ServerError::kConnectionLost);
  lane_.context_.log.Debug("connection closed",
                           {{"worker", ToString(hello_.worker)}, {"why", why.message()}});
  lane_.Drop(*this);
}

void Connection::Violate(const std::string& what) {
  lane_.context_.metrics.AddError(ServerError::kBadFrame);
  lane_.context_.log.Warning("connection closed: protocol violation",
                             {{"worker", ToString(hello_.worker)}, {"what", what}});
  lane_.Drop(*this);
}

}  // namespace pushpull
