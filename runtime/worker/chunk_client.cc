// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_client.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "runtime/replication/admission_frame.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/shape.h"
#include "runtime/transport/lane.h"

namespace pushpull {
namespace {

// A server that asks for a request again (it had no memory, or its view was a moment behind) gets
// it after this long.
constexpr Duration kAskedAgainAfter = std::chrono::milliseconds(20);

// What channels may hold for each connection, beside what the kernel has taken: one chunk that is
// being sent. In all at least a few, so that a single connection finds the next one there.
constexpr uint64_t kWindowBytesPerLink = kChunkBytes;
constexpr uint64_t kWindowBytesMin = 4 * kChunkBytes;

}  // namespace

ChunkClient::ChunkClient(ChunkClientOptions options,
                         Transport& transport,
                         Executor& executor,
                         ChunkClientObserver& observer)
    : options_(std::move(options)),
      transport_(transport),
      executor_(executor),
      observer_(observer),
      encoder_(options_.hello.worker),
      window_(executor, [this] { SendWaiting(); }),
      self_(std::make_shared<ChunkClient*>(this)) {
  loss_timer_ = executor_.RunAfter(options_.resend_after / 2, [this] { CheckForLoss(); });
}

ChunkClient::~ChunkClient() {
  executor_.Cancel(loss_timer_);
}

void ChunkClient::UpdateShards(const SetReplicas& replicas) {
  Learn(replicas.entries);
}

std::vector<std::pair<ShardId, ReplicaSet>> ChunkClient::Entries() const {
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
  for (uint32_t i = 0; i < kShardCount; ++i) {
    const ShardId shard{i};
    if (shards_.is_placed(shard)) entries.emplace_back(shard, shards_.entry(shard));
  }
  return entries;
}

void ChunkClient::Learn(const std::vector<std::pair<ShardId, ReplicaSet>>& entries) {
  std::vector<bool> is_moved(kShardCount, false);
  for (const auto& [shard, entry] : entries) {
    if (!IsShard(shard)) continue;
    const std::optional<ServerId> before = shards_.entry(shard).primary;
    if (shards_.Update(shard, entry) && before != entry.primary) is_moved[shard.value()] = true;
  }
  std::erase_if(offers_, [&](const auto& offer) {
    return shards_.entry(chunks_[offer.first.value()].shard).epoch >= offer.second.epoch;
  });
  for (Chunk& chunk : chunks_) {
    if (chunk.push && is_moved[chunk.shard.value()]) chunk.push->is_taken = false;
  }
  SendAgain([&](const Chunk& chunk, const Request& request) {
    return is_moved[chunk.shard.value()] || request.must_send;
  });
}

void ChunkClient::SetServers(const std::vector<ServerEndpoint>& servers) {
  std::erase_if(links_, [&](const auto& known) {
    return std::none_of(servers.begin(), servers.end(), [&](const ServerEndpoint& server) {
      return server.server == known.first;
    });
  });
  uint64_t num_links = 0;
  for (const ServerEndpoint& server : servers) num_links += server.lanes;
  window_.SetLimit(std::max(kWindowBytesMin, num_links * kWindowBytesPerLink));
  for (const ServerEndpoint& server : servers) {
    auto& links = links_[server.server];
    if (!links.empty() && links.front()->address() == server.data_address) continue;
    links.clear();
    for (uint32_t lane = 0; lane < server.lanes; ++lane) {
      LaneLinkTarget target{
          .server = server.server, .address = server.data_address, .hello = options_.hello};
      target.hello.lane = lane;
      links.push_back(std::make_unique<LaneLink>(transport_, executor_, std::move(target), *this));
    }
  }
}

void ChunkClient::SetTensors(const std::vector<PlacedTensor>& tensors) {
  std::vector<Codec> codecs;
  for (const PlacedTensor& tensor : tensors) {
    codecs.insert(codecs.end(), tensor.shards.size(), tensor.spec.codec);
    const uint64_t bytes = NumBytes(tensor.spec.dims, tensor.spec.dtype).value_or(0);
    tensor_chunks_.emplace_back(chunks_.size(), tensor.shards.size());
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const uint64_t offset = i * kChunkBytes;
      chunks_.push_back({.shard = tensor.shards[i],
                         .offset = offset,
                         .bytes = std::min(kChunkBytes, bytes - offset)});
    }
  }
  copies_.SetChunks(chunks_.size());
  encoder_.SetCodecs(codecs);
  meter_.emplace(chunks_.size(), [this](const SyncObservation& o) { OnStepSynchronized(o); });
}

