// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/server/push_refusal.h"
#include "runtime/server/sample_chunk.h"
#include "runtime/server/stall_inspector.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/reduce.h"
#include "runtime/tensor/shape.h"
#include "runtime/transport/lane.h"

namespace pushpull {
namespace {

bool HasPayload(FrameType type) {
  return type == FrameType::kInit || type == FrameType::kPush || type == FrameType::kPushPull;
}

int64_t Nanoseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

Contribution ContributionOf(const FrameHeader& push) {
  return {push.worker, push.incarnation, push.weight, push.learning_rate, push.step};
}

}  // namespace

Lane::Lane(LaneOptions options,
           Transport& transport,
           ServerMetrics& metrics,
           std::shared_ptr<CheckpointWriter> writer,
           Log log,
           Teller tell_coordinator)
    : options_(std::move(options)),
      executor_(transport.lane(options_.index)),
      metrics_(metrics),
      log_(std::move(log)),
      tell_coordinator_(std::move(tell_coordinator)),
      replication_({.job = options_.job,
                    .server = options_.server,
                    .incarnation = options_.incarnation,
                    .lane = options_.index,
                    .ask_again_after = options_.ask_again_after},
                   {transport, executor_, metrics, *pool_, *this},
                   log_),
      capture_(options_.index, executor_, std::move(writer), tell_coordinator_) {}

// ---- what the coordinator decides ----

void Lane::Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors) {
  if (tensors_ != nullptr) return;
  tensors_ = std::move(tensors);
  for (size_t t = 0; t < tensors_->size(); ++t) {
    const std::vector<ShardId>& shards = (*tensors_)[t].shards;
    shard_of_chunk_.insert(shard_of_chunk_.end(), shards.begin(), shards.end());
    for (size_t i = 0; i < shards.size(); ++i) {
      if (LaneOf(shards[i], options_.lane_count) == options_.index)
        chunks_of_shard_[shards[i]].emplace_back(t, i);
    }
  }
  for (const pushpull::SetReplicas& message : std::exchange(early_, {})) SetReplicas(message);
}

std::vector<Promise> Lane::SetReplicas(const pushpull::SetReplicas& message) {
  std::vector<Promise> promises;
  if (tensors_ == nullptr) {
    early_.push_back(message);
    return promises;
  }
  const auto via = message.are_first ? ShardMember::Via::kFirst : ShardMember::Via::kCoordinator;
  for (const auto& [shard, entry] : message.entries) {
    if (!IsShard(shard) || LaneOf(shard, options_.lane_count) != options_.index) continue;
    if (entry.epoch.term < entries_.promised()) continue;
    entries_.Update(shard, entry);
    DropRebuild(shard, entry.epoch);
    ShardSlot* slot = FindOrAdd(shard, entry);
    if (slot != nullptr) promises.push_back(replication_.Install(*slot, entry, via));
  }
  return promises;
}

void Lane::PromiseTerm(Term term) {
  entries_.Promise(term);
  for (const auto& [id, shard] : shards_) shard->member.Promise(term);
}

ServerReport Lane::Report() const {
  ServerReport report;
  if (tensors_ != nullptr) report.tensors = *tensors_;
  ShardMap known = entries_;
  for (const auto& [id, shard] : shards_) {
    // A handover may have told the member what the table has not heard of.
    known.Update(id, shard->member.entry());
    report.promises.push_back(ShardReplication::PromiseOf(*shard));
  }
  for (uint32_t i = 0; i < kShardCount; ++i) {
    const ShardId shard{i};
    if (known.is_placed(shard)) report.entries.emplace_back(shard, known.entry(shard));
  }
  report.active = membership_.active();
  report.proposed = membership_.proposed();
  return report;
}

ShardSlot* Lane::FindOrAdd(ShardId shard, const ReplicaSet& entry) {
  const auto it = shards_.find(shard);
  if (it != shards_.end()) return it->second.get();
  if (entry.RoleOf(options_.server) == ReplicaRole::kNone) return nullptr;
  return &AddShard(shard);
}

