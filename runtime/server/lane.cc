// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/server/push_checks.h"

namespace pushpull {
namespace {

bool HasPayload(FrameType type) {
  return type == FrameType::kInit || type == FrameType::kPush || type == FrameType::kPushPull;
}

bool IsFromWorker(FrameType type) {
  return HasPayload(type) || type == FrameType::kPull || type == FrameType::kFetch ||
         type == FrameType::kDecided || type == FrameType::kReturnCopy;
}

// A step that has begun and does not complete: some workers have pushed, others have not for longer
// than spec.sync.stallSeconds. The coordinator logs one line for all servers' reports
// (coordinator/stall_watch.h). None where the step waits for nobody, or the first contribution came
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
              .seconds = ToSeconds(now - step.began_at())};
  const Admission* admitted = rules.policy().Admitted(chunk);
  rules.membership().ForEachRequired(chunk.state().version(), [&](WorkerId worker) {
    if (admitted != nullptr && !admitted->Has(worker)) return;
    const bool has_pushed = step.counted().HasCounted(worker) || step.HasHeld(worker);
    const bool is_named =
        std::find(stall.missing.begin(), stall.missing.end(), worker) != stall.missing.end();
    if (!has_pushed && !is_named) stall.missing.push_back(worker);
  });
  return stall.missing.empty() ? std::nullopt : std::optional<Stall>(std::move(stall));
}

void TakeLonger(const std::optional<Stall>& other, std::optional<Stall>& kept) {
  if (other && (!kept || other->seconds > kept->seconds)) kept = other;
}

}  // namespace

// ---- Connection ----

std::span<std::byte> Connection::PayloadBuffer(Channel&, const FrameHeader& header) {
  return lane_.PlacePayload(*this, header);
}

bool Connection::TakesInPlace(Channel&, const FrameHeader& header) {
  return lane_.TakesInPlace(*this, header);
}

void Connection::OnFrame(Channel&, const ReceivedFrame& frame) {
  lane_.OnFrame(*this, frame);
}

void Connection::OnPayloadLost(Channel&, const FrameHeader&) {
  lane_.OnPayloadLost(*this);
}

void Connection::OnClosed(Channel&, const absl::Status& why) {
  lane_.OnClosed(*this, why);
}

// ---- Lane ----

Lane::Lane(LaneOptions options)
    : lane_(std::move(options)),
      pages_(lane_),
      responder_(lane_, pages_),
      engine_(lane_, pages_, responder_, capture_, replication_),
      replication_(lane_, engine_),
      capture_(lane_),
      rebuilds_(lane_, replication_) {}

// ---- what the coordinator decides ----

void Lane::SetDesiredWorkers(uint32_t workers) {
  if (workers == lane_.rules.desired_workers()) return;
  lane_.rules.SetDesiredWorkers(workers);
  // The leading chunk may have enough for its step now.
  if (Chunk* leading = lane_.shards.Find(kLeadingChunk)) engine_.Recheck(*leading);
}

void Lane::Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors) {
  if (!lane_.shards.Install(std::move(tensors))) return;
  for (const pushpull::SetReplicas& message : std::exchange(early_, {})) SetReplicas(message);
}

std::vector<Promise> Lane::SetReplicas(const pushpull::SetReplicas& message) {
  std::vector<Promise> promises;
  // Entries may overtake the tensors that tell which chunks a shard has.
  if (!lane_.shards.is_installed()) {
    early_.push_back(message);
    return promises;
  }
  const auto via = message.are_first ? ShardMember::Via::kFirst : ShardMember::Via::kCoordinator;
  for (const auto& [id, entry] : message.entries) {
    if (!lane_.shards.Update(id, entry)) continue;
    rebuilds_.DropOutdated(id, entry.epoch);
    Shard* shard = lane_.shards.Find(id);
    if (shard == nullptr) continue;
    replication_.Install(*shard, entry, via);
    promises.push_back(shard->Report());
  }
  return promises;
}

ServerReport Lane::Report() const {
  ServerReport report = lane_.shards.Report();
  report.active = lane_.rules.membership().active();
  report.proposed = lane_.rules.membership().proposed();
  return report;
}

void Lane::SetServers(const std::vector<ServerEndpoint>& servers) {
  replication_.incoming().SetServers(servers);
}

void Lane::BeginHandover(const Handover& message) {
  Shard* shard = lane_.shards.Find(message.shard);
  if (shard == nullptr) return;
  shard->DeferHandover(message);
  engine_.BeginHandoverIfFree(*shard);
}