void ChunkClient::Start(const TensorRequest& request) {
  const auto [first, count] = tensor_chunks_[request.tensor];
  const Slot slot = request.type == FrameType::kPull ? &Chunk::pull : &Chunk::push;
  for (size_t i = first; i < first + count; ++i) {
    if (!(chunks_[i].*slot)) continue;
    return request.pending->Fail(
        absl::FailedPreconditionError("the one before it is still under way: wait for it"));
  }
  // Counted before the first is sent: an answer may come at once.
  for (size_t i = first; i < first + count; ++i) {
    request.pending->Expect(shards_.entry(chunks_[i].shard).primary.value_or(ServerId{}), 1);
  }
  if (IsPush(request.type)) meter_->OnPush(request.step, request.ready);
  if (request.type == FrameType::kPull) ++reads_;
  Codec codec = Codec::kNone;
  uint64_t overflows = 0;
  for (size_t i = first; i < first + count; ++i) {
    Request made = MakeRequest(request, i);
    if (made.encoded.overflows > 0) codec = made.encoded.codec;
    overflows += made.encoded.overflows;
    // A gradient in the memory of the value: that is no copy any more.
    if (IsPush(request.type)) copies_.Spoil(i, made.source);
    Chunk& chunk = chunks_[i];
    chunk.*slot = std::move(made);
    Send(chunk, *(chunk.*slot), false);
  }
  if (overflows > 0) observer_.OnOverflow(request.pending->what(), codec, overflows);
  if (IsOfStep(request)) Collect(request);
  TellIfWhole();
}

ChunkClient::Request ChunkClient::MakeRequest(const TensorRequest& request, size_t index) {
  const Chunk& chunk = chunks_[index];
  const auto part = [&](auto bytes) {
    return bytes.empty() ? bytes : bytes.subspan(chunk.offset, chunk.bytes);
  };
  PushTimes times{.ready = request.ready, .taken_up = executor_.Now()};
  At(SyncPhase::kReduce);
  const SteadyTime reduced = executor_.Now();
  times.reduce = reduced - times.taken_up;
  EncodedGradient encoded = EncodePush(request, index);
  At(SyncPhase::kEncode);
  times.encode = executor_.Now() - reduced;
  return {.type = request.type,
          .step = request.step,
          .clock = request.clock,
          .base_version = request.type == FrameType::kPull ? Step{reads_} : chunk.version,
          .source = part(request.source),
          .target = part(request.target),
          .weight = request.weight,
          .learning_rate = request.learning_rate,
          .priority = request.priority,
          .is_kept = request.is_kept,
          .takes_in_place = request.takes_in_place,
          .server = shards_.entry(chunk.shard).primary.value_or(ServerId{}),
          .encoded = std::move(encoded),
          .times = times,
          .sent = {},
          .is_held = IsOfStep(request) && (!is_gated_ || IsLeading(chunk)),
          .held_version = request.step,
          .pending = request.pending};
}

bool ChunkClient::IsOfStep(const TensorRequest& request) const {
  return is_led_ && IsPush(request.type);
}

void ChunkClient::SendWhole(Step step) {
  encoder_.SendWhole(step);
  TellIfWhole();
}

void ChunkClient::TellIfWhole() {
  if (const std::optional<bool> is_whole = encoder_.TakeVerdict()) observer_.OnWhole(*is_whole);
}

EncodedGradient ChunkClient::EncodePush(const TensorRequest& request, size_t chunk) {
  const bool encodes = !codec_trial_ || codec_trial_->Encodes(request.step);
  if (!IsPush(request.type)) return {};
  const std::span<const std::byte> gradient =
      request.source.subspan(chunks_[chunk].offset, chunks_[chunk].bytes);
  return encoder_.Encode(
      ChunkId{chunk}, request.step, gradient, {.weight = request.weight, .is_bypassed = !encodes});
}