ShardSlot& Lane::AddShard(ShardId shard) {
  std::vector<ChunkSlot*> chunks;
  for (const auto& [t, i] : chunks_of_shard_[shard]) {
    const PlacedTensor& tensor = (*tensors_)[t];
    // The coordinator has checked the shape.
    const uint64_t bytes = NumBytes(tensor.spec.dims, tensor.spec.dtype).value_or(0);
    const uint64_t chunk_bytes = std::min(kChunkBytes, bytes - i * kChunkBytes);
    auto slot = std::make_unique<ChunkSlot>(tensor, i, chunk_bytes);
    slot->index_in_shard = chunks.size();
    chunks.push_back(slot.get());
    slots_.emplace(slot->id(), std::move(slot));
  }
  auto added = std::make_unique<ShardSlot>(shard, options_.server, chunks);
  added->member.Promise(entries_.promised());
  for (ChunkSlot* chunk : chunks) chunk->shard = added.get();
  replication_.Add(*added);
  return *shards_.emplace(shard, std::move(added)).first->second;
}

void Lane::SetServers(const std::vector<ServerEndpoint>& servers) {
  replication_.SetServers(servers);
}

ViewAnswer Lane::Propose(const View& view) {
  const Step lowest_free = LowestFreeStep(view);
  const bool is_accepted = membership_.Propose(view, lowest_free);
  replication_.OnViewChanged();
  return {view.number, is_accepted, lowest_free};
}

void Lane::Activate(const View& view) {
  const View before = membership_.active();
  const bool all_gone = membership_.Activate(view);
  for (const ViewMember& member : before.members) {
    const ViewMember* now = view.Find(member.worker);
    if (now != nullptr && now->incarnation == member.incarnation) continue;
    // Fenced: what it was sending will never count, what it was being sent it will never believe.
    std::vector<Connection*> gone;
    for (const auto& [key, connection] : connections_) {
      const Hello& hello = connection->hello();
      if (hello.worker == member.worker && hello.incarnation == member.incarnation)
        gone.push_back(connection.get());
    }
    for (Connection* connection : gone) Drop(*connection);
  }
  for (const auto& [chunk, slot] : slots_) {
    DropContributionsOf(*slot, before, all_gone);
    DropAsksOfTheGone(*slot);
    AddHeld(*slot);
    CompleteIfReady(*slot);
    Align(*slot);
    if (!slot->waiters.empty()) Publish(*slot);
  }
  for (const auto& [id, shard] : shards_) BeginHandoverIfFree(*shard);
  replication_.OnViewChanged();
}

void Lane::Adopt(const Hello& hello, std::unique_ptr<Channel> channel) {
  if (hello.server) return replication_.Adopt(hello, std::move(channel));
  auto connection = std::make_unique<Connection>(*this, hello, std::move(channel));
  Connection& adopted = *connection;
  connections_.emplace(&adopted, std::move(connection));
  adopted.channel().Start(adopted);
}

ServerStats Lane::Stats() const {
  ServerStats stats = stats_;
  bool is_first = true;
  stats.bytes_replicated = replication_.bytes_sent();
  stats.bytes_copied = replication_.bytes_copied();
  for (const auto& [chunk, slot] : slots_) {
    if (!slot->shard->member.reigns()) continue;
    const Step version = slot->state.version();
    stats.bytes_owned += slot->state.num_bytes();
    ++stats.chunks;
    stats.lowest_version = is_first ? version : std::min(stats.lowest_version, version);
    stats.highest_version = std::max(stats.highest_version, version);
    TakeLonger(StallOf(*slot, membership_, executor_.Now(), settings_.stall), stats.stall);
    is_first = false;
  }
  return stats;
}

