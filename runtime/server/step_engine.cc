// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/step_engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/replication/admission_frame.h"
#include "runtime/server/joint_push.h"
#include "runtime/server/push_checks.h"
#include "runtime/server/row_payload.h"
#include "runtime/server/sample_chunk.h"
#include "runtime/server/wire_values.h"
#include "runtime/transport/peer_clock.h"

namespace pushpull {
namespace {

// The facts about a push that are known when the lane starts to process it.
ReceivedContribution ContributionOf(Connection& connection,
                                    const ReceivedFrame& frame,
                                    SteadyTime now) {
  const FrameHeader& push = frame.header;
  const Step next{push.step.value() + 1};
  ReceivedContribution received{
      .contribution = {push.worker, push.incarnation, push.weight, push.learning_rate, push.step},
      .values = {},
      .has_gradient = !IsWithoutGradient(push),
      .waiter = {.connection = &connection,
                 .request = push,
                 .min_version = next,
                 .wants_value = push.type == FrameType::kPushPull,
                 .clock = next,
                 .taken_up_at = now}};
  PublishedTiming& timing = received.waiter.timing;
  timing.push_sent_at = push.sent_at;
  timing.received_at = NanosecondsOf(frame.received_at.time_since_epoch());
  timing.server_queue_ns = NanosecondsOf(now - frame.received_at);
  return received;
}

absl::StatusOr<LogEntry> Initialize(Chunk& chunk, HostBuffer received, uint64_t updates) {
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer initial, WithMasterValues(chunk, std::move(received)));
  return chunk.Initialize(std::move(initial), updates);
}

// Noise is measured if contributions are mean gradients and share a numbered step.
bool MeasuresNoise(const Chunk& chunk, const StepRules& rules) {
  return rules.settings().noise_scale && !rules.policy().AppliesEachPush() && !HoldsRows(chunk) &&
         chunk.tensor().spec.reduction == Reduction::kMean &&
         NoiseMeter::Measures(chunk.state().version());
}

// Async, Bounded: measures how many versions a gradient is behind; its learning rate may depend on
// that.
void ApplyStaleness(const LaneContext& lane, const Chunk& chunk, ReceivedContribution& late) {
  const uint64_t now = chunk.state().version().value();
  const uint64_t base = late.waiter.request.base_version.value();
  const uint64_t staleness = base < now ? now - base : 0;
  lane.metrics.ObserveStaleness(staleness);
  if (!lane.rules.settings().scale_by_staleness || staleness <= 1) return;
  double& rate = late.contribution.learning_rate;
  if (rate == 0) rate = chunk.tensor().spec.optimizer.learning_rate;
  rate /= static_cast<double>(staleness);
}

}  // namespace

// ---- the payload ----

std::span<std::byte> StepEngine::PlacePayload(Connection& connection,
                                              Chunk& chunk,
                                              const FrameHeader& header) {
  Reception& reception = connection.reception();
  if (header.type == FrameType::kInit) {
    if (chunk.state().is_initialized()) return {};
  } else if (IsPush(header.type)) {
    const StepPolicy& policy = lane_.rules.policy();
    if (chunk.step().has_failed() || !chunk.state().is_initialized()) return {};
    if (policy.Judge(chunk, header) != PushVerdict::kContribute) return {};
    StepAccumulator& sum = chunk.step().sum();
    if (sum.is_empty() && !IsEncoded(header) && !HoldsRows(chunk) &&
        policy.MayAddOnArrival(chunk, header.worker)) {
      pages_.Prepare(connection, chunk, header);
      absl::StatusOr<std::span<std::byte>> place = sum.BeginDirect(*lane_.pool);
      if (place.ok()) {
        reception.place = Reception::Place::kAccumulator;
        return *place;
      }
    }
  }
  absl::StatusOr<HostBuffer> buffer = TakeBuffer(chunk, header.payload_bytes, *lane_.pool);
  if (!buffer.ok()) return {};
  reception.place = Reception::Place::kBuffer;
  reception.buffer = *std::move(buffer);
  return reception.buffer.bytes();
}

bool StepEngine::TakesInPlace(Connection& connection, Chunk& chunk, const FrameHeader& header) {
  const StepPolicy& policy = lane_.rules.policy();
  const OpenStep& step = chunk.step();
  if (HoldsRows(chunk)) return false;
  const bool may_add = step.sum().has_sum() && !step.sum().is_receiving() && !step.has_failed() &&
                       !IsEncoded(header) && policy.MayAddOnArrival(chunk, header.worker);
  if (!may_add || policy.Judge(chunk, header) != PushVerdict::kContribute) return false;
  connection.reception().place = Reception::Place::kInPlace;
  return true;
}

