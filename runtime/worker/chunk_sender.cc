// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_sender.h"

#include <algorithm>
#include <utility>

#include "runtime/consistency/sample_queue.h"
#include "runtime/replication/admission_frame.h"
#include "runtime/replication/joint_frame.h"
#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

// What channels may hold per connection in addition to what the kernel has taken: the one chunk
// that is being sent. In total at least a few, so that a single connection always has a next one.
constexpr uint64_t kWindowBytesPerLink = kChunkBytes;
constexpr uint64_t kWindowBytesMin = 4 * kChunkBytes;

}  // namespace

ChunkSender::ChunkSender(const ChunkClientOptions& options,
                         Executor& executor,
                         WorkerStatistics& statistics,
                         RequestTable& chunks,
                         const StepAgreement& step,
                         ShardRoutes& routes,
                         JointPushes& joint)
    : options_(options),
      executor_(executor),
      statistics_(statistics),
      chunks_(chunks),
      step_(step),
      routes_(routes),
      joint_(joint),
      window_(executor, [this] { SendWaiting(); }) {}

void ChunkSender::SetServers(const std::vector<ServerEndpoint>& servers) {
  uint64_t num_links = 0;
  for (const ServerEndpoint& server : servers) num_links += server.lanes;
  window_.SetLimit(std::max(kWindowBytesMin, num_links * kWindowBytesPerLink));
}

Channel* ChunkSender::Accompanies(const ClientChunk& chunk) const {
  LaneLink* link = routes_.ToPrimary(chunk.shard);
  if (!chunk.push || chunk.push->is_answered || link == nullptr) return nullptr;
  return link->channel();
}

FrameHeader ChunkSender::HeaderTo(const ClientChunk& chunk, FrameType type) const {
  return {.type = type,
          .dtype = chunk.dtype,
          .worker = options_.hello.worker,
          .incarnation = options_.hello.incarnation,
          .epoch = routes_.EpochOf(chunk.shard),
          .chunk = chunks_.IdOf(chunk)};
}

// If the decision is lost, it is resent along with the push.
void ChunkSender::LowerPulls() {
  for (ClientChunk& chunk : chunks_.chunks()) {
    if (!chunk.pull) continue;
    chunk.pull->step = Step{0};
    Send(chunk, *chunk.pull, true);
  }
}

// The server has counted it, or will: its repetition only changes when it is answered.
void ChunkSender::EndWaitForSamples() {
  for (ClientChunk& chunk : chunks_.chunks()) {
    if (!chunk.holds_samples || !chunk.push || chunk.push->weight >= kAnswerAtOnce) continue;
    chunk.push->weight += kAnswerAtOnce;
    Send(chunk, *chunk.push, true);
  }
}

void ChunkSender::SendDecision(const ClientChunk& chunk) {
  Channel* channel = Accompanies(chunk);
  if (channel == nullptr) return;
  FrameHeader header = HeaderTo(chunk, FrameType::kDecided);
  header.flags = kFlagAdmission;
  header.priority = chunk.push->priority;
  header.step = step_.decision().step;
  channel->Send({.header = header, .meta = EncodeAdmission(step_.decision()), .payload = {}});
}

// If the scale is lost, the push is resent and the primary asks again.
void ChunkSender::SendScale(const ClientChunk& chunk, double scale) {
  Channel* channel = Accompanies(chunk);
  if (channel == nullptr) return;
  FrameHeader header = HeaderTo(chunk, FrameType::kScale);
  header.priority = 0;  // other workers wait for the step too
  header.step = chunk.push->step;
  header.weight = scale;
  channel->Send({.header = header, .meta = {}, .payload = {}});
}

void ChunkSender::Send(ClientChunk& chunk, ChunkRequest& request, bool is_again) {
  if (request.is_held || request.is_answered || request.waits) return;
  request.times.queued = executor_.Now();
  const bool has_joint_sum = request.joint != nullptr && request.joint->has_gradient;
  if (request.source.empty() && !has_joint_sum) return Transmit(chunk, request, is_again);
  request.waits = true;
  request.is_again = is_again;
  window_.Add(request.priority, chunks_.IdOf(chunk));
  SendWaiting();
}