// For a joiner of the mode in force, or for the mode that `view` changes to.
Step Lane::LowestFreeStep(const View& view) const {
  const Consistency& now = membership_.active().consistency;
  const bool changes_mode = membership_.active().number > 0 && view.consistency != now;
  // A job that begins from a checkpoint of such a mode goes on by its clocks.
  const bool begins = membership_.active().number == 0;
  const bool has_clocks = std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot.second->clocks.Highest() > Step{};
  });
  const bool counts_versions =
      view.consistency.is_sync() || (now.is_sync() && !(begins && has_clocks));
  Step highest = now.from_step;
  for (const auto& [chunk, slot] : slots_) {
    highest = std::max(highest, slot->clocks.Highest());
    if (counts_versions) highest = std::max(highest, slot->state.version());
  }
  // A step may have begun with that version, but not before the first view and between two modes.
  const bool is_under_way = now.is_sync() && !changes_mode && membership_.active().number > 0;
  return is_under_way ? Step{highest.value() + 1} : highest;
}

// In synchronous mode the version is the number of the step: what other modes have made of it
// ends.
void Lane::Align(ChunkSlot& slot) {
  const Consistency& consistency = membership_.active().consistency;
  const Step version = slot.state.version();
  const bool is_behind = consistency.is_sync() && version < consistency.from_step;
  if (!is_behind || !slot.state.is_initialized() || !slot.shard->member.is_open()) return;
  slot.state.AdvanceTo(consistency.from_step);
  slot.admission.reset();
  replication_.Append(*slot.shard,
                      slot,
                      {.kind = LogEntryKind::kAdvance,
                       .step = version,
                       .contributors = {},
                       .advance_to = consistency.from_step,
                       .payload = {}});
}

// ---- frames ----

std::span<std::byte> Lane::PlacePayload(Connection& connection, const FrameHeader& header) {
  Reception& reception = connection.reception();
  reception = Reception{};
  if (header.type == FrameType::kReturnCopy) return PlaceCopy(connection, header);
  ChunkSlot* slot = Find(header.chunk);
  if (slot == nullptr || !HasPayload(header.type) || !CheckPayload(*slot, header).ok() ||
      !slot->shard->member.is_open())
    return {};
  reception.slot = slot;

  if (header.type == FrameType::kInit) {
    if (slot->state.is_initialized()) return {};
  } else {
    if (slot->has_failed || !slot->state.is_initialized()) return {};
    if (slot->Judge(membership_, header) != PushVerdict::kContribute) return {};
    if (slot->accumulator.is_empty() && MayAddDirectly(*slot, header)) {
      PreparePages(connection, *slot, header);
      absl::StatusOr<std::span<std::byte>> place = slot->accumulator.BeginDirect(*pool_);
      if (place.ok()) {
        reception.place = Reception::Place::kAccumulator;
        return *place;
      }
    }
  }
  absl::StatusOr<HostBuffer> buffer = pool_->Take(header.payload_bytes);
  if (!buffer.ok()) return {};
  reception.place = Reception::Place::kBuffer;
  reception.buffer = *std::move(buffer);
  return reception.buffer.bytes();
}

bool Lane::MayAddDirectly(const ChunkSlot& slot, const FrameHeader& push) const {
  return push.codec == Codec::kNone && is_sync() && !is_gated() && !Leads(slot) &&
         MayAddNow(slot, push.worker);
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
  if (header.type == FrameType::kReturnCopy) return OnCopy(connection, header);
  const bool is_read = header.type == FrameType::kPull || header.type == FrameType::kFetch;
  if (!HasPayload(header.type) && !is_read && header.type != FrameType::kDecided) {
    return Violate(connection,
                   absl::StrCat("frame type ", static_cast<int>(header.type), " from a worker"));
  }
  ChunkSlot* slot = Find(header.chunk);
  if (slot == nullptr || !slot->shard->member.is_open()) {
    AbandonReception(connection);
    return Redirect(connection, header);
  }
  const absl::Status fits =
      HasPayload(header.type) ? CheckPayload(*slot, header) : absl::OkStatus();
  if (!fits.ok()) return Refuse(connection, header, fits);
  if (!LearnAdmission(*slot, frame)) return Violate(connection, "an admission that is none");
  if (header.type == FrameType::kDecided) return;  // it has said what it had to say
  if (header.type == FrameType::kInit) return OnInit(connection, *slot, frame);
  if (header.type == FrameType::kFetch) return OnFetch(connection, *slot, frame);
  if (header.type == FrameType::kPull) return OnPull(connection, *slot, frame);
  OnPush(connection, *slot, frame);
}