void ChunkClient::OnStepSynchronized(const SyncObservation& observation) {
  std::optional<CodecVerdict> verdict;
  if (codec_trial_) verdict = codec_trial_->Add(observation.number, observation.sync);
  if (verdict) observer_.OnCodecsTried(*verdict);
  observer_.OnSynchronized(observation);
}

void ChunkClient::Send(Chunk& chunk, Request& request, bool is_again) {
  if (request.is_held || request.is_answered || request.waits) return;
  request.times.queued = executor_.Now();
  if (request.source.empty()) return Transmit(chunk, request, is_again);
  request.waits = true;
  request.is_again = is_again;
  window_.Add(request.priority, ChunkId{static_cast<uint64_t>(&chunk - chunks_.data())});
  SendWaiting();
}

void ChunkClient::SendWaiting() {
  while (const std::optional<ChunkId> next = window_.Next()) {
    Chunk& chunk = chunks_[next->value()];
    const bool waits = chunk.push && std::exchange(chunk.push->waits, false);
    // What was sent before may have been answered in the meantime.
    if (waits && !chunk.push->is_answered) Transmit(chunk, *chunk.push, chunk.push->is_again);
  }
}

void ChunkClient::Transmit(Chunk& chunk, Request& request, bool is_again) {
  LaneLink* link = LinkFor(chunk.shard);
  request.sent = executor_.Now();
  request.must_send = link == nullptr;                        // when the shard has a primary
  if (link == nullptr || link->channel() == nullptr) return;  // when the link is up
  const EncodedGradient& encoded = request.encoded;
  // The program leaves a gradient as it is until its push is done.
  Payload payload{request.source, nullptr, IsPush(request.type)};
  if (encoded.bytes != nullptr) payload = {encoded.bytes->bytes(), encoded.bytes};
  const uint64_t payload_bytes = payload.bytes.size();
  if (payload_bytes > 0) payload.owner = window_.Lend(payload_bytes, std::move(payload.owner));
  OutgoingFrame frame{.header = {.type = request.type,
                                 .codec = encoded.codec,
                                 .priority = request.priority,
                                 .worker = options_.hello.worker,
                                 .incarnation = options_.hello.incarnation,
                                 .epoch = shards_.entry(chunk.shard).epoch,
                                 .chunk = ChunkId{static_cast<uint64_t>(&chunk - chunks_.data())},
                                 .step = request.step,
                                 .learning_rate = request.learning_rate,
                                 .weight = request.weight,
                                 .clock = request.clock,
                                 .base_version = request.base_version},
                      .meta = {},
                      .payload = std::move(payload)};
  const bool needs_admission =
      (IsPush(request.type) && admission_ && admission_->step == request.step) ||
      request.type == FrameType::kFetch;
  if (is_led_ && admission_ && needs_admission && !IsLeading(chunk)) {
    frame.meta = EncodeAdmission(*admission_);
    frame.header.flags = kFlagAdmission;
  }
  if (request.takes_in_place) frame.header.flags |= kFlagTakesInPlace;
  At(SyncPhase::kQueue);
  observer_.OnPushed(link->channel()->kind(), payload_bytes);
  if (is_again) observer_.OnResend();
  link->channel()->Send(std::move(frame));
}

void ChunkClient::ForEachRequest(const std::function<void(Chunk&, Slot)>& visit) {
  for (Chunk& chunk : chunks_) {
    if (chunk.push) visit(chunk, &Chunk::push);
    if (chunk.pull) visit(chunk, &Chunk::pull);
    if (chunk.fetch) visit(chunk, &Chunk::fetch);
  }
}

void ChunkClient::SendAgain(const std::function<bool(const Chunk&, const Request&)>& is_due) {
  ForEachRequest([&](Chunk& chunk, Slot slot) {
    if (is_due(chunk, *(chunk.*slot))) Send(chunk, *(chunk.*slot), true);
  });
}

void ChunkClient::LowerPulls() {
  ForEachRequest([&](Chunk& chunk, Slot slot) {
    if (slot != &Chunk::pull) return;
    chunk.pull->step = Step{0};
    Send(chunk, *chunk.pull, true);
  });
}

