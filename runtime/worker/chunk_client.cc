// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/replication/replica_frame.h"
#include "runtime/worker/published_answer.h"
#include "runtime/worker/state_rows.h"

namespace pushpull {
namespace {

// The delay before repeating a request that a server was not ready for: it had no memory, or its
// view was slightly behind.
constexpr Duration kAskedAgainAfter = std::chrono::milliseconds(20);

void ReportVerdict(const CodecVerdict& verdict, const Log& log) {
  log.Info(verdict.uses_codecs ? "codecs pay on this link" : "codecs do not pay, left out",
           {{"step_seconds_with", ToSeconds(verdict.with)},
            {"step_seconds_without", ToSeconds(verdict.without)}});
}

// The chunk's part of its tensor's bytes, if there are any.
template <typename Byte>
std::span<Byte> PartOf(std::span<Byte> bytes, const ClientChunk& chunk) {
  return bytes.empty() ? bytes : bytes.subspan(chunk.offset, chunk.bytes);
}

// The push that `link` has answered with `value_bytes` bytes.
AnsweredPush PushOf(LaneLink& link, ChunkId chunk, const ChunkRequest& push, size_t value_bytes) {
  const size_t gradient_bytes =
      push.encoded.bytes != nullptr ? push.encoded.bytes->num_bytes() : push.source.size();
  return {.server = link.server(),
          .chunk = chunk,
          .step = push.step,
          .bytes = gradient_bytes + value_bytes,
          .offset = link.channel()->clock_offset()};
}

// The phases of `push`, which `link` has answered with `frame`. A member of the group has passed
// the primary's answer on, with all clock readings as its own: until it pushed the sum, this push
// waited for the group.
PhaseTimes PhasesOfAnswer(LaneLink& link,
                          const ReceivedFrame& frame,
                          const PublishedTiming& timing,
                          ChunkRequest& push,
                          WorkerStatistics& statistics) {
  if (!link.worker()) {
    const size_t value_bytes = std::max(frame.payload.size(), frame.in_place.bytes.size());
    return statistics.AddAnswered(
        PushOf(link, frame.header.chunk, push, value_bytes), push.times, timing);
  }
  const Duration offset = link.channel()->clock_offset();
  const auto pushed = std::chrono::nanoseconds(timing.push_sent_at) - offset;
  const SteadyTime summed(std::chrono::duration_cast<Duration>(pushed));
  push.times.group_wait += summed - push.times.queued;
  push.times.queued = summed;
  PublishedTiming by_own_clock = timing;
  by_own_clock.push_sent_at = std::chrono::duration_cast<std::chrono::nanoseconds>(pushed).count();
  return PhasesOf(push.times, by_own_clock, offset);
}

// The request's part for one chunk.
ChunkRequest RequestOf(const TensorRequest& request, const ClientChunk& chunk) {
  return {.type = request.type,
          .step = request.step,
          .clock = request.clock,
          .source = PartOf(request.source, chunk),
          .target = PartOf(request.target, chunk),
          .weight = request.weight,
          .learning_rate = request.learning_rate,
          .priority = request.priority,
          .has_gradient = request.has_gradient,
          .is_kept = request.is_kept,
          .takes_in_place = request.takes_in_place,
          .held_version = request.step,
          .pending = request.pending};
}

// A pull whose answer, in the chunk's version, is already in the target.
ChunkRequest AnsweredPull(const TensorRequest& value, const ClientChunk& chunk, ServerId server) {
  return {.type = FrameType::kPull,
          .step = chunk.version,
          .target = PartOf(value.target, chunk),
          .priority = value.priority,
          .server = server,
          .is_answered = true,
          .held_version = chunk.version,
          .pending = value.pending};
}

size_t PlaceOf(const ClientChunk& chunk, std::span<const ClientChunk> of_tensor) {
  return static_cast<size_t>(&chunk - of_tensor.data());
}

bool IsUnderWay(std::span<const ClientChunk> chunks, RequestTable::Slot slot) {
  return std::ranges::any_of(chunks, [&](const auto& chunk) { return (chunk.*slot).has_value(); });
}

absl::Status UnderWayError() {
  return absl::FailedPreconditionError("the one before it is still under way: wait for it");
}

bool IsAsked(const TensorRequest& request,
             const ClientChunk& chunk,
             std::span<const ClientChunk> of_tensor) {
  return !request.rows || request.rows->Asks(PlaceOf(chunk, of_tensor));
}

// Returns the number of expected answers.
size_t ExpectAnswers(const TensorRequest& request,
                     std::span<const ClientChunk> chunks,
                     const ShardRoutes& routes) {
  size_t count = 0;
  for (const ClientChunk& chunk : chunks) {
    if (!IsAsked(request, chunk, chunks)) continue;
    request.pending->Expect(routes.PrimaryOf(chunk.shard), 1);
    ++count;
  }
  return count;
}

// Rows are sent from the request's memory; a pull's keys are sent like a gradient.
void UseRows(const std::shared_ptr<const RowRequest>& rows, size_t part, ChunkRequest& request) {
  const std::shared_ptr<const HostBuffer>& sent = rows->parts[part].sent;
  request.rows = rows;
  request.row_part = part;
  if (sent == nullptr) return;
  request.encoded.bytes = sent;
  if (request.type != FrameType::kPull) request.source = sent->bytes();
}

// Without a gradient there may still be what the codec has left out of earlier ones.
void UseEncoded(EncodedGradient encoded, ChunkRequest& request) {
  request.encoded = std::move(encoded);
  if (request.has_gradient || request.encoded.bytes == nullptr) return;
  request.has_gradient = true;
  request.source = request.encoded.bytes->bytes();
}

void NoteApplied(const ChunkRequest& push, SteadyTime now, SyncMeter& meter) {
  meter.OnApplied(push.step, now, push.phases);
  push.pending->NoteGradient(push.had_gradient);
}

void ReportOverflows(const ChunkClientDependencies& to,
                     const std::string& what,
                     const EncodedGradient& encoded) {
  to.statistics.AddOverflows(encoded.overflows);
  to.log.Warning(
      "finite values are too large for the codec and become infinite",
      {{"what", what}, {"codec", ToString(encoded.codec)}, {"values", encoded.overflows}});
}

}  // namespace

ChunkClient::ChunkClient(ChunkClientOptions options, ChunkClientDependencies dependencies)
    : options_(std::move(options)),
      dependencies_(dependencies),
      executor_(dependencies.executor),
      step_(options_.hello.worker, chunks_),
      encoder_(options_.hello.worker),
      routes_(dependencies.transport, executor_, options_.hello, *this, dependencies.log),
      joint_(options_.hello,
             options_.group_port,
             {dependencies.transport, executor_, chunks_, routes_, *this, *this, dependencies.log}),
      sender_(options_, executor_, dependencies.statistics, chunks_, step_, routes_, joint_),
      clip_(chunks_, sender_),
      offers_(options_.hello, executor_, chunks_, values_.copies(), routes_),
      exchanges_(options_, executor_, chunks_, routes_),
      self_(std::make_shared<ChunkClient*>(this)) {
  loss_timer_ = executor_.RunAfter(options_.resend_after / 2, [this] { ResendLost(); });
}

ChunkClient::~ChunkClient() {
  executor_.Cancel(loss_timer_);
}

void ChunkClient::UpdateShards(const std::vector<std::pair<ShardId, ReplicaSet>>& entries) {
  const std::vector<bool> is_moved = routes_.Update(entries);
  offers_.RemoveDone();
  for (ClientChunk& chunk : chunks_.chunks()) {
    if (chunk.push && is_moved[chunk.shard.value()]) chunk.push->is_taken = false;
  }
  sender_.SendAgain([&](const ClientChunk& chunk, const ChunkRequest& request) {
    return is_moved[chunk.shard.value()] || request.must_send;
  });
  exchanges_.OnEntries();
}

void ChunkClient::SetServers(const std::vector<ServerEndpoint>& servers) {
  sender_.SetServers(servers);
  routes_.SetServers(servers);
}

void ChunkClient::SetTensors(const std::vector<PlacedTensor>& tensors) {
  chunks_.SetTensors(tensors);
  clip_.SetTensors(tensors);
  std::vector<Codec> codecs;
  for (const PlacedTensor& tensor : tensors)
    codecs.insert(codecs.end(), tensor.shards.size(), tensor.spec.codec);
  joint_.SetTensors(tensors);
  values_.SetChunks(codecs.size());
  encoder_.SetCodecs(codecs);
  meter_.emplace(codecs.size(), [this](const SyncObservation& o) { OnSynchronized(o); });
}

// ---- requests ----

void ChunkClient::Start(const TensorRequest& request) {
  const std::span<ClientChunk> chunks = chunks_.ChunksOf(request.tensor);
  const Slot slot = request.type == FrameType::kPull ? &ClientChunk::pull : &ClientChunk::push;
  if (IsUnderWay(chunks, slot)) return request.pending->Fail(UnderWayError());
  // Counted before the first request is sent: an answer may arrive at once.
  if (ExpectAnswers(request, chunks, routes_) == 0) return request.pending->Finish();
  const bool is_push = IsPush(request.type);
  if (is_push) meter_->OnPush(request.step, request.ready);
  if (request.type == FrameType::kPull) chunks_.BeginRead();
  EncodedGradient all;
  for (ClientChunk& chunk : chunks) {
    if (!IsAsked(request, chunk, chunks)) continue;
    ChunkRequest made = MakeRequest(request, chunk);
    const absl::Status added = AddState(request, chunk, made);
    if (!added.ok()) return request.pending->Fail(added);
    if (request.rows) UseRows(request.rows, PlaceOf(chunk, chunks), made);
    const uint64_t overflows = made.encoded.overflows;
    if (overflows > 0) all = {made.encoded.codec, nullptr, all.overflows + overflows};
    // A gradient in a copy's memory overwrites the copy.
    if (is_push && !request.rows)
      values_.copies().Invalidate(chunks_.IdOf(chunk).value(), made.source);
    chunk.*slot = std::move(made);
    sender_.Send(chunk, *(chunk.*slot), false);
  }
  if (all.overflows > 0) ReportOverflows(dependencies_, request.pending->what(), all);
  if (is_push) clip_.OnPush(request);
  if (is_push && step_.is_led()) {
    step_.OnTensorPushed(*request.pending);
    AdvanceStep();
  }
  NotifyIfWhole();
}

ChunkRequest ChunkClient::MakeRequest(const TensorRequest& request, const ClientChunk& chunk) {
  PushTimes times{.ready = request.ready, .taken_up = executor_.Now()};
  At(SyncPhase::kReduce);
  const SteadyTime reduced = executor_.Now();
  times.reduce = reduced - times.taken_up;
  ChunkRequest made = RequestOf(request, chunk);
  if (IsPush(request.type) && !request.rows) {
    const bool is_bypassed = codec_trial_ && !codec_trial_->Encodes(request.step);
    const EncodeOptions options = {request.weight, is_bypassed, request.has_gradient};
    UseEncoded(
        encoder_.Encode(chunks_.IdOf(chunk), request.step, PartOf(request.source, chunk), options),
        made);
  }
  At(SyncPhase::kEncode);
  times.encode = executor_.Now() - reduced;
  made.base_version = request.type == FrameType::kPull ? chunks_.newest_read() : chunk.version;
  made.server = routes_.PrimaryOf(chunk.shard);
  made.times = times;
  made.is_held = IsPush(request.type) && step_.HoldsBack(chunk);
  return made;
}

void ChunkClient::CatchUp(const std::vector<TensorRequest>& values) {
  for (const TensorRequest& value : values) {
    for (ClientChunk& chunk : chunks_.ChunksOf(value.tensor)) {
      value.pending->Expect(routes_.PrimaryOf(chunk.shard), 1);
      chunk.push = AnsweredPull(value, chunk, routes_.PrimaryOf(chunk.shard));
    }
  }
  step_.Settle();
  AdvanceStep();
}

void ChunkClient::SendWhole(Step step) {
  encoder_.SendWhole(step);
  NotifyIfWhole();
}

void ChunkClient::NotifyIfWhole() {
  if (const std::optional<bool> is_whole = encoder_.TakeVerdict())
    dependencies_.observer.OnWhole(*is_whole);
}

void ChunkClient::OnSynchronized(const SyncObservation& observation) {
  dependencies_.statistics.AddSynchronized(observation);
  if (!codec_trial_) return;
  const auto verdict = codec_trial_->Add(observation.number, observation.sync);
  if (verdict) ReportVerdict(*verdict, dependencies_.log);
}

absl::Status ChunkClient::FailAll(const absl::Status& why) {
  step_.Restart();
  joint_.Clear();
  exchanges_.FailAll(why);
  return chunks_.FailAll(why);
}

// ---- steps in which the leading chunk decides ----

void ChunkClient::AdvanceStep() {
  // Sending may be answered at once, which calls this again: listed actions may be done by then.
  for (StepActions next = step_.Next(); !next.empty(); next = step_.Next()) {
    for (const ChunkId id : next.push) {
      ClientChunk& chunk = *chunks_.Find(id);
      if (chunk.push) sender_.Send(chunk, *chunk.push, false);
    }
    for (const ChunkId id : next.decide) sender_.SendDecision(*chunks_.Find(id));
    for (const ChunkId id : next.fetch) {
      ClientChunk& chunk = *chunks_.Find(id);
      if (chunk.fetch) sender_.Send(chunk, *chunk.fetch, false);
    }
    if (next.settled) FinishStep(*next.settled);
  }
}

void ChunkClient::FinishStep(Step version) {
  const std::vector<ChunkRequest> finished = chunks_.FinishStep(version);
  dependencies_.observer.OnStepSettled(version);
  for (const ChunkRequest& request : finished) {
    if (IsPush(request.type)) NoteApplied(request, executor_.Now(), *meter_);
    request.pending->PartDone(request.server);
  }
  dependencies_.observer.OnAnswered();
}

void ChunkClient::ResendLost() {
  loss_timer_ = executor_.RunAfter(options_.resend_after / 2, [this] { ResendLost(); });
  sender_.ResendLost();
  joint_.ResendLost(options_.resend_after);
  offers_.ResendLost(options_.resend_after);
  exchanges_.ResendLost();
}

void ChunkClient::Later(std::function<void()> action) {
  executor_.RunAfter(kAskedAgainAfter,
                     [self = std::weak_ptr<ChunkClient*>(self_), action = std::move(action)] {
                       if (!self.expired()) action();
                     });
}

// ---- events from links ----

void ChunkClient::OnLinkUp(LaneLink& link) {
  routes_.ShareAllOver(link);
  sender_.SendAgain([&](const ClientChunk& chunk, const ChunkRequest&) {
    return routes_.ToPrimary(chunk.shard) == &link;
  });
  offers_.ResendOver(link);
  exchanges_.OnLinkUp(link);
}

void ChunkClient::OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) {
  dependencies_.log.Warning(
      "no connection, trying again",
      {{"peer", NameOf(link)}, {"why", why.message()}, {"lost_seconds", ToSeconds(lasted)}});
}