void Lane::OnInit(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame) {
  Reception reception = std::exchange(connection.reception(), Reception{});
  if (!slot.state.is_initialized()) {
    if (reception.place != Reception::Place::kBuffer) {
      return Refuse(
          connection,
          frame.header,
          absl::ResourceExhaustedError(absl::StrCat(slot.Name(), ": no memory for its value")));
    }
    const absl::Status divided = HoldsSamples(slot)
                                     ? DivideFirstStep(slot, membership_, reception.buffer)
                                     : absl::OkStatus();
    if (!divided.ok()) return Refuse(connection, frame.header, divided);
    const absl::Status installed = slot.state.Install(std::move(reception.buffer));
    if (!installed.ok()) return Refuse(connection, frame.header, installed);
    const std::shared_ptr<const HostBuffer> value = slot.state.value();
    replication_.Append(*slot.shard,
                        slot,
                        {.kind = LogEntryKind::kInitialize,
                         .step = slot.state.version(),
                         .contributors = {},
                         .payload = {value->bytes(), value}});
  }
  slot.AddWaiter({.connection = &connection, .request = frame.header, .min_version = Step{0}});
  Publish(slot);
}

void Lane::OnPull(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame) {
  slot.AddWaiter({.connection = &connection,
                  .request = frame.header,
                  .min_version = frame.header.step,
                  .clock = frame.header.clock});
  if (slot.state.is_initialized()) Publish(slot);
}

void Lane::OnPush(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame) {
  At(SyncPhase::kServerQueue);
  const FrameHeader& push = frame.header;
  connection.reception().in_place = ValuesInPlace(frame);
  SharePages(connection, push);
  const SteadyTime now = executor_.Now();
  metrics_.AddPushed(connection.channel().kind(), push.payload_bytes);
  metrics_.ObserveQueue(now - frame.received_at);
  HeldContribution contribution{.contribution = ContributionOf(push),
                                .values = {},
                                .waiter = {.connection = &connection,
                                           .request = push,
                                           .min_version = Step{push.step.value() + 1},
                                           .wants_value = push.type == FrameType::kPushPull,
                                           .clock = Step{push.step.value() + 1},
                                           .looked_at = now}};
  PublishedTiming& timing = contribution.waiter.timing;
  timing.push_sent_at = push.sent_at;
  timing.received_at = Nanoseconds(frame.received_at.time_since_epoch());
  timing.server_queue_ns = Nanoseconds(now - frame.received_at);

  PushVerdict verdict = slot.Judge(membership_, push);
  if (verdict == PushVerdict::kContribute && LacksAdmission(slot))
    verdict = PushVerdict::kNotAdmitted;
  const absl::Status refusal = WhyRefused(slot, membership_, push, verdict);
  if (!refusal.ok()) {
    AbandonReception(connection);
    return Refuse(connection, push, refusal);
  }
  if (verdict == PushVerdict::kContribute)
    return Contribute(connection, slot, std::move(contribution));
  AbandonReception(connection);
  // Applied: any version that the followers have has it in it.
  if (!is_sync()) contribution.waiter.min_version = Step{0};
  ++stats_.duplicates;
  metrics_.AddDuplicate();
  slot.AddWaiter(contribution.waiter);
  if (verdict == PushVerdict::kDuplicate) SayHeld(connection, slot, push);
  Publish(slot);
}