absl::Status ChunkClient::FailAll(const absl::Status& why) {
  absl::Status first;
  ForEachRequest([&](Chunk& chunk, Slot slot) {
    const std::shared_ptr<PendingOperation> pending = (chunk.*slot)->pending;
    (chunk.*slot).reset();
    const std::string missing = pending->MissingServers();
    const absl::Status named(why.code(),
                             absl::StrCat("no answer from ", missing, ": ", why.message()));
    if (first.ok()) {
      first = absl::Status(why.code(), absl::StrCat(pending->what(), ": no answer from ", missing));
    }
    pending->Fail(named);
  });
  BeginStep();
  return first;
}

Step ChunkClient::LowestVersion() const {
  if (chunks_.empty()) return Step{};
  return std::min_element(chunks_.begin(),
                          chunks_.end(),
                          [](const Chunk& a, const Chunk& b) { return a.version < b.version; })
      ->version;
}

Step ChunkClient::LowestClock() const {
  Step lowest = chunks_.empty() ? Step{} : chunks_.front().clock;
  for (const Chunk& chunk : chunks_) lowest = std::min(lowest, chunk.clock);
  return lowest;
}

bool ChunkClient::has_pushes() const {
  return std::any_of(
      chunks_.begin(), chunks_.end(), [](const Chunk& chunk) { return chunk.push.has_value(); });
}

void ChunkClient::RaiseVersions(Step version) {
  for (Chunk& chunk : chunks_) chunk.version = std::max(chunk.version, version);
}

// ---- links ----

void ChunkClient::Share(std::shared_ptr<const SharedMemory> memory) {
  for (const auto& [server, links] : links_) {
    for (const std::unique_ptr<LaneLink>& link : links) ShareOver(*link, memory);
  }
  shared_.push_back(std::move(memory));
}

void ChunkClient::ShareOver(LaneLink& link, const std::shared_ptr<const SharedMemory>& memory) {
  if (link.channel() == nullptr) return;  // when it is up
  const std::string peer = absl::StrCat(ToString(link.server()), " (", link.address(), ")");
  link.channel()->Share(
      memory, [this, peer, self = std::weak_ptr<ChunkClient*>(self_)](const absl::Status& why) {
        if (!self.expired()) observer_.OnNotShared(peer, why);
      });
}

void ChunkClient::OnLinkUp(LaneLink& link) {
  for (const auto& memory : shared_) ShareOver(link, memory);
  SendAgain([&](const Chunk& chunk, const Request&) { return LinkFor(chunk.shard) == &link; });
  SendOffers([&](const LaneLink& to, const CopyOffer&) { return &to == &link; });
}

void ChunkClient::OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) {
  observer_.OnWaiting(
      absl::StrCat(ToString(link.server()), " (", link.address(), ")"), why, lasted);
}

void ChunkClient::OnLinkRefused(LaneLink& link, const absl::Status& why) {
  observer_.OnBroken(absl::Status(
      why.code(),
      absl::StrCat(ToString(link.server()), " (", link.address(), "): ", why.message())));
}

std::span<std::byte> ChunkClient::PayloadBuffer(LaneLink& link, const FrameHeader& header) {
  Chunk* chunk = Find(header.chunk);
  if (chunk == nullptr || header.type != FrameType::kPublished || IsOutdated(*chunk, header))
    return {};
  const Slot slot = AnsweredBy(*chunk, header);
  if (slot == nullptr || (chunk->*slot)->target.size() != header.payload_bytes) return {};
  const std::span<std::byte> whole = WholeBuffer(link, header.payload_bytes);
  if (!whole.empty()) return whole;
  const std::span<std::byte> target = (chunk->*slot)->target;
  copies_.Spoil(header.chunk.value(), target);  // it may break off in the middle
  return target;
}

bool ChunkClient::TakesInPlace(LaneLink&, const FrameHeader& header) {
  const Chunk* chunk = Find(header.chunk);
  if (chunk == nullptr || header.type != FrameType::kPublished || IsOutdated(*chunk, header))
    return false;
  const Slot slot = AnsweredBy(*chunk, header);
  return slot == &Chunk::push && chunk->push->takes_in_place &&
         chunk->push->target.size() == header.payload_bytes;
}