void ChunkClient::OnLinkRefused(LaneLink& link, const absl::Status& why) {
  dependencies_.observer.OnBroken(
      absl::Status(why.code(), absl::StrCat(NameOf(link), ": ", why.message())));
}

ChunkClient::Slot ChunkClient::AnsweredBy(const FrameHeader& header) {
  const ClientChunk* chunk = chunks_.Find(header.chunk);
  if (chunk == nullptr || header.type != FrameType::kPublished || IsOutdated(*chunk, header))
    return nullptr;
  const Slot slot = RequestTable::AnsweredBy(*chunk, header);
  const bool fits = slot != nullptr && (chunk->*slot)->answer_bytes() == header.payload_bytes;
  return fits ? slot : nullptr;
}

std::span<std::byte> ChunkClient::PayloadBuffer(LaneLink& link, const FrameHeader& header) {
  if (header.type == FrameType::kExchanged) return exchanges_.PlacePayload(link, header);
  const Slot slot = AnsweredBy(header);
  if (slot == nullptr) return {};
  return values_.Place(link, header, *(chunks_.Find(header.chunk)->*slot));
}

bool ChunkClient::TakesInPlace(LaneLink&, const FrameHeader& header) {
  if (AnsweredBy(header) != &ClientChunk::push) return false;
  const ChunkRequest& push = *chunks_.Find(header.chunk)->push;
  return push.takes_in_place && push.joint == nullptr;
}

