// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/chunk.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/server/sample_chunk.h"
#include "runtime/server/step_policy.h"
#include "runtime/store/row_layout.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {

namespace {

ChunkState StateOf(const ChunkPosition& position, uint64_t num_bytes) {
  const PlacedTensor& tensor = *position.tensor;
  return tensor.spec.rows ? ChunkState(tensor.spec, position.index, tensor.shards.size())
                          : ChunkState(tensor.spec.optimizer, num_bytes);
}

StepAccumulator AccumulatorOf(const TensorSpec& spec, uint64_t num_bytes) {
  return spec.rows ? StepAccumulator::OfRows(spec.reduction, RowDim(spec))
                   : StepAccumulator(spec.reduction, num_bytes);
}

}  // namespace

Chunk::Chunk(Shard& shard, size_t index_in_shard, ChunkPosition position, uint64_t num_bytes)
    : shard_(shard),
      index_in_shard_(index_in_shard),
      position_(position),
      state_(StateOf(position, num_bytes)),
      step_(AccumulatorOf(position.tensor->spec, num_bytes)) {}

std::string Chunk::Name() const {
  return absl::StrCat("tensor \"", tensor().spec.name, "\" chunk ", position_.index);
}

MadeBy Chunk::made_by() const {
  return counted_version_ == state_.version() ? counted_ : MadeBy{};
}

const Admission* Chunk::admission() const {
  const bool is_known = admission_ && admission_->step.value() + 1 == state_.version().value();
  return is_known ? &*admission_ : nullptr;
}

// ---- the primary ----

absl::StatusOr<LogEntry> Chunk::Initialize(HostBuffer initial, uint64_t updates) {
  LogEntry entry{
      .meta = {.kind = LogEntryKind::kInitialize}, .step = state_.version(), .payload = {}};
  if (HoldsRows(*this) || state_.HasStateIn(initial.num_bytes())) {
    if (HoldsRows(*this)) {
      PUSHPULL_RETURN_IF_ERROR(state_.InstallRows(initial.bytes()));
    } else {
      PUSHPULL_RETURN_IF_ERROR(InstallWithState(initial, updates));
      entry.meta.updates = updates;
    }
    const auto sent = std::make_shared<const HostBuffer>(std::move(initial));
    entry.payload = {sent->bytes(), sent};
  } else {
    PUSHPULL_RETURN_IF_ERROR(state_.Install(std::move(initial)));
    const std::shared_ptr<const HostBuffer> installed = state_.value();
    entry.payload = {installed->bytes(), installed};
  }
  return entry;
}

absl::Status Chunk::InstallWithState(const HostBuffer& initial, uint64_t updates) {
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer value, HostBuffer::Uninitialized(state_.num_bytes()));
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer state, HostBuffer::Uninitialized(state_.state_bytes()));
  absl::c_copy(initial.bytes().first(state_.num_bytes()), value.bytes().begin());
  absl::c_copy(initial.bytes().subspan(state_.num_bytes()), state.bytes().begin());
  return state_.Install(std::move(value), std::move(state), updates);
}

LogEntry Chunk::AdvanceTo(Step version) {
  LogEntry entry{.meta = {.kind = LogEntryKind::kAdvance, .advance_to = version},
                 .step = state_.version(),
                 .payload = {}};
  state_.AdvanceTo(version);
  admission_.reset();
  step_.ForgetDecision();
  return entry;
}

absl::StatusOr<std::optional<LogEntry>> Chunk::FollowView(const StepRules& rules) {
  const Consistency& consistency = rules.membership().active().consistency;
  if (consistency.is_sync() && state_.version() < consistency.from_step)
    return AdvanceTo(consistency.from_step);
  PUSHPULL_ASSIGN_OR_RETURN(std::optional<HostBuffer> next, WithoutGone(*this, rules));
  if (!next) return std::nullopt;
  LogEntry entry{.step = state_.version(), .payload = {}};
  ReplaceValue(*std::move(next), entry);
  return entry;
}

// The entry has everything that a follower cannot compute from its own state: who counted, the
// scale and the learning rate. The follower applies the same gradient with the same arithmetic, so
// it arrives at the same bits.
absl::StatusOr<LogEntry> Chunk::CompleteStep(const StepRules& rules,
                                             const std::shared_ptr<BufferPool>& pool) {
  LogEntry entry{.step = state_.version(), .payload = {}};
  const std::span<const Contribution> contributors = step_.counted().contributors();
  entry.meta.contributors.reserve(contributors.size());
  for (const Contribution& contribution : contributors)
    entry.meta.contributors.push_back(contribution.worker);
  entry.meta.has_gradient = HasGradient(step_);
  if (rules.policy().AppliesEachPush()) {
    const Contribution& only = contributors.front();
    entry.meta.update = WorkerClock{only.worker, Step{only.step.value() + 1}};
    clocks_.Record(*entry.meta.update);
  } else {
    counted_version_ = Step{entry.step.value() + 1};
    counted_ = {
        DigestOf(contributors), step_.sum().clip().scale.value_or(0), entry.meta.has_gradient};
    entry.meta.digest = counted_.contributors;
    entry.meta.clip_scale = counted_.clip_scale;
    if (is_leading()) admission_ = Admission{entry.step, entry.meta.contributors};
  }
  StepAccumulator& sum = step_.sum();
  if (sum.has_sum() && !step_.skips()) sum.noise().Finish(sum.sum());
  PUSHPULL_RETURN_IF_ERROR(ApplyStep(rules, pool, entry));
  step_.Clear();
  return entry;
}