// Empty: straight into the target.
std::span<std::byte> ChunkClient::WholeBuffer(LaneLink& link, size_t bytes) {
  if (!keeps_copies_) return {};
  HostBuffer& buffer = arriving_[{link.server(), link.lane()}];
  if (buffer.num_bytes() < bytes) {
    absl::StatusOr<HostBuffer> larger = HostBuffer::Uninitialized(bytes);
    if (!larger.ok()) return {};
    buffer = *std::move(larger);
  }
  return buffer.bytes().first(bytes);
}

void ChunkClient::OnFrame(LaneLink& link, const ReceivedFrame& frame) {
  Chunk* chunk = Find(frame.header.chunk);
  if (chunk == nullptr) return;
  if (frame.header.type == FrameType::kRefused) return OnRefused(link, *chunk, frame);
  if (frame.header.type == FrameType::kMoved) return OnMoved(*chunk, frame);
  if (frame.header.type == FrameType::kHeld) return OnHeld(link, *chunk, frame.header);
  if (frame.header.type != FrameType::kPublished) return;
  if (!IsOutdated(*chunk, frame.header)) return OnPublished(link, *chunk, frame);
  // Published before an entry that is known here: the same version comes again under that.
  const Slot slot = AnsweredBy(*chunk, frame.header);
  if (slot != nullptr) Send(*chunk, *(chunk->*slot), true);
}

void ChunkClient::OnMoved(Chunk& chunk, const ReceivedFrame& frame) {
  absl::StatusOr<ShardEntry> moved = DecodeShardEntry(frame.meta);
  if (!moved.ok() || moved->shard != chunk.shard) return;
  // It answers one of them; sending the others again does no harm.
  if (chunk.push) {
    chunk.push->must_send = true;
    chunk.push->is_taken = false;
  }
  if (chunk.pull) chunk.pull->must_send = true;
  if (chunk.fetch) chunk.fetch->must_send = true;
  Learn({{moved->shard, std::move(moved->entry)}});
}

ChunkClient::Slot ChunkClient::AnsweredBy(const Chunk& chunk, const FrameHeader& answer) {
  const bool has_payload = answer.payload_bytes > 0;
  const bool awaits_push = chunk.push && !chunk.push->is_held && !chunk.push->is_answered;
  if (awaits_push && !chunk.push->target.empty() == has_payload) {
    const bool is_init = chunk.push->type == FrameType::kInit && answer.clock == Step{0};
    const bool is_of_push = answer.clock == Step{chunk.push->step.value() + 1};
    if (is_init || is_of_push) return &Chunk::push;
  }
  const bool is_of_pull = chunk.pull && has_payload && answer.clock == Step{0} &&
                          answer.base_version == chunk.pull->base_version;
  if (is_of_pull && answer.step >= chunk.pull->step) return &Chunk::pull;
  const bool is_of_fetch = chunk.fetch && has_payload && answer.clock == Step{0} &&
                           answer.base_version == chunk.fetch->base_version;
  if (is_of_fetch && answer.step >= chunk.fetch->step) return &Chunk::fetch;
  return nullptr;
}

void ChunkClient::OnPublished(LaneLink& link, Chunk& chunk, const ReceivedFrame& frame) {
  const Slot slot = AnsweredBy(chunk, frame.header);
  if (slot == nullptr) return;
  // The entry of an epoch that is not known here comes with the first answer under it.
  std::optional<ShardEntry> news;
  std::span<const std::byte> meta = frame.meta;
  meta = meta.subspan(std::min(meta.size(), kPublishedTimingBytes));
  HearAdmission(frame, meta);
  if (frame.header.epoch > shards_.entry(chunk.shard).epoch) {
    news = ReadNews(chunk, meta);
    if (!news) return;
  }
  // The answer's payload must be where the program expects it, not dropped on arrival.
  const size_t num_bytes = std::max(frame.payload.size(), frame.in_place.bytes.size());
  if ((chunk.*slot)->target.size() != num_bytes) return;
  Request request = *std::move(chunk.*slot);
  (chunk.*slot).reset();
  if (news) Learn({{news->shard, std::move(news->entry)}});
  chunk.version = std::max(chunk.version, frame.header.step);
  TakeValue(chunk, request, frame);
  const absl::StatusOr<PublishedTiming> timing = DecodePublishedTiming(frame.meta);
  CompareContributors(frame.header.step, timing);
  if (IsPush(request.type)) chunk.clock = frame.header.clock;
  observer_.OnPulled(link.channel()->kind(), num_bytes);
  At(SyncPhase::kApply);
  request.times.received = frame.received_at;
  request.times.applied = executor_.Now();
  if (IsPush(request.type)) {
    const bool is_timed = timing.ok() && timing->published_at != 0;
    const Duration offset = link.channel()->clock_offset();
    if (is_timed) request.phases = PhasesOf(request.times, *timing, offset);
    if (!is_led_) meter_->OnApplied(request.step, request.times.applied, request.phases);
  }
  if (slot == &Chunk::fetch || (is_led_ && IsPush(request.type)))
    return OnStepAnswered(chunk, slot, std::move(request), frame.header.step);
  request.pending->PartDone(request.server);
  observer_.OnAnswered();
}