void StepEngine::AbandonReception(Connection& connection) {
  Reception reception = std::exchange(connection.reception(), Reception{});
  if (reception.place == Reception::Place::kAccumulator)
    reception.chunk->step().sum().AbandonDirect();
  lane_.pool->Return(std::move(reception.buffer));
}

// ---- frames ----

void StepEngine::OnInit(Connection& connection, Chunk& chunk, const FrameHeader& header) {
  Reception reception = std::exchange(connection.reception(), Reception{});
  const auto refuse = [&](const absl::Status& why) { responder_.Refuse(connection, header, why); };
  if (!chunk.state().is_initialized()) {
    if (reception.place != Reception::Place::kBuffer && !IsEmptyOfRows(chunk, header)) {
      return refuse(
          absl::ResourceExhaustedError(absl::StrCat(chunk.Name(), ": no memory for its value")));
    }
    const absl::Status fits = CheckRowKeys(chunk, header.type, reception.buffer.bytes());
    if (!fits.ok()) return refuse(fits);
    const absl::Status divided = HoldsSamples(chunk)
                                     ? DivideFirstStep(chunk, lane_.rules, reception.buffer)
                                     : absl::OkStatus();
    if (!divided.ok()) return refuse(divided);
    absl::StatusOr<LogEntry> entry =
        Initialize(chunk, std::move(reception.buffer), header.base_version.value());
    if (!entry.ok()) return refuse(entry.status());
    replication_.Append(chunk, *std::move(entry));
  }
  // Rows are pulled only when they are needed.
  chunk.waiters().Add({.connection = &connection,
                       .request = header,
                       .min_version = Step{0},
                       .wants_value = !HoldsRows(chunk)});
  responder_.Publish(chunk);
}

void StepEngine::OnRead(Connection& connection, Chunk& chunk, const FrameHeader& header) {
  // A worker that fetches has no gradient for earlier steps; usually it is a new process.
  const bool is_fetch = header.type == FrameType::kFetch;
  absl::StatusOr<std::shared_ptr<const HostBuffer>> row_keys =
      TakeRowKeys(chunk, std::exchange(connection.reception(), Reception{}), header);
  if (!row_keys.ok()) return responder_.Refuse(connection, header, row_keys.status());
  if (is_fetch && !chunk.is_leading()) chunk.step().Withdraw(header.worker, header.step);
  chunk.waiters().Add({.connection = &connection,
                       .request = header,
                       .min_version = header.step,
                       .clock = header.clock,
                       .row_keys = *std::move(row_keys)});
  if (is_fetch) Recheck(chunk);
  responder_.Publish(chunk);
}

absl::Status StepEngine::LearnAdmission(Chunk& chunk, const ReceivedFrame& frame) {
  if ((frame.header.flags & kFlagAdmission) == 0) return absl::OkStatus();
  std::span<const std::byte> meta = frame.meta;
  absl::StatusOr<Admission> admission = TakeAdmission(meta);
  if (!admission.ok()) return admission.status();
  if (!chunk.is_leading()) chunk.step().Learn(*std::move(admission), chunk.state().version());
  if (lane_.rules.policy().HoldsApart(chunk)) Recheck(chunk);
  return absl::OkStatus();
}