void ChunkSender::SendWaiting() {
  while (const std::optional<ChunkId> next = window_.Next()) {
    ClientChunk& chunk = *chunks_.Find(*next);
    const bool waits = chunk.push && std::exchange(chunk.push->waits, false);
    // A resent push may have been answered in the meantime.
    if (waits && !chunk.push->is_answered) Transmit(chunk, *chunk.push, chunk.push->is_again);
  }
}

void ChunkSender::Transmit(ClientChunk& chunk, ChunkRequest& request, bool is_again) {
  LaneLink* link = routes_.ToPrimary(chunk.shard);
  const bool may_be_joint = IsPush(request.type) && chunk.push && &*chunk.push == &request;
  const std::optional<LaneLink*> summer = may_be_joint ? joint_.Route(chunk) : std::nullopt;
  if (summer) {
    if (*summer == nullptr) return;
    link = *summer;
  }
  request.sent = executor_.Now();
  request.must_send = link == nullptr;                        // when the shard has a primary
  if (link == nullptr || link->channel() == nullptr) return;  // when the link is up
  OutgoingFrame frame = FrameOf(chunk, request);
  const uint64_t payload_bytes = frame.payload.bytes.size();
  if (options_.fault_point) options_.fault_point(SyncPhase::kQueue);
  if (!summer) statistics_.AddSent(link->channel()->kind(), payload_bytes);
  if (is_again) statistics_.AddResend();
  link->channel()->Send(std::move(frame));
}

OutgoingFrame ChunkSender::FrameOf(const ClientChunk& chunk, const ChunkRequest& request) {
  const EncodedGradient& encoded = request.encoded;
  const std::shared_ptr<JointPush>& joint = request.joint;
  // The program does not change a gradient until its push is done, so a push needs no owner.
  Payload payload{request.source, nullptr, IsPush(request.type)};
  if (encoded.bytes != nullptr) payload = {encoded.bytes->bytes(), encoded.bytes};
  if (joint != nullptr) payload = {joint->sum.bytes(), joint};
  const uint64_t payload_bytes = payload.bytes.size();
  if (payload_bytes > 0) payload.owner = window_.Lend(payload_bytes, std::move(payload.owner));
  OutgoingFrame frame{
      .header = HeaderTo(chunk, request.type), .meta = {}, .payload = std::move(payload)};
  frame.header.codec = encoded.codec;
  frame.header.priority = request.priority;
  frame.header.step = request.step;
  frame.header.learning_rate = request.learning_rate;
  frame.header.weight = request.weight;
  frame.header.clock = request.clock;
  frame.header.base_version = request.base_version;
  if (const Admission* admission = step_.AdmissionFor(chunk, request)) {
    frame.meta = EncodeAdmission(*admission);
    frame.header.flags = kFlagAdmission;
  }
  if (!request.has_gradient) frame.header.flags |= kFlagNoGradient;
  if (request.takes_in_place) frame.header.flags |= kFlagTakesInPlace;
  if (request.state != nullptr) frame.header.flags |= kFlagOptimizerState;
  if (joint != nullptr) {
    frame.header.type = joint->wants_value ? FrameType::kPushPull : FrameType::kPush;
    frame.header.learning_rate = joint->learning_rate;
    frame.header.weight = joint->unit;
    frame.header.flags = kFlagJoint;
    if (!joint->has_gradient) frame.header.flags |= kFlagNoGradient;
    frame.meta = EncodeJoint(joint->contributors);
  }
  return frame;
}

void ChunkSender::SendAgain(
    const std::function<bool(const ClientChunk&, const ChunkRequest&)>& is_due) {
  chunks_.ForEachRequest([&](ClientChunk& chunk, RequestTable::Slot slot) {
    if (is_due(chunk, *(chunk.*slot))) Send(chunk, *(chunk.*slot), true);
  });
}

void ChunkSender::ResendLost() {
  const SteadyTime now = executor_.Now();
  SendAgain([&](const ClientChunk& chunk, const ChunkRequest& request) {
    LaneLink* link = routes_.ToPrimary(chunk.shard);
    return link != nullptr && link->channel() != nullptr && !link->channel()->is_reliable() &&
           now - request.sent >= options_.resend_after;
  });
}

}  // namespace pushpull