void Lane::Contribute(Connection& connection, ChunkSlot& slot, HeldContribution contribution) {
  const bool is_gone =
      connection.reception().place == Reception::Place::kInPlace && !slot.accumulator.has_sum();
  if (is_gone || connection.reception().place == Reception::Place::kNowhere) {
    // Judged differently when its header came, or no memory for it: the worker sends it again.
    return Refuse(connection,
                  contribution.waiter.request,
                  absl::UnavailableError(absl::StrCat(slot.Name(), ": not ready for this push")));
  }
  if (slot.step.contributors().empty() && slot.held.empty())
    slot.step_began_at = contribution.waiter.looked_at;
  Reception reception = std::exchange(connection.reception(), Reception{});
  const bool is_direct = reception.place == Reception::Place::kAccumulator;
  if (!DecodeReceived(connection, slot, reception, contribution.waiter)) return;
  if (!PassesChecks(slot, reception, contribution)) {
    if (is_direct) slot.accumulator.AbandonDirect();
    return;
  }
  if (is_direct) {
    if (contribution.counts) {
      slot.accumulator.FinishDirect(contribution.contribution.weight);
    } else {
      slot.accumulator.AbandonDirect();
    }
    At(SyncPhase::kSum);
    slot.step.Count(contribution.contribution);
    slot.skips_step = slot.skips_step || contribution.skips_step;
    contribution.waiter.sum_time = executor_.Now() - contribution.waiter.looked_at;
    slot.AddWaiter(contribution.waiter);
  } else if (reception.place == Reception::Place::kInPlace) {
    AddInPlace(slot, reception, contribution);
  } else {
    contribution.values = std::move(reception.buffer);
    SayHeld(connection, slot, contribution.waiter.request);
    slot.Hold(std::move(contribution));
  }
  AddHeld(slot);
  CompleteIfReady(slot);
}

bool Lane::PassesChecks(ChunkSlot& slot,
                        const Reception& reception,
                        HeldContribution& contribution) {
  if (AllFinite(ReceivedValues(slot, reception))) return true;
  metrics_.AddNonFinite();
  const FrameHeader& push = contribution.waiter.request;
  const std::string text = absl::StrCat("gradient of ",
                                        slot.Name(),
                                        " from ",
                                        ToString(push.worker),
                                        " in step ",
                                        push.step.value(),
                                        " has a value that is not finite",
                                        push.codec == Codec::kNone ? "" : " as ",
                                        push.codec == Codec::kNone ? "" : ToString(push.codec));
  switch (settings_.non_finite) {
    case NonFinitePolicy::kFail:
      slot.AddWaiter(contribution.waiter);
      FailJob(slot, absl::InvalidArgumentError(text));
      return false;
    case NonFinitePolicy::kSkip:
      contribution.skips_step = true;
      log_.Warning("chunk keeps its value in this step", {{"why", text}});
      return true;
    case NonFinitePolicy::kDrop:
      contribution.counts = false;
      log_.Warning("contribution left out", {{"why", text}});
      return true;
  }
  return true;
}

bool Lane::MayAddNow(const ChunkSlot& slot, WorkerId worker) const {
  return !settings_.deterministic || Leads(slot) || slot.IsTurn(membership_, worker);
}

// Adds what was held and may be added now, in worker order.
void Lane::AddHeld(ChunkSlot& slot) {
  if (Leads(slot) && !HasQuorum(slot)) return;
  if (HoldsApart(slot) && !HasDecided(slot)) return;
  while (!slot.held.empty() && !slot.accumulator.is_receiving()) {
    if (!MayAddNow(slot, slot.held.front().contribution.worker)) return;
    HeldContribution next = std::move(slot.held.front());
    slot.held.erase(slot.held.begin());
    if (!is_sync()) {
      next.waiter.min_version = Step{slot.state.version().value() + 1};
      HeedStaleness(slot, next);
    }
    const SteadyTime begin = executor_.Now();
    if (next.counts) slot.accumulator.Add(next.values, next.contribution.weight);
    At(SyncPhase::kSum);
    slot.step.Count(next.contribution);
    slot.skips_step = slot.skips_step || next.skips_step;
    pool_->Return(std::move(next.values));
    next.waiter.sum_time += executor_.Now() - begin;
    if (next.waiter.connection != nullptr) slot.AddWaiter(next.waiter);
    if (!is_sync()) CompleteIfReady(slot);  // each push is a step of its own
  }
}

void Lane::HeedStaleness(const ChunkSlot& slot, HeldContribution& late) {
  const uint64_t now = slot.state.version().value();
  const uint64_t base = late.waiter.request.base_version.value();
  const uint64_t staleness = base < now ? now - base : 0;
  metrics_.ObserveStaleness(staleness);
  if (!settings_.scale_by_staleness || staleness <= 1) return;
  double& rate = late.contribution.learning_rate;
  if (rate == 0) rate = slot.tensor.spec.optimizer.learning_rate;
  rate /= static_cast<double>(staleness);
}