absl::Status Chunk::Skip(bool has_gradient) {
  return state_.Skip(has_gradient || !CountsAsZeros(tensor().spec.reduction));
}

absl::Status Chunk::ApplyStep(const StepRules& rules,
                              const std::shared_ptr<BufferPool>& pool,
                              LogEntry& entry) {
  const bool has_streams = !shard_.member().outgoing().empty();
  StepAccumulator& sum = step_.sum();
  // Without streams nobody would read the payload, so the sum's memory stays for the next step.
  if (HoldsSamples(*this)) {
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer next, DivideNextStep(*this, rules));
    ReplaceValue(std::move(next), entry);
  } else if (step_.skips() || !sum.has_sum()) {
    entry.meta.kind = LogEntryKind::kSkip;
    return Skip(entry.meta.has_gradient);
  } else if (HoldsRows(*this)) {
    return ApplyRows(entry);
  } else if (state_.is_gradient(sum.scale())) {
    // The sum becomes the value, without a pass over either.
    sum.ExchangeMemory(state_.TakeSum(sum.TakeSum()));
    const std::shared_ptr<const HostBuffer> value = state_.value();
    if (has_streams) entry.payload = {value->bytes(), value};
  } else {
    entry.learning_rate = step_.counted().learning_rate();
    entry.meta.gradient_scale = sum.scale();
    PUSHPULL_RETURN_IF_ERROR(
        state_.Apply(sum.sum(), entry.meta.gradient_scale, entry.learning_rate));
    if (has_streams) entry.payload = LendSum(pool);
  }
  return absl::OkStatus();
}

void Chunk::ReplaceValue(HostBuffer next, LogEntry& entry) {
  entry.meta.kind = LogEntryKind::kReplace;
  state_.Replace(std::move(next));
  const std::shared_ptr<const HostBuffer> value = state_.value();
  entry.payload = {value->bytes(), value};
}

// The sum's size differs from step to step, so its memory is of no use to the pool.
absl::Status Chunk::ApplyRows(LogEntry& entry) {
  entry.learning_rate = step_.counted().learning_rate();
  entry.meta.gradient_scale = step_.sum().scale();
  PUSHPULL_RETURN_IF_ERROR(
      state_.ApplyRows(step_.sum().sum_bytes(), entry.meta.gradient_scale, entry.learning_rate));
  const auto sum = std::make_shared<const HostBuffer>(step_.sum().TakeSum());
  entry.payload = {sum->bytes(), sum};
  return absl::OkStatus();
}

// The step's gradient while it is being sent to followers; then its memory returns to the pool. The
// pool is shared because channels may outlive the lane's use of it.
Payload Chunk::LendSum(std::shared_ptr<BufferPool> pool) {
  struct Lent {
    Lent(HostBuffer lent, std::shared_ptr<BufferPool> owner)
        : buffer(std::move(lent)), pool(std::move(owner)) {}
    ~Lent() { pool->Return(std::move(buffer)); }
    HostBuffer buffer;
    const std::shared_ptr<BufferPool> pool;
  };
  const auto lent = std::make_shared<Lent>(step_.sum().TakeSum(), std::move(pool));
  return {lent->buffer.bytes(), lent};
}

// A version is sent only once every follower has the entry that made it: otherwise a worker could
// continue from a version that the next primary does not have. A request that knows a newer entry
// than this server waits until that entry arrives, because it may name another primary.
WaiterQueue::Taken Chunk::TakeAnswerable(const StepRules& rules, SteadyTime now) {
  const ShardMember& member = shard_.member();
  if (!state_.is_initialized() || !member.MayPublish(index_in_shard_)) return {};
  const std::optional<uint32_t> staleness = rules.policy().StalenessLimit();
  const Step lowest = staleness ? clocks_.Lowest(rules.membership().active()) : Step{};
  const std::optional<SampleLeases> leases = LeasesOf(*this, rules);
  WaiterQueue::Taken taken = waiters_.Take([&](const Waiter& waiter) {
    const bool waits_for_others =
        staleness && waiter.wants_value && IsTooEarlyToRead(lowest, *staleness, waiter.clock);
    const bool waits_for_samples = leases && AwaitsSamples(*leases, *this, rules, waiter);
    return !waits_for_others && !waits_for_samples && waiter.min_version <= state_.version() &&
           waiter.request.epoch <= member.entry().epoch;
  });
  for (Waiter& waiter : taken) {
    waiters_.FinishTiming(now, waiter);
    waiter.timing.contributors = made_by().contributors;
  }
  return taken;
}