void ChunkClient::TakeValue(const Chunk& chunk,
                            const Request& request,
                            const ReceivedFrame& frame) {
  if (!frame.payload.empty()) {
    if (frame.payload.data() != request.target.data())
      std::memcpy(request.target.data(), frame.payload.data(), frame.payload.size());
    copies_.Take(frame.header.chunk.value(), request.target, frame.header.step, request.is_kept);
  }
  if (!request.takes_in_place) return;
  const bool is_here = frame.in_place.bytes.empty();
  request.pending->SetPiece(chunk.offset,
                            is_here ? Payload{request.target, nullptr} : frame.in_place);
}

std::optional<ShardEntry> ChunkClient::ReadNews(const Chunk& chunk,
                                                std::span<const std::byte> meta) const {
  if (meta.empty()) return std::nullopt;
  absl::StatusOr<ShardEntry> entry = DecodeShardEntry(meta);
  if (!entry.ok() || entry->shard != chunk.shard) return std::nullopt;
  // The same version comes again under the term that is in charge.
  if (entry->entry.epoch.term < shards_.promised()) return std::nullopt;
  return *std::move(entry);
}

void ChunkClient::CompareContributors(Step version, const absl::StatusOr<PublishedTiming>& timing) {
  if (timing.ok() && uneven_steps_.Compare({version, timing->contributors}))
    observer_.OnUnevenStep(Step{version.value() - 1});
}

ChunkClient::Slot ChunkClient::RefusedBy(const Chunk& chunk, const FrameHeader& refusal) {
  if (chunk.push && !chunk.push->is_held && !chunk.push->is_answered) return &Chunk::push;
  const bool is_of_fetch =
      chunk.fetch && (!chunk.pull || refusal.base_version == chunk.fetch->base_version);
  return is_of_fetch ? &Chunk::fetch : &Chunk::pull;
}

void ChunkClient::OnRefused(LaneLink& link, Chunk& chunk, const ReceivedFrame& frame) {
  const absl::Status why = DecodeRefusal(frame.meta);
  const auto offer = offers_.find(frame.header.chunk);
  if (offer != offers_.end() && offer->second.epoch == frame.header.epoch) {
    // It has not heard of its task yet, or had no memory.
    executor_.RunAfter(kAskedAgainAfter,
                       [this, id = offer->first, self = std::weak_ptr<ChunkClient*>(self_)] {
                         if (self.expired()) return;
                         const auto again = offers_.find(id);
                         if (again != offers_.end()) SendOffer(id, again->second);
                       });
    return;
  }
  const Slot slot = RefusedBy(chunk, frame.header);
  if (!(chunk.*slot)) return;
  if (absl::IsUnavailable(why)) {
    const ChunkId id = frame.header.chunk;
    executor_.RunAfter(kAskedAgainAfter,
                       [this, id, slot, self = std::weak_ptr<ChunkClient*>(self_)] {
                         Chunk* again = self.expired() ? nullptr : Find(id);
                         if (again != nullptr && again->*slot) Send(*again, *(again->*slot), true);
                       });
    return;
  }
  const std::shared_ptr<PendingOperation> pending = (chunk.*slot)->pending;
  const bool is_of_step = is_led_ && slot != &Chunk::pull;
  const absl::Status named(why.code(),
                           absl::StrCat(ToString(link.server()), " refuses: ", why.message()));
  (chunk.*slot).reset();
  pending->Fail(named);
  if (is_of_step) FailStep(named);
  if (absl::IsAborted(why)) observer_.OnBroken(named);
  observer_.OnAnswered();
}