void Lane::CompleteIfReady(ChunkSlot& slot) {
  if (!slot.shard->member.is_open()) return;
  if (slot.has_failed || slot.accumulator.is_receiving()) return;
  if (Leads(slot) ? !slot.step.contributors().empty() && HasQuorum(slot)
                  : slot.IsComplete(membership_)) {
    Complete(slot);
  }
}

// Step t is complete.
void Lane::Complete(ChunkSlot& slot) {
  At(SyncPhase::kWait);
  capture_.BeforeApply(slot);
  slot.completed_at = executor_.Now();
  NewEntry entry{.step = slot.state.version(), .contributors = {}, .payload = {}};
  for (const Contribution& contribution : slot.step.contributors())
    entry.contributors.push_back(contribution.worker);
  if (is_sync()) {
    CountContributors(slot);
    entry.digest = slot.counted.contributors;
    if (slot.is_leading()) slot.admission = Admission{entry.step, entry.contributors};
  } else {
    const Contribution& only = slot.step.contributors().front();
    entry.update = WorkerClock{only.worker, Step{only.step.value() + 1}};
    slot.clocks.Record(*entry.update);
  }
  if (HoldsSamples(slot)) {
    absl::StatusOr<HostBuffer> next = DivideNextStep(slot, membership_);
    if (!next.ok()) return FailJob(slot, next.status());
    entry.kind = LogEntryKind::kReplace;
    slot.state.Replace(*std::move(next));
    const std::shared_ptr<const HostBuffer> value = slot.state.value();
    entry.payload = {value->bytes(), value};
  } else if (slot.skips_step || !slot.accumulator.has_sum()) {
    entry.kind = LogEntryKind::kSkip;
    slot.state.Skip();
  } else if (slot.state.is_gradient(slot.accumulator.scale())) {
    slot.accumulator.TakeMemory(slot.state.TakeSum(slot.accumulator.TakeSum()));
    const std::shared_ptr<const HostBuffer> value = slot.state.value();
    if (!slot.shard->joined.empty()) entry.payload = {value->bytes(), value};
  } else {
    entry.learning_rate = slot.step.learning_rate();
    entry.gradient_scale = slot.accumulator.scale();
    const absl::Status applied =
        slot.state.Apply(slot.accumulator.sum(), entry.gradient_scale, entry.learning_rate);
    if (!applied.ok()) return FailJob(slot, applied);
    if (!slot.shard->joined.empty()) entry.payload = SharedSum(slot);
  }
  At(SyncPhase::kOptimize);
  slot.optimized_at = executor_.Now();
  slot.DropContributions();
  replication_.Append(*slot.shard, slot, std::move(entry));
  At(SyncPhase::kReplicate);
  Publish(slot);
  capture_.OnPublishable(slot);
  BeginHandoverIfFree(*slot.shard);
}

// The step's gradient for as long as it is being sent; then its memory is the pool's.
Payload Lane::SharedSum(ChunkSlot& slot) {
  struct Lent {
    Lent(HostBuffer lent, std::shared_ptr<BufferPool> owner)
        : buffer(std::move(lent)), pool(std::move(owner)) {}
    ~Lent() { pool->Return(std::move(buffer)); }
    HostBuffer buffer;
    const std::shared_ptr<BufferPool> pool;
  };
  const auto lent = std::make_shared<Lent>(slot.accumulator.TakeSum(), pool_);
  return {lent->buffer.bytes(), lent};
}

// Requests that came after the step was complete have no part in its times.
void Lane::FinishTiming(const ChunkSlot& slot, Waiter& waiter) {
  const bool is_timed = waiter.looked_at != SteadyTime{} && waiter.looked_at <= slot.completed_at;
  if (!is_timed) return;
  const SteadyTime now = executor_.Now();
  waiter.timing.sum_ns = Nanoseconds(waiter.sum_time);
  waiter.timing.wait_ns = Nanoseconds(slot.completed_at - waiter.looked_at - waiter.sum_time);
  waiter.timing.optimize_ns = Nanoseconds(slot.optimized_at - slot.completed_at);
  waiter.timing.replicate_ns = Nanoseconds(now - slot.optimized_at);
  waiter.timing.published_at = Nanoseconds(now.time_since_epoch());
}

