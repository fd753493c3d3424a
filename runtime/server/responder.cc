// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/responder.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"
#include "runtime/replication/admission_frame.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/server/row_payload.h"
#include "runtime/tensor/dtype.h"

namespace pushpull {
namespace {

OutgoingFrame AnswerTo(const FrameHeader& request, FrameType type) {
  OutgoingFrame answer{.header = request, .meta = {}, .payload = {}};
  answer.header.type = type;
  answer.header.flags = 0;
  answer.header.codec = Codec::kNone;
  return answer;
}

// Whether a gradient was in the step that the answer tells of: the one that made the version, or,
// where each push is a step, the push's own.
bool HasGradient(const LaneContext& lane, const Chunk& chunk, const FrameHeader& request) {
  return lane.rules.policy().AppliesEachPush() ? !IsWithoutGradient(request)
                                               : chunk.made_by().has_gradient;
}

void Append(const std::vector<std::byte>& bytes, std::vector<std::byte>& meta) {
  meta.insert(meta.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> EncodeUpdates(uint64_t updates) {
  ByteWriter writer;
  writer.Put(updates);
  return writer.Take();
}

}  // namespace

// The meta is read in this order: timing, admission and updates (each if its flag is set), entry
// (the rest).
void Responder::Publish(Chunk& chunk) {
  if (chunk.waiters().empty()) return;
  const ReplicaSet& entry = chunk.shard().member().entry();
  const Admission* admission = chunk.admission();
  for (const Waiter& waiter : chunk.TakeAnswerable(lane_.rules, lane_.executor.Now())) {
    OutgoingFrame answer = AnswerTo(waiter.request, FrameType::kPublished);
    answer.meta = EncodePublishedTiming(waiter.timing);
    if (admission != nullptr) {
      Append(EncodeAdmission(*admission), answer.meta);
      answer.header.flags |= kFlagAdmission;
    }
    const bool wants_state = (waiter.request.flags & kFlagOptimizerState) != 0;
    if (wants_state) {
      Append(EncodeUpdates(chunk.state().updates()), answer.meta);
      answer.header.flags |= kFlagOptimizerState;
    }
    if (!HasGradient(lane_, chunk, waiter.request)) answer.header.flags |= kFlagNoGradient;
    // A worker accepts nothing of an epoch whose entry it does not know.
    if (waiter.request.epoch < entry.epoch)
      Append(EncodeShardEntry({chunk.shard().id(), entry}), answer.meta);
    answer.header.epoch = entry.epoch;
    answer.header.step = chunk.state().version();
    answer.header.weight = chunk.made_by().clip_scale;
    answer.header.clock = IsPush(waiter.request.type) ? waiter.clock : Step{0};
    if (HoldsRows(chunk)) {
      absl::StatusOr<Payload> rows = GatherRows(chunk, waiter);
      if (!rows.ok()) {
        Refuse(*waiter.connection, waiter.request, rows.status());
        continue;
      }
      answer.payload = *std::move(rows);
      lane_.metrics.AddPulled(waiter.connection->channel().kind(), answer.payload.bytes.size());
    } else if (wants_state) {
      const std::shared_ptr<const HostBuffer> state = chunk.state().optimizer_state();
      answer.header.dtype = DType::kFloat32;
      answer.payload = {state->bytes(), state};
      lane_.metrics.AddPulled(waiter.connection->channel().kind(), state->num_bytes());
    } else if (waiter.wants_value) {
      absl::StatusOr<Payload> value = ValueFor(chunk, waiter);
      if (!value.ok()) {
        Refuse(*waiter.connection, waiter.request, value.status());
        continue;
      }
      answer.payload = *std::move(value);
      lane_.metrics.AddPulled(waiter.connection->channel().kind(), answer.payload.bytes.size());
    }
    waiter.connection->channel().Send(std::move(answer));
  }
}

// kUnavailable: no memory for the value in the tensor's type; the worker asks again.
absl::StatusOr<Payload> Responder::ValueFor(const Chunk& chunk, const Waiter& waiter) {
  absl::StatusOr<WireValues::Rounded> rounded = wire_values_.Of(chunk);
  if (!rounded.ok()) return absl::UnavailableError(rounded.status().message());
  if (rounded->first_overflows > 0) {
    lane_.log.Warning("values are too large for the tensor's type, workers receive infinities",
                      {{"what", chunk.Name()},
                       {"dtype", ToString(chunk.tensor().spec.dtype)},
                       {"values", rounded->first_overflows}});
  }
  const bool is_in_place = pages_.Publish(chunk, waiter.request, *rounded->value);
  return Payload{rounded->value->bytes(), rounded->value, is_in_place};
}

void Responder::SendHeld(const Connection& connection,
                         const Chunk& chunk,
                         const FrameHeader& push) const {
  if (!lane_.rules.policy().HoldsApart(chunk)) return;
  OutgoingFrame answer = AnswerTo(push, FrameType::kHeld);
  answer.header.epoch = chunk.shard().member().entry().epoch;
  connection.channel().Send(std::move(answer));
}

void Responder::SendSquares(Chunk& chunk) const {
  // A copy: an answer may arrive at once and end the step.
  const std::span<const Waiter> waiters = chunk.waiters().all();
  for (const Waiter& waiter : std::vector<Waiter>(waiters.begin(), waiters.end())) {
    const bool is_of_step = IsPush(waiter.request.type) && waiter.connection != nullptr &&
                            waiter.request.step == chunk.state().version();
    if (is_of_step) SendSquares(*waiter.connection, chunk, waiter.request);
  }
}

void Responder::SendSquares(const Connection& connection,
                            const Chunk& chunk,
                            const FrameHeader& push) const {
  if (!chunk.step().sum().clip().squares) return;
  OutgoingFrame answer = AnswerTo(push, FrameType::kSquares);
  answer.header.epoch = chunk.shard().member().entry().epoch;
  answer.header.priority = 0;  // all tensors of the step wait for it
  answer.header.weight = *chunk.step().sum().clip().squares;
  connection.channel().Send(std::move(answer));
}

void Responder::Redirect(Connection& connection, const FrameHeader& request) const {
  const auto refuse = [&](const std::string& what) {
    Refuse(connection, request, absl::UnavailableError(absl::StrCat(ToString(lane_.server), what)));
  };
  const std::optional<ShardId> shard = lane_.shards.ShardOf(request.chunk);
  if (!shard) return refuse(absl::StrCat(" has no chunk ", request.chunk.value(), " yet"));
  Chunk* chunk = lane_.shards.Find(request.chunk);
  if (chunk != nullptr && chunk->shard().member().is_handing_over()) {
    // Answered once the next primary is certain.
    return chunk->waiters().Add({.connection = &connection,
                                 .request = request,
                                 .min_version = Step{std::numeric_limits<uint64_t>::max()}});
  }
  const ReplicaSet& entry = lane_.shards.entry(*shard);
  if (request.epoch > entry.epoch || entry.primary == lane_.server) {
    return refuse(absl::StrCat(" is not the primary of shard ",
                               shard->value(),
                               " yet, under edition ",
                               ToString(request.epoch)));
  }
  SendMoved(connection, request, *shard);
}

void Responder::SendMoved(const Connection& connection,
                          const FrameHeader& request,
                          ShardId shard) const {
  const ReplicaSet& entry = lane_.shards.entry(shard);
  OutgoingFrame answer = AnswerTo(request, FrameType::kMoved);
  answer.meta = EncodeShardEntry({shard, entry});
  answer.header.epoch = entry.epoch;
  answer.header.priority = 0;
  connection.channel().Send(std::move(answer));
}

// Not an error: workers have come or gone since the sum was made.
void Responder::RefuseJoint(const Connection& connection,
                            const FrameHeader& push,
                            const absl::Status& why) const {
  const LogField worker("worker", ToString(push.worker));
  const LogField reason("why", why.message());
  if (absl::IsFailedPrecondition(why)) {
    lane_.log.Debug("joint push refused", {worker, reason});
  } else {
    lane_.metrics.AddError(ServerError::kRefusedPush);
    lane_.log.Warning("joint push refused", {worker, reason});
  }
  OutgoingFrame answer = AnswerTo(push, FrameType::kRefused);
  answer.meta = EncodeRefusal(absl::CancelledError(why.message()));
  connection.channel().Send(std::move(answer));
}

void Responder::Refuse(const Connection& connection,
                       const FrameHeader& request,
                       const absl::Status& why) const {
  lane_.metrics.AddError(ServerError::kRefusedPush);
  lane_.log.Warning("request refused",
                    {{"worker", ToString(request.worker)}, {"why", why.message()}});
  OutgoingFrame answer = AnswerTo(request, FrameType::kRefused);
  answer.meta = EncodeRefusal(why);
  connection.channel().Send(std::move(answer));
}

}  // namespace pushpull