// The payload was placed according to the verdict when its header arrived. Before the payload was
// complete, the same worker's push may have been counted on another connection, the step completed,
// or the view changed. So the push is judged again, and this verdict counts.
void StepEngine::OnPush(Connection& connection, Chunk& chunk, const ReceivedFrame& frame) {
  At(SyncPhase::kServerQueue);
  const FrameHeader& push = frame.header;
  const StepPolicy& policy = lane_.rules.policy();
  const std::span<const std::byte> in_place = frame.in_place.bytes;
  // Complete floats, aligned: the channel has checked that.
  connection.reception().in_place = {reinterpret_cast<const float*>(in_place.data()),
                                     in_place.size() / sizeof(float)};
  pages_.Share(connection, push);
  const SteadyTime now = lane_.executor.Now();
  lane_.metrics.AddPushed(connection.channel().kind(), push.payload_bytes);
  lane_.metrics.ObserveQueue(now - frame.received_at);
  ReceivedContribution received = ContributionOf(connection, frame, now);

  const absl::StatusOr<PushVerdict> judged = JudgePush(policy, chunk, frame, received);
  if (!judged.ok()) {
    AbandonReception(connection);
    return responder_.RefuseJoint(connection, push, judged.status());
  }
  const PushVerdict verdict = *judged;
  const absl::Status refusal = WhyRefused(chunk, lane_.rules, push, verdict);
  if (!refusal.ok()) {
    AbandonReception(connection);
    return responder_.Refuse(connection, push, refusal);
  }
  if (verdict == PushVerdict::kContribute) return Contribute(connection, chunk, received);
  // It has already been counted, and a worker repeats a push only if it has lost the answer, so
  // this request replaces the earlier one.
  AbandonReception(connection);
  // A push applied by itself is included in any version that the followers have.
  if (policy.AppliesEachPush()) received.waiter.min_version = Step{0};
  ++duplicates_;
  lane_.metrics.AddDuplicate();
  chunk.waiters().Add(received.waiter);
  if (verdict == PushVerdict::kDuplicate) {
    responder_.SendHeld(connection, chunk, push);
    responder_.SendSquares(connection, chunk, push);
  }
  responder_.Publish(chunk);
}

void StepEngine::Contribute(Connection& connection, Chunk& chunk, ReceivedContribution& received) {
  const FrameHeader& push = received.waiter.request;
  OpenStep& step = chunk.step();
  Reception reception = std::exchange(connection.reception(), Reception{});
  if (!received.has_gradient || IsEmptyOfRows(chunk, push))
    reception.place = Reception::Place::kBuffer;
  const bool has_lost_sum = reception.place == Reception::Place::kInPlace && !step.sum().has_sum();
  if (has_lost_sum || reception.place == Reception::Place::kNowhere) {
    // The push was judged differently when its header arrived, or there was no memory: the worker
    // sends it again.
    return responder_.Refuse(
        connection,
        push,
        absl::UnavailableError(absl::StrCat(chunk.Name(), ": not ready for this push")));
  }
  const absl::Status fits = CheckRowKeys(chunk, push.type, reception.buffer.bytes());
  if (!fits.ok()) return responder_.Refuse(connection, push, fits);
  step.NoteArrival(received.waiter.taken_up_at, MeasuresNoise(chunk, lane_.rules));
  if (IsEncoded(push)) {
    const SteadyTime begin = lane_.executor.Now();
    const absl::Status decoded = DecodePush(chunk, push, *lane_.pool, reception);
    received.waiter.sum_time += lane_.executor.Now() - begin;
    if (!decoded.ok()) return responder_.Refuse(connection, push, decoded);
  }
  const bool is_direct = reception.place == Reception::Place::kAccumulator;
  if (!PassesChecks(chunk, reception, received)) {
    if (is_direct) step.sum().AbandonDirect();
    lane_.pool->Return(std::move(reception.buffer));
    return;
  }
  if (reception.place == Reception::Place::kBuffer) {
    received.values = std::move(reception.buffer);
    responder_.SendHeld(connection, chunk, push);
    step.Hold(std::move(received));
    return Recheck(chunk);
  }
  if (is_direct) {
    step.CountDirect(received);
  } else {
    step.CountFrom(reception.in_place, received);
    lane_.metrics.AddInPlace(reception.in_place.size_bytes());
  }
  At(SyncPhase::kSum);
  received.waiter.sum_time = lane_.executor.Now() - received.waiter.taken_up_at;
  chunk.waiters().Add(received.waiter);
  Recheck(chunk);
}

// Checks the received values for NaN and infinity and applies spec.sync.nonFinite. False: the
// contribution does not count, and the job fails.
bool StepEngine::PassesChecks(Chunk& chunk,
                              const Reception& reception,
                              ReceivedContribution& received) {
  const absl::Status finite = CheckFinite(chunk, received.waiter.request, ValuesOf(reception));
  if (finite.ok()) return true;
  if (IsJoint(received.waiter.request)) {
    // Pushed one by one, they show whose it is.
    const absl::Status again = absl::FailedPreconditionError(finite.message());
    responder_.RefuseJoint(*received.waiter.connection, received.waiter.request, again);
    return false;
  }
  lane_.metrics.AddNonFinite();
  switch (lane_.rules.settings().non_finite) {
    case NonFinitePolicy::kFail:
      chunk.waiters().Add(received.waiter);
      Fail(chunk, finite);
      return false;
    case NonFinitePolicy::kSkip:
      received.skips_step = true;
      received.counts = false;
      lane_.log.Warning("chunk keeps its value in this step", {{"why", finite.message()}});
      return true;
    case NonFinitePolicy::kDrop:
      received.counts = false;
      lane_.log.Warning("contribution left out", {{"why", finite.message()}});
      return true;
  }
  return true;
}