void Lane::Publish(ChunkSlot& slot) {
  const ShardMember& member = slot.shard->member;
  if (!slot.state.is_initialized() || !member.MayPublish(slot.index_in_shard)) return;
  const std::shared_ptr<const HostBuffer> value = slot.state.value();
  for (Waiter& waiter : slot.TakeSatisfied(member.entry().epoch, membership_.active())) {
    FinishTiming(slot, waiter);
    waiter.timing.contributors = slot.contributors();
    OutgoingFrame answer{
        .header = waiter.request, .meta = EncodePublishedTiming(waiter.timing), .payload = {}};
    answer.header.flags = 0;
    answer.header.codec = Codec::kNone;
    AddAdmission(slot, answer);
    // A worker takes nothing of an epoch whose entry it does not know.
    if (waiter.request.epoch < member.entry().epoch) {
      const std::vector<std::byte> entry = EncodeShardEntry({slot.shard->id, member.entry()});
      answer.meta.insert(answer.meta.end(), entry.begin(), entry.end());
    }
    answer.header.type = FrameType::kPublished;
    answer.header.epoch = member.entry().epoch;
    answer.header.step = slot.state.version();
    answer.header.clock = IsPush(waiter.request.type) ? waiter.clock : Step{0};
    if (waiter.wants_value) {
      answer.payload = {value->bytes(), value, PublishInPlace(slot, waiter, *value)};
      metrics_.AddPulled(waiter.connection->channel().kind(), value->num_bytes());
    }
    waiter.connection->channel().Send(std::move(answer));
  }
}

// ---- the shard's other members ----

void Lane::OnPublishable(ShardSlot& shard) {
  for (ChunkSlot* slot : shard.chunks) {
    Align(*slot);
    slot->DropOutdated(membership_);
    if (!slot->waiters.empty()) Publish(*slot);
  }
  capture_.OnPublishable(shard);
}

void Lane::OnReignEnded(ShardSlot& shard) {
  entries_.Update(shard.id, shard.member.entry());
  capture_.OnReignEnded(shard);
  for (ChunkSlot* slot : shard.chunks) {
    EndContributions(*slot);
    for (const Waiter& waiter : std::exchange(slot->waiters, {}))
      SendMoved(*waiter.connection, waiter.request, shard.id);
  }
}

void Lane::OnInconsistent(const absl::Status& why) {
  tell_coordinator_(Failure{why});
}

void Lane::TellCoordinator(FromMember message) {
  tell_coordinator_(std::move(message));
}

void Lane::Redirect(Connection& connection, const FrameHeader& request) {
  const std::optional<ShardId> shard = ShardOf(request.chunk);
  if (!shard) {
    return Refuse(connection,
                  request,
                  absl::UnavailableError(absl::StrCat(
                      ToString(options_.server), " has no chunk ", request.chunk.value(), " yet")));
  }
  ChunkSlot* slot = Find(request.chunk);
  if (slot != nullptr && slot->shard->member.is_handing_over()) {
    // Told where to go when that is certain.
    return slot->AddWaiter({.connection = &connection,
                            .request = request,
                            .min_version = Step{std::numeric_limits<uint64_t>::max()}});
  }
  const ReplicaSet& entry = entries_.entry(*shard);
  if (request.epoch > entry.epoch || entry.primary == options_.server) {
    return Refuse(connection,
                  request,
                  absl::UnavailableError(absl::StrCat(ToString(options_.server),
                                                      " is not the primary of shard ",
                                                      shard->value(),
                                                      " yet, under epoch ",
                                                      ToString(request.epoch))));
  }
  SendMoved(connection, request, *shard);
}