void ChunkClient::OnFrame(LaneLink& link, const ReceivedFrame& frame) {
  if (frame.header.type == FrameType::kExchanged) {
    if (auto entry = exchanges_.OnFrame(link, frame))
      UpdateShards({{entry->shard, std::move(entry->entry)}});
    return;
  }
  ClientChunk* chunk = chunks_.Find(frame.header.chunk);
  if (chunk == nullptr) return;
  if (frame.header.type == FrameType::kRefused) return OnRefused(link, *chunk, frame);
  if (frame.header.type == FrameType::kMoved) return OnMoved(*chunk, frame);
  if (frame.header.type == FrameType::kHeld || frame.header.type == FrameType::kSquares)
    return OnNotice(link, *chunk, frame.header);
  if (frame.header.type != FrameType::kPublished) return;
  if (!IsOutdated(*chunk, frame.header)) return OnPublished(link, *chunk, frame);
  // Published before an entry that is known here: the same version will arrive again under that
  // entry.
  const Slot slot = RequestTable::AnsweredBy(*chunk, frame.header);
  if (slot == nullptr) return;
  if (link.worker()) return joint_.Split(*chunk);  // the primary has it
  sender_.Send(*chunk, *(chunk->*slot), true);
}

void ChunkClient::OnMoved(ClientChunk& chunk, const ReceivedFrame& frame) {
  absl::StatusOr<ShardEntry> moved = DecodeShardEntry(frame.meta);
  if (!moved.ok() || moved->shard != chunk.shard) return;
  // The Moved answers one of these requests; resending the others does no harm.
  for (const Slot slot : {&ClientChunk::push, &ClientChunk::pull, &ClientChunk::fetch}) {
    if (!(chunk.*slot)) continue;
    (chunk.*slot)->must_send = true;
    (chunk.*slot)->is_taken = false;
  }
  UpdateShards({{moved->shard, std::move(moved->entry)}});
}