// The same for the sum. Nothing can be taken out of a sum, so where the policy would leave out a
// contribution, the chunk keeps its value instead.
bool StepEngine::PassesSumCheck(Chunk& chunk) {
  const absl::Status finite = CheckSum(chunk);
  if (finite.ok()) return true;
  lane_.metrics.AddNonFinite();
  if (lane_.rules.settings().non_finite == NonFinitePolicy::kFail) {
    Fail(chunk, finite);
    return false;
  }
  lane_.log.Warning("chunk keeps its value in this step", {{"why", finite.message()}});
  return true;
}

// ---- the step ----

void StepEngine::Recheck(Chunk& chunk) {
  AddHeld(chunk);
  CompleteIfReady(chunk);
}

void StepEngine::AddHeld(Chunk& chunk) {
  const StepPolicy& policy = lane_.rules.policy();
  OpenStep& step = chunk.step();
  if (!policy.MayAddHeld(chunk)) return;
  if (policy.HoldsApart(chunk)) {
    // Workers that do not count are mostly dead. One that is alive gets the next version like all
    // others.
    const Admission* decided = policy.Admitted(chunk);
    ReleaseHeld(step.TakeHeld([&](const ReceivedContribution& held) {
      return !decided->Has(held.contribution.worker);
    }),
                &chunk);
  }
  while (!step.held().empty() && !step.sum().is_receiving()) {
    if (!policy.IsTurn(chunk, step.held().front().contribution.worker)) return;
    ReceivedContribution next = step.TakeFirstHeld();
    if (policy.AppliesEachPush()) {
      next.waiter.min_version = Step{chunk.state().version().value() + 1};
      ApplyStaleness(lane_, chunk, next);
    }
    const SteadyTime begin = lane_.executor.Now();
    step.CountHeld(next);
    At(SyncPhase::kSum);
    ReturnBuffer(chunk, std::move(next.values), *lane_.pool);
    next.waiter.sum_time += lane_.executor.Now() - begin;
    if (next.waiter.connection != nullptr) chunk.waiters().Add(next.waiter);
    if (policy.AppliesEachPush()) CompleteIfReady(chunk);
  }
}

void StepEngine::CompleteIfReady(Chunk& chunk) {
  const OpenStep& step = chunk.step();
  if (!chunk.shard().member().is_open() || step.has_failed() || step.sum().is_receiving()) return;
  const StepPolicy& policy = lane_.rules.policy();
  if (!policy.IsComplete(chunk)) return;
  if (!policy.IsClipped(chunk)) return Complete(chunk);
  // The sum stays unscaled until a worker has added up the squares of all chunks.
  if (chunk.step().sum().BeginClip(!step.skips())) return responder_.SendSquares(chunk);
  if (step.sum().clip().scale) Complete(chunk);
}

// Workers compute the same scale; the first that arrives counts.
void StepEngine::OnScale(Chunk& chunk, const FrameHeader& header) {
  const StepPolicy& policy = lane_.rules.policy();
  const bool is_awaited = header.step == chunk.state().version() &&
                          chunk.step().sum().clip().squares && policy.IsComplete(chunk);
  if (!is_awaited || !(header.weight >= 0 && header.weight <= 1)) return;
  chunk.step().sum().clip().scale = header.weight;
  CompleteIfReady(chunk);
}