void Lane::SendMoved(Connection& connection, const FrameHeader& request, ShardId shard) {
  const ReplicaSet& entry = entries_.entry(shard);
  OutgoingFrame answer{.header = request, .meta = EncodeShardEntry({shard, entry}), .payload = {}};
  answer.header.type = FrameType::kMoved;
  answer.header.flags = 0;
  answer.header.codec = Codec::kNone;
  answer.header.epoch = entry.epoch;
  answer.header.priority = 0;
  connection.channel().Send(std::move(answer));
}

// Of a step that turns version() into the next.
void Lane::CountContributors(ChunkSlot& slot) {
  const std::span<const Contribution> contributors = slot.step.contributors();
  slot.counted = {Step{slot.state.version().value() + 1}, DigestOf(contributors)};
  const auto count = static_cast<uint32_t>(contributors.size());
  if (count == 0) return;  // the admitted may all have died
  stats_.contributors_min =
      stats_.contributors_max == 0 ? count : std::min(stats_.contributors_min, count);
  stats_.contributors_max = std::max(stats_.contributors_max, count);
}

// ---- what goes wrong ----

void Lane::OnPayloadLost(Connection& connection) {
  ChunkSlot* slot = connection.reception().slot;
  AbandonReception(connection);
  if (slot == nullptr) return;
  AddHeld(*slot);
  CompleteIfReady(*slot);
}

void Lane::OnClosed(Connection& connection, const absl::Status& why) {
  metrics_.AddError(absl::IsDataLoss(why) ? ServerError::kBadFrame : ServerError::kConnectionLost);
  log_.Debug("connection closed",
             {{"worker", ToString(connection.hello().worker)}, {"why", why.message()}});
  Drop(connection);
}

void Lane::AbandonReception(Connection& connection) {
  Reception reception = std::exchange(connection.reception(), Reception{});
  if (reception.place == Reception::Place::kAccumulator)
    reception.slot->accumulator.AbandonDirect();
  pool_->Return(std::move(reception.buffer));
}

void Lane::Drop(Connection& connection) {
  const auto it = connections_.find(&connection);
  if (it == connections_.end()) return;
  connection.channel().Close();
  ChunkSlot* slot = connection.reception().slot;
  AbandonReception(connection);
  for (const auto& [chunk, other] : slots_) other->DropWaitersOf(connection);
  // It may be one of its own callbacks that ends it: it goes when that has returned.
  executor_.Post([doomed = std::shared_ptr<Connection>(std::move(it->second))] {});
  connections_.erase(it);
  if (slot == nullptr) return;
  AddHeld(*slot);
  CompleteIfReady(*slot);
}

void Lane::Refuse(Connection& connection, const FrameHeader& request, const absl::Status& why) {
  metrics_.AddError(ServerError::kRefusedPush);
  log_.Warning("request refused", {{"worker", ToString(request.worker)}, {"why", why.message()}});
  OutgoingFrame answer{.header = request, .meta = EncodeRefusal(why), .payload = {}};
  answer.header.type = FrameType::kRefused;
  answer.header.flags = 0;
  answer.header.codec = Codec::kNone;
  connection.channel().Send(std::move(answer));
}

void Lane::Violate(Connection& connection, const std::string& what) {
  metrics_.AddError(ServerError::kBadFrame);
  log_.Warning("connection closed: protocol violation",
               {{"worker", ToString(connection.hello().worker)}, {"what", what}});
  Drop(connection);
}

void Lane::FailJob(ChunkSlot& slot, const absl::Status& why) {
  slot.has_failed = true;
  for (const Waiter& waiter : std::exchange(slot.waiters, {}))
    Refuse(*waiter.connection, waiter.request, why);
  tell_coordinator_(Failure{why});
}

ChunkSlot* Lane::Find(ChunkId chunk) {
  const auto it = slots_.find(chunk);
  return it == slots_.end() ? nullptr : it->second.get();
}

std::optional<ShardId> Lane::ShardOf(ChunkId chunk) const {
  if (chunk.value() >= shard_of_chunk_.size()) return std::nullopt;
  return shard_of_chunk_[chunk.value()];
}

void Lane::At(SyncPhase phase) const {
  if (options_.fault_point) options_.fault_point(phase);
}

}  // namespace pushpull