void ChunkClient::OnNotice(LaneLink& link, ClientChunk& chunk, const FrameHeader& header) {
  // A server that is no longer primary has no part in the step: the push goes to the new one.
  if (routes_.ToPrimary(chunk.shard) != &link || !chunk.push || chunk.push->step != header.step)
    return;
  if (header.type == FrameType::kSquares) return clip_.OnSquares(chunk, header.weight);
  chunk.push->is_taken = true;
  AdvanceStep();
}

void ChunkClient::OnPublished(LaneLink& link, ClientChunk& chunk, const ReceivedFrame& frame) {
  const Slot slot = RequestTable::AnsweredBy(chunk, frame.header);
  if (slot == nullptr) return;
  PublishedAnswer answer = ReadPublishedAnswer(frame, chunk.shard);
  if (answer.admission) step_.OnAdmission(*std::move(answer.admission));
  // Under an epoch unknown here the answer must carry its entry, decided by the current
  // coordinator: otherwise the same version will arrive again under that coordinator's term.
  const bool is_new_epoch = frame.header.epoch > routes_.EpochOf(chunk.shard);
  if (is_new_epoch && (!answer.entry || answer.entry->entry.epoch.term < routes_.promised()))
    return;
  // The answer's payload must have the expected size; otherwise it was dropped on arrival.
  const size_t num_bytes = std::max(frame.payload.size(), frame.in_place.bytes.size());
  if ((chunk.*slot)->answer_bytes() != num_bytes) return;
  ChunkRequest request = *std::move(chunk.*slot);
  (chunk.*slot).reset();
  if (is_new_epoch) UpdateShards({{chunk.shard, std::move(answer.entry->entry)}});
  const Step version = frame.header.step;
  chunk.version = std::max(chunk.version, version);
  values_.Store(chunk, request, frame);
  if (answer.updates) request.pending->SetUpdates(*answer.updates);
  if (answer.timing && uneven_steps_.Compare({version, answer.timing->contributors}))
    dependencies_.observer.OnUnevenStep(Step{version.value() - 1});
  clip_.OnVersion(frame.header.chunk, version, frame.header.weight);
  const bool is_push = IsPush(request.type);
  request.had_gradient = HadGradient(frame.header);
  if (is_push) {
    chunk.clock = frame.header.clock;
    dependencies_.statistics.AddChunkPush(link.worker() || request.joint != nullptr);
  }
  if (!link.worker()) dependencies_.statistics.AddReceived(link.channel()->kind(), num_bytes);
  At(SyncPhase::kApply);
  request.times.received = frame.received_at;
  request.times.applied = executor_.Now();
  if (is_push) joint_.PassOn(chunk, request, frame, link.channel()->clock_offset());
  if (is_push && answer.timing && answer.timing->published_at != 0) {
    request.phases = PhasesOfAnswer(link, frame, *answer.timing, request, dependencies_.statistics);
  }
  if (slot == &ClientChunk::fetch || (is_push && step_.is_led())) {
    if (slot == &ClientChunk::push) {
      request.is_answered = true;
      chunk.push = std::move(request);
    }
    chunk.push->held_version = version;
    chunk.push->had_gradient = HadGradient(frame.header);
    return AdvanceStep();
  }
  if (is_push) NoteApplied(request, request.times.applied, *meter_);
  request.pending->PartDone(request.server);
  dependencies_.observer.OnAnswered();
}