void Chunk::DropRequestsOf(const Connection& connection) {
  waiters_.DropRequestsOf(connection);
  step_.DropRequestsOf(connection);
}

std::vector<Waiter> Chunk::EndPrimary(bool keeps_held) {
  // Workers whose contributions are held are redirected like all others, and push to the next
  // primary. If that is this server again, their pushes are duplicates.
  for (const Waiter& waiter : step_.TakeHeldWaiters()) waiters_.Add(waiter);
  if (!keeps_held) step_.Clear();
  return waiters_.TakeAll();
}

// ---- the other members ----

absl::Status Chunk::Apply(const StreamMeta& entry, const FrameHeader& header, HostBuffer& payload) {
  const auto mismatch = [&] {
    return absl::FailedPreconditionError(absl::StrCat(Name(),
                                                      " has version ",
                                                      state_.version().value(),
                                                      ", the entry is for ",
                                                      header.step.value()));
  };
  const bool has_payload =
      entry.kind != LogEntryKind::kSkip && entry.kind != LogEntryKind::kAdvance;
  const bool has_state =
      entry.kind == LogEntryKind::kInitialize && state_.HasStateIn(payload.num_bytes());
  const bool fits = HoldsRows(*this) || has_state || payload.num_bytes() == state_.num_bytes();
  if (has_payload && !fits) return mismatch();
  if (entry.kind == LogEntryKind::kInitialize) {
    if (state_.is_initialized()) return mismatch();
    const absl::Status installed = HoldsRows(*this) ? state_.InstallRows(payload.bytes())
                                   : has_state      ? InstallWithState(payload, entry.updates)
                                                    : state_.Install(std::move(payload));
    return installed.ok() ? installed : absl::UnavailableError(installed.message());
  }
  if (!state_.is_initialized() || state_.version() != header.step) return mismatch();
  step_.Clear();  // contributions held for a gated step since this server was primary
  if (entry.kind == LogEntryKind::kAdvance) {
    if (entry.advance_to <= state_.version()) return mismatch();
    AdvanceTo(entry.advance_to);
    return absl::OkStatus();
  }
  // As CompleteStep did on the primary: a follower that becomes primary must judge repeated pushes
  // and answer workers as its predecessor would have.
  if (entry.update) {
    clocks_.Record(*entry.update);
  } else if (is_leading()) {
    admission_ = Admission{header.step, entry.contributors};
  }
  counted_version_ = Step{header.step.value() + 1};
  counted_ = {entry.digest, entry.clip_scale, entry.has_gradient};
  if (entry.kind == LogEntryKind::kSkip) {
    return Skip(entry.has_gradient);
  } else if (HoldsRows(*this)) {
    return state_.ApplyRows(payload.bytes(), entry.gradient_scale, header.learning_rate);
  } else if (entry.kind == LogEntryKind::kReplace) {
    state_.Replace(std::move(payload));
  } else {
    return state_.Apply(payload.floats(), entry.gradient_scale, header.learning_rate);
  }
  return absl::OkStatus();
}

absl::Status Chunk::Restore(ChunkSnapshot snapshot) {
  PUSHPULL_RETURN_IF_ERROR(state_.Restore(snapshot.version,
                                          snapshot.updates,
                                          std::move(snapshot.value),
                                          std::move(snapshot.optimizer_state)));
  // The decisions made here belong to a log that the snapshot replaces.
  counted_version_ = snapshot.version;
  counted_ = snapshot.made_by;
  admission_ = is_leading() ? std::move(snapshot.admission) : std::nullopt;
  step_.ForgetDecision();
  clocks_.Restore(std::move(snapshot.clocks));
  return absl::OkStatus();
}

void Chunk::Clear() {
  step_.Clear();
  step_.ForgetDecision();
  state_.Clear();
  clocks_.Clear();
  counted_version_ = {};
  counted_ = {};
  admission_.reset();
  // A payload on its way into the sum keeps its memory until the connection abandons it.
  if (!step_.sum().is_receiving()) step_.sum().Release();
}

absl::StatusOr<ChunkCapture> Chunk::BeginCapture(SpareBuffers& spares) {
  PUSHPULL_ASSIGN_OR_RETURN(ChunkImage image, state_.Image());
  ChunkCapture capture{.record = {.chunk = id(),
                                  .tensor = tensor().id,
                                  .index = position_.index,
                                  .version = state_.version(),
                                  .updates = state_.updates(),
                                  .epoch = shard_.member().chunk_epoch(index_in_shard_),
                                  .dtype = MasterOf(tensor().spec.dtype)},
                       .value = std::move(image.value),
                       .state = std::move(image.state)};
  for (const WorkerClock& clock : clocks_.entries())
    capture.record.worker_updates.push_back({clock.worker, clock.clock.value()});
  state_.BeginCapture(spares);
  return capture;
}

}  // namespace pushpull