// Step t becomes version t + 1. The order matters:
//  - A checkpoint takes version t before it is changed.
//  - The entry is in the log before anybody is answered; with followers Publish answers nobody
//    here, but later, from OnPublishable, once all of them have acknowledged the entry. So a
//    version that a worker has seen survives the loss of this server.
//  - Only then may a deferred handover begin: from then on the shard is not open, and
//    nothing is published until the next primary has everything.
void StepEngine::Complete(Chunk& chunk) {
  if (!PassesSumCheck(chunk)) return;
  At(SyncPhase::kWait);
  capture_.BeforeApply(chunk);
  const SteadyTime completed_at = lane_.executor.Now();
  absl::StatusOr<LogEntry> entry = chunk.CompleteStep(lane_.rules, lane_.pool);
  if (!entry.ok()) return Fail(chunk, entry.status());
  const auto count = static_cast<uint32_t>(entry->meta.contributors.size());
  // All admitted workers may have died.
  if (count > 0 && !entry->meta.update) {
    contributors_min_ = contributors_max_ == 0 ? count : std::min(contributors_min_, count);
    contributors_max_ = std::max(contributors_max_, count);
  }
  At(SyncPhase::kOptimize);
  chunk.waiters().SetStepTimes(completed_at, lane_.executor.Now());
  replication_.Append(chunk, *std::move(entry));
  At(SyncPhase::kReplicate);
  responder_.Publish(chunk);
  capture_.OnPublishable(chunk);
  BeginHandoverIfFree(chunk.shard());
}

void StepEngine::ReleaseHeld(std::vector<ReceivedContribution> released, Chunk* answered_later) {
  for (ReceivedContribution& held : released) {
    if (answered_later != nullptr && held.waiter.connection != nullptr)
      answered_later->waiters().Add(held.waiter);
    lane_.pool->Return(std::move(held.values));
  }
}

// ---- what changes around the chunk ----

void StepEngine::OnViewActivated(Chunk& chunk, StepRules::Contributions contributions) {
  const StepRules& rules = lane_.rules;
  if (contributions == StepRules::Contributions::kDrop) chunk.step().Clear();
  if (rules.policy().Leads(chunk)) {
    // Nothing is decided yet, so departed workers' requests need not be granted.
    const Step version = chunk.state().version();
    ReleaseHeld(chunk.step().TakeHeld([&](const ReceivedContribution& held) {
      const Contribution& asked = held.contribution;
      return !rules.membership().IsMember(asked.worker, asked.incarnation, version);
    }),
                nullptr);
  }
  Recheck(chunk);
  FollowView(chunk);
  responder_.Publish(chunk);
}

void StepEngine::FollowView(Chunk& chunk) {
  if (!chunk.state().is_initialized() || !chunk.shard().member().is_open()) return;
  if (lane_.rules.policy().AppliesEachPush() && HoldsSamples(chunk)) capture_.BeforeApply(chunk);
  absl::StatusOr<std::optional<LogEntry>> entry = chunk.FollowView(lane_.rules);
  if (!entry.ok()) return Fail(chunk, entry.status());
  if (*entry) replication_.Append(chunk, **std::move(entry));
}

void StepEngine::BeginHandoverIfFree(Shard& shard) {
  const std::optional<Handover> due = shard.TakeHandoverIfFree(lane_.rules.policy());
  if (due) replication_.BeginHandover(shard, *due);
}

void StepEngine::OnPublishable(Shard& shard) {
  const StepPolicy& policy = lane_.rules.policy();
  for (const std::unique_ptr<Chunk>& chunk : shard.chunks()) {
    FollowView(*chunk);
    if (policy.HoldsApart(*chunk)) {
      // Left over from when this server was primary before: steps have completed elsewhere since.
      const Step version = chunk->state().version();
      ReleaseHeld(chunk->step().TakeHeld([&](const ReceivedContribution& held) {
        return held.contribution.step != version;
      }),
                  nullptr);
    }
    responder_.Publish(*chunk);
  }
  capture_.OnPublishable(shard);
}

void StepEngine::OnDemoted(Shard& shard) {
  capture_.OnDemoted(shard);
  exchanges_.OnDemoted(shard);
  for (const std::unique_ptr<Chunk>& chunk : shard.chunks()) {
    responder_.OnDemoted(*chunk);
    for (const Waiter& waiter : chunk->EndPrimary(lane_.rules.policy().HoldsApart(*chunk)))
      responder_.SendMoved(*waiter.connection, waiter.request, shard.id());
  }
}

void StepEngine::Fail(Chunk& chunk, const absl::Status& why) {
  chunk.step().Fail();
  for (const Waiter& waiter : chunk.waiters().TakeAll())
    responder_.Refuse(*waiter.connection, waiter.request, why);
  lane_.notify(Failure{why});
}

void StepEngine::AddTo(ServerStats& stats) const {
  stats.contributors_min = contributors_min_;
  stats.contributors_max = contributors_max_;
  stats.duplicates = duplicates_;
}

void StepEngine::At(SyncPhase phase) const {
  if (lane_.fault_point) lane_.fault_point(phase);
}

}  // namespace pushpull