void Lane::Restore(RestoredChunk restored) {
  lane_.shards.FindOrAdd(restored.shard);
  lane_.shards.Find(restored.chunk)->Restore(std::move(restored.state));
}

std::vector<uint64_t> Lane::CaptureSizes() const {
  std::vector<uint64_t> sizes;
  for (const auto& [id, chunk] : lane_.shards.chunks()) {
    if (!chunk->shard().member().is_primary()) continue;
    sizes.push_back(chunk->state().num_bytes());
    sizes.push_back(chunk->state().state_bytes());
  }
  return sizes;
}

ViewAnswer Lane::Propose(const View& view) {
  const Step lowest_free = LowestFreeStep(view);
  const bool is_accepted = lane_.rules.Propose(view, lowest_free);
  replication_.incoming().OnViewChanged();
  return {view.number, is_accepted, lowest_free};
}

// The first step that a joiner of the mode in force may begin with, or with which the mode that
// `view` changes to may begin: no chunk has begun it.
Step Lane::LowestFreeStep(const View& view) const {
  const View& active = lane_.rules.membership().active();
  const Consistency& now = active.consistency;
  const bool has_begun = active.number > 0;
  const bool changes_mode = has_begun && view.consistency != now;
  const bool has_clocks = std::any_of(
      lane_.shards.chunks().begin(), lane_.shards.chunks().end(), [](const auto& chunk) {
        return chunk.second->clocks().Highest() > Step{};
      });
  // A job that begins from a checkpoint of Async or Bounded goes on by its clocks.
  const bool counts_versions =
      view.consistency.is_sync() || (now.is_sync() && (has_begun || !has_clocks));
  Step highest = now.from_step;
  for (const auto& [id, chunk] : lane_.shards.chunks()) {
    highest = std::max(highest, chunk->clocks().Highest());
    if (counts_versions) highest = std::max(highest, chunk->state().version());
  }
  // The step of the highest version may be under way, but not before the first view and between two
  // modes.
  const bool is_under_way = now.is_sync() && !changes_mode && has_begun;
  return is_under_way ? Step{highest.value() + 1} : highest;
}

void Lane::Activate(const View& view) {
  // Connections of departed workers end before steps are rechecked: a payload that is still being
  // received would keep its chunk's step from completing.
  const View before = lane_.rules.membership().active();
  const StepRules::Contributions contributions = lane_.rules.Activate(view);
  DropDeparted(before, view);
  for (const auto& [id, chunk] : lane_.shards.chunks())
    engine_.OnViewActivated(*chunk, contributions);
  for (const auto& [id, shard] : lane_.shards.all()) engine_.BeginHandoverIfFree(*shard);
  replication_.incoming().OnViewChanged();
}

// Fences departed workers: what they were sending never counts, and they never accept what they
// were being sent.
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
  ServerStats stats;
  engine_.AddTo(stats);
  stats.bytes_replicated = replication_.bytes_sent();
  stats.bytes_copied = replication_.incoming().bytes_copied();
  for (const auto& [id, chunk] : lane_.shards.chunks()) {
    if (!chunk->shard().member().is_primary()) continue;
    const Step version = chunk->state().version();
    stats.bytes_owned += chunk->state().num_bytes();
    stats.lowest_version = stats.chunks == 0 ? version : std::min(stats.lowest_version, version);
    stats.highest_version = std::max(stats.highest_version, version);
    ++stats.chunks;
    TakeLonger(StallOf(*chunk, lane_.rules, lane_.executor.Now(), lane_.rules.settings().stall),
               stats.stall);
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
  auto connection = std::make_unique<Connection>(*this, hello, std::move(channel));
  Connection& adopted = *connection;
  connections_.emplace(&adopted, std::move(connection));
  adopted.channel().Start(adopted);
}

// The chunk to which the payload of an initial value or a push can go; null where there is none.
// Looked up once for a frame: the reception keeps it until the frame is complete.
Chunk* Lane::FindReceiver(Reception& reception, const FrameHeader& header) const {
  if (reception.chunk != nullptr || !HasPayload(header.type)) return reception.chunk;
  Chunk* chunk = lane_.shards.Find(header.chunk);
  const bool may_receive =
      chunk != nullptr && chunk->shard().member().is_open() && CheckPayload(*chunk, header).ok();
  if (may_receive) reception.chunk = chunk;
  return reception.chunk;
}