// ---- pushes summed in the group ----

void ChunkClient::SendPush(ClientChunk& chunk) {
  if (chunk.push) sender_.Send(chunk, *chunk.push, false);
}

void ChunkClient::OnRefused(LaneLink& link, ClientChunk& chunk, const ReceivedFrame& frame) {
  const absl::Status why = DecodeRefusal(frame.meta);
  const ChunkId id = frame.header.chunk;
  // The server has not learned of the rebuild yet, or had no memory.
  if (offers_.IsOffered(id, frame.header.epoch)) return Later([this, id] { offers_.Resend(id); });
  const Slot slot = RequestTable::RefusedBy(chunk, frame.header);
  if (!(chunk.*slot)) return;
  if (absl::IsUnavailable(why)) {
    // The request may be under way several times, but all refusals together repeat it once.
    // Otherwise each repetition would multiply them.
    if (std::exchange((chunk.*slot)->is_refused, true)) return;
    return Later([this, &chunk, slot] {
      if (!(chunk.*slot)) return;
      (chunk.*slot)->is_refused = false;
      sender_.Send(chunk, *(chunk.*slot), true);
    });
  }
  if (absl::IsCancelled(why)) {
    // The primary cannot count the sum for all of its workers. A late copy says nothing new.
    const bool is_of_sum = (chunk.*slot)->joint != nullptr && frame.header.step == chunk.push->step;
    if (is_of_sum) joint_.Split(chunk);
    return;
  }
  if (slot == &ClientChunk::push) joint_.Abandon(chunk);
  const std::shared_ptr<PendingOperation> pending = (chunk.*slot)->pending;
  const absl::Status named(why.code(),
                           absl::StrCat(ToString(link.server()), " refuses: ", why.message()));
  (chunk.*slot).reset();
  pending->Fail(named);
  if (step_.is_led() && slot != &ClientChunk::pull) {
    step_.Restart();
    chunks_.FailStep(named);
  }
  if (absl::IsAborted(why)) dependencies_.observer.OnBroken(named);
  dependencies_.observer.OnAnswered();
}

bool ChunkClient::IsOutdated(const ClientChunk& chunk, const FrameHeader& header) const {
  return header.epoch < routes_.EpochOf(chunk.shard);
}

void ChunkClient::At(SyncPhase phase) const {
  if (options_.fault_point) options_.fault_point(phase);
}

}  // namespace pushpull