// ---- a shard that nobody holds any more ----

std::vector<ChunkCopy> ChunkClient::CopiesOf(ShardId shard) {
  std::vector<ChunkCopy> copies;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.shard != shard) continue;
    offers_.erase(ChunkId{i});
    ChunkCopy copy{.chunk = ChunkId{i}, .known = chunk.version};
    if (const auto& held = copies_.Find(i)) {
      copy.kind = ChunkCopy::Kind::kWhole;
      copy.version = held->version;
      copy.checksum = ChecksumPayload(held->value);
    } else if (chunk.push && chunk.push->type == FrameType::kInit) {
      copy.kind = ChunkCopy::Kind::kInitial;
    }
    copies.push_back(copy);
  }
  return copies;
}

void ChunkClient::Offer(const OfferCopies& order) {
  const bool is_known = order.entry.epoch <= shards_.entry(order.shard).epoch;
  if (!order.entry.primary || is_known) return;
  for (const ChunkId chunk : order.chunks) {
    if (Find(chunk) == nullptr) continue;
    CopyOffer& offer = offers_[chunk];
    offer = {.epoch = order.entry.epoch, .primary = *order.entry.primary, .sent = {}};
    SendOffer(chunk, offer);
  }
}

void ChunkClient::SendOffer(ChunkId chunk, CopyOffer& offer) {
  LaneLink* link = LinkTo(offer.primary, chunks_[chunk.value()].shard);
  const auto& copy = copies_.Find(chunk.value());
  offer.sent = executor_.Now();
  if (link == nullptr || link->channel() == nullptr || !copy) return;  // when the link is up
  link->channel()->Send({.header = {.type = FrameType::kReturnCopy,
                                    .worker = options_.hello.worker,
                                    .incarnation = options_.hello.incarnation,
                                    .epoch = offer.epoch,
                                    .chunk = chunk,
                                    .step = copy->version},
                         .meta = {},
                         .payload = {copy->value, nullptr}});
}

void ChunkClient::SendOffers(const std::function<bool(LaneLink&, const CopyOffer&)>& is_due) {
  for (auto& [chunk, offer] : offers_) {
    LaneLink* link = LinkTo(offer.primary, chunks_[chunk.value()].shard);
    if (link != nullptr && is_due(*link, offer)) SendOffer(chunk, offer);
  }
}

// ---- small parts ----

void ChunkClient::CheckForLoss() {
  loss_timer_ = executor_.RunAfter(options_.resend_after / 2, [this] { CheckForLoss(); });
  const SteadyTime now = executor_.Now();
  SendAgain([&](const Chunk& chunk, const Request& request) {
    LaneLink* link = LinkFor(chunk.shard);
    return link != nullptr && link->channel() != nullptr && !link->channel()->is_reliable() &&
           now - request.sent >= options_.resend_after;
  });
  SendOffers([&](LaneLink& link, const CopyOffer& offer) {
    return link.channel() != nullptr && !link.channel()->is_reliable() &&
           now - offer.sent >= options_.resend_after;
  });
}

LaneLink* ChunkClient::LinkFor(ShardId shard) {
  const std::optional<ServerId> primary = shards_.entry(shard).primary;
  return primary ? LinkTo(*primary, shard) : nullptr;
}

LaneLink* ChunkClient::LinkTo(ServerId server, ShardId shard) {
  const auto links = links_.find(server);
  if (links == links_.end() || links->second.empty()) return nullptr;
  return links->second[LaneOf(shard, links->second.size())].get();
}

ChunkClient::Chunk* ChunkClient::Find(ChunkId chunk) {
  return chunk.value() < chunks_.size() ? &chunks_[chunk.value()] : nullptr;
}

bool ChunkClient::IsOutdated(const Chunk& chunk, const FrameHeader& header) const {
  return header.epoch < shards_.entry(chunk.shard).epoch;
}

void ChunkClient::At(SyncPhase phase) const {
  if (options_.fault_point) options_.fault_point(phase);
}

}  // namespace pushpull