std::span<std::byte> Lane::PlacePayload(Connection& connection, const FrameHeader& header) {
  Reception& reception = connection.reception();
  if (header.type == FrameType::kReturnCopy) return rebuilds_.PlaceCopy(reception, header);
  Chunk* chunk = FindReceiver(reception, header);
  return chunk == nullptr ? std::span<std::byte>()
                          : engine_.PlacePayload(connection, *chunk, header);
}

bool Lane::TakesInPlace(Connection& connection, const FrameHeader& header) {
  Chunk* chunk = FindReceiver(connection.reception(), header);
  return chunk != nullptr && IsPush(header.type) &&
         engine_.TakesInPlace(connection, *chunk, header);
}

void Lane::OnFrame(Connection& connection, const ReceivedFrame& frame) {
  const FrameHeader& header = frame.header;
  const Hello& hello = connection.hello();
  if (header.worker != hello.worker || header.incarnation != hello.incarnation) {
    return Violate(connection,
                   absl::StrCat("a frame of ",
                                ToString(header.worker),
                                " on the connection of ",
                                ToString(hello.worker)));
  }
  if (!IsFromWorker(header.type)) {
    return Violate(connection,
                   absl::StrCat("frame type ", static_cast<int>(header.type), " from a worker"));
  }
  if (header.type == FrameType::kReturnCopy) return OnCopy(connection, header);
  // What the header was checked against holds until here, but for the shard: it may have moved
  // while the payload was being received.
  const bool is_checked = connection.reception().chunk != nullptr;
  Chunk* chunk = is_checked ? connection.reception().chunk : lane_.shards.Find(header.chunk);
  if (chunk == nullptr || !chunk->shard().member().is_open()) {
    engine_.AbandonReception(connection);
    return responder_.Redirect(connection, header);
  }
  if (HasPayload(header.type) && !is_checked) {
    const absl::Status fits = CheckPayload(*chunk, header);
    if (!fits.ok()) return responder_.Refuse(connection, header, fits);
  }
  // Before the push itself is judged: the admission says whether it counts.
  if (!engine_.LearnAdmission(*chunk, frame).ok())
    return Violate(connection, "an admission that cannot be read");
  switch (header.type) {
    case FrameType::kDecided:
      return;  // the admission was all of it
    case FrameType::kInit:
      return engine_.OnInit(connection, *chunk, header);
    case FrameType::kFetch:
      return engine_.OnFetch(connection, *chunk, header);
    case FrameType::kPull:
      return engine_.OnPull(connection, *chunk, header);
    default:
      return engine_.OnPush(connection, *chunk, frame);
  }
}

void Lane::OnCopy(Connection& connection, const FrameHeader& header) {
  Reception reception = std::exchange(connection.reception(), Reception{});
  const std::optional<ShardId> shard = lane_.shards.ShardOf(header.chunk);
  if (!shard) return Violate(connection, "a copy of a chunk that does not exist");
  const absl::Status taken = rebuilds_.TakeCopy(*shard, std::move(reception), header);
  if (!taken.ok()) responder_.Refuse(connection, header, taken);
}

void Lane::OnPayloadLost(Connection& connection) {
  Chunk* chunk = connection.reception().chunk;
  engine_.AbandonReception(connection);
  // Others may have waited for the sum.
  if (chunk != nullptr) engine_.Recheck(*chunk);
}

void Lane::OnClosed(Connection& connection, const absl::Status& why) {
  lane_.metrics.AddError(absl::IsDataLoss(why) ? ServerError::kBadFrame
                                               : ServerError::kConnectionLost);
  lane_.log.Debug("connection closed",
                  {{"worker", ToString(connection.hello().worker)}, {"why", why.message()}});
  Drop(connection);
}

void Lane::Violate(Connection& connection, const std::string& what) {
  lane_.metrics.AddError(ServerError::kBadFrame);
  lane_.log.Warning("connection closed: protocol violation",
                    {{"worker", ToString(connection.hello().worker)}, {"what", what}});
  Drop(connection);
}

void Lane::Drop(Connection& connection) {
  const auto it = connections_.find(&connection);
  if (it == connections_.end()) return;
  connection.channel().Close();
  Chunk* receiver = connection.reception().chunk;
  engine_.AbandonReception(connection);
  for (const auto& [id, chunk] : lane_.shards.chunks()) chunk->DropRequestsOf(connection);
  // Its own callback may be on the stack: it is destroyed when that has returned.
  lane_.executor.Post([doomed = std::shared_ptr<Connection>(std::move(it->second))] {});
  connections_.erase(it);
  if (receiver != nullptr) engine_.Recheck(*receiver);
}

}  // namespace pushpull
