// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/exchange_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// How many pieces may be without an answer: what servers hold of an exchange that the slowest
// worker has just begun.
constexpr size_t kPiecesUnderWayMax = 16;

// The delay after which a piece is sent again that a server was not ready for.
constexpr Duration kSentAgainAfter = std::chrono::milliseconds(20);

absl::Status WrongMode(const Consistency& mode) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the job's mode is ", Describe(mode), ": collectives need Sync without backup workers"));
}

}  // namespace

ExchangeOperation::ExchangeOperation(const ExchangeSpec& of,
                                     Step at,
                                     uint64_t program_step,
                                     HostBuffer values)
    : spec(of),
      step(at),
      input(std::make_shared<const HostBuffer>(std::move(values))),
      pending(absl::StrCat(Describe(of), ", step ", program_step)) {
  pending.SetNote("another worker has not called it yet, or a server does not answer");
}

ExchangeClient::ExchangeClient(const ChunkClientOptions& options,
                               Executor& executor,
                               RequestTable& chunks,
                               ShardRoutes& routes)
    : options_(options),
      executor_(executor),
      chunks_(chunks),
      routes_(routes),
      self_(std::make_shared<ExchangeClient*>(this)) {}

void ExchangeClient::Start(std::shared_ptr<ExchangeOperation> operation) {
  if (!mode_.is_sync() || mode_.admits()) return operation->pending.Fail(WrongMode(mode_));
  if (chunks_.chunks().empty()) {
    return operation->pending.Fail(absl::FailedPreconditionError(
        "collectives go by the servers of the job's tensors, and there is none"));
  }
  if (current_) {
    return operation->pending.Fail(absl::FailedPreconditionError(
        absl::StrCat(current_->operation->pending.what(), " is still under way: wait for it")));
  }
  if (operation->step < next_.step) {
    return operation->pending.Fail(absl::FailedPreconditionError(
        absl::StrCat("a collective of a later step, ",
                     next_.step.value() - operation->step.value(),
                     " after this one, was called before: steps do not go back")));
  }
  Begin(std::move(operation));
}

void ExchangeClient::Begin(std::shared_ptr<ExchangeOperation> operation) {
  if (next_.step != operation->step) next_ = {operation->step, 0};
  const uint32_t num_pieces = NumPieces(operation->spec);
  current_ = Exchange{
      .operation = std::move(operation), .id = next_, .pieces = std::vector<Piece>(num_pieces)};
  ++next_.sequence;
  SendDue();
}

void ExchangeClient::UseMode(const Consistency& mode) {
  mode_ = mode;
  if (!mode_.is_sync() || mode_.admits()) Fail(WrongMode(mode_));
}

void ExchangeClient::FailAll(const absl::Status& why) {
  Fail(why);
  kept_.reset();
}

// Its pieces are sent again with the next entry of their shard, so that a worker that was not told
// yet is told by the next primary.
void ExchangeClient::Fail(const absl::Status& why) {
  if (!current_) return;
  kept_ = std::exchange(current_, std::nullopt);
  for (Piece& piece : kept_->pieces) piece.is_delivered = true;
  const std::shared_ptr<ExchangeOperation> failed = kept_->operation;
  failed->pending.Fail(why);
}

// ---- sending ----

ChunkId ExchangeClient::ChunkOf(size_t piece) {
  return ChunkId{piece % chunks_.chunks().size()};
}

ShardId ExchangeClient::ShardOf(size_t piece) {
  return chunks_.Find(ChunkOf(piece))->shard;
}

ExchangeClient::Exchange* ExchangeClient::Find(ExchangeId id) {
  if (current_ && current_->id == id) return &*current_;
  return kept_ && kept_->id == id ? &*kept_ : nullptr;
}

// In the order of the pieces in every worker: the first that one waits for, all others have sent.
// What an answer that comes at once changes is seen by the next look.
void ExchangeClient::SendDue() {
  size_t under_way = 0;
  for (std::optional<Exchange>* exchange : {&kept_, &current_}) {
    for (size_t i = 0; *exchange && i < (*exchange)->pieces.size(); ++i) {
      const Piece& piece = (*exchange)->pieces[i];
      if (piece.is_delivered) continue;
      if (under_way++ == kPiecesUnderWayMax) return;
      if (!piece.is_under_way) Send(**exchange, i);
    }
  }
}

void ExchangeClient::Send(Exchange& exchange, size_t index) {
  Piece& piece = exchange.pieces[index];
  const ShardId shard = ShardOf(index);
  LaneLink* link = routes_.ToPrimary(shard);
  if (link == nullptr || link->channel() == nullptr) return;  // when there is one
  piece.is_under_way = true;
  piece.epoch = routes_.EpochOf(shard);
  piece.sent = executor_.Now();
  const ExchangeSpec& spec = exchange.operation->spec;
  const auto number = static_cast<uint32_t>(index);
  OutgoingFrame frame{.header = {.type = FrameType::kExchange,
                                 .worker = options_.hello.worker,
                                 .incarnation = options_.hello.incarnation,
                                 .epoch = piece.epoch,
                                 .chunk = ChunkOf(index)},
                      .meta = {},
                      .payload = {}};
  SetExchangeKey({exchange.id, number}, frame.header);
  ExchangeMeta meta{.spec = spec, .result_of = {}};
  if (piece.result != nullptr) {
    meta.result_of = piece.workers;
    frame.payload = {piece.result->bytes(), piece.result};
  } else if (const uint64_t bytes = ContributionBytes(spec, number, options_.hello.worker)) {
    const std::shared_ptr<const HostBuffer>& input = exchange.operation->input;
    frame.payload = {input->bytes().subspan(PieceOffset(spec, number), bytes), input};
  }
  frame.meta = EncodeExchange(meta);
  link->channel()->Send(std::move(frame));
}

void ExchangeClient::SendAgain(const std::function<bool(size_t index, const Piece&)>& is_due) {
  for (std::optional<Exchange>* exchange : {&kept_, &current_}) {
    for (size_t i = 0; *exchange && i < (*exchange)->pieces.size(); ++i) {
      Piece& piece = (*exchange)->pieces[i];
      if (!is_due(i, piece)) continue;
      piece.is_delivered = false;
      piece.is_under_way = false;
    }
  }
  SendDue();
}

void ExchangeClient::OnEntries() {
  SendAgain([&](size_t index, const Piece& piece) {
    return piece.epoch < routes_.EpochOf(ShardOf(index));
  });
}

void ExchangeClient::OnLinkUp(const LaneLink& link) {
  SendAgain([&](size_t index, const Piece&) { return routes_.ToPrimary(ShardOf(index)) == &link; });
}

void ExchangeClient::ResendLost() {
  const SteadyTime now = executor_.Now();
  SendAgain([&](size_t index, const Piece& piece) {
    LaneLink* link = routes_.ToPrimary(ShardOf(index));
    return piece.is_under_way && !piece.is_delivered && link != nullptr &&
           link->channel() != nullptr && !link->channel()->is_reliable() &&
           now - piece.sent >= options_.resend_after;
  });
}

void ExchangeClient::SendLater(ExchangeKey key) {
  executor_.RunAfter(kSentAgainAfter, [self = std::weak_ptr<ExchangeClient*>(self_), this, key] {
    if (self.expired()) return;
    Exchange* exchange = Find(key.exchange);
    if (exchange == nullptr) return;
    exchange->pieces[key.piece].is_under_way = false;
    SendDue();
  });
}

// ---- answers ----

std::span<std::byte> ExchangeClient::PlacePayload(const LaneLink& link, const FrameHeader& header) {
  const std::optional<ExchangeKey> key = ExchangeKeyOf(header);
  if (!key || Find(key->exchange) == nullptr) return {};
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (!buffer.ok()) return {};
  std::shared_ptr<HostBuffer>& reception = receptions_[&link];
  reception = std::make_shared<HostBuffer>(*std::move(buffer));
  return reception->bytes();
}

std::optional<ShardEntry> ExchangeClient::OnFrame(const LaneLink& link,
                                                  const ReceivedFrame& frame) {
  const auto received = receptions_.extract(&link);
  const std::optional<ExchangeKey> key = ExchangeKeyOf(frame.header);
  Exchange* exchange = key ? Find(key->exchange) : nullptr;
  if (exchange == nullptr || key->piece >= exchange->pieces.size()) return std::nullopt;
  absl::StatusOr<ExchangeAnswer> answer = DecodeExchangeAnswer(frame.meta);
  if (!answer.ok()) return std::nullopt;
  Piece& piece = exchange->pieces[key->piece];
  const Epoch known = routes_.EpochOf(ShardOf(key->piece));
  switch (answer->kind) {
    case ExchangeAnswer::Kind::kMoved:
      if (answer->entry->entry.epoch > known) return std::move(answer->entry);
      SendLater(*key);
      return std::nullopt;
    case ExchangeAnswer::Kind::kRefused:
      if (absl::IsUnavailable(answer->status)) {
        SendLater(*key);
      } else if (current_ && exchange == &*current_) {
        Fail(absl::Status(
            answer->status.code(),
            absl::StrCat(ToString(link.server()), " refuses: ", answer->status.message())));
      } else {
        piece.is_delivered = true;
      }
      return std::nullopt;
    case ExchangeAnswer::Kind::kTaken:
    case ExchangeAnswer::Kind::kResult:
      break;
  }
  // From a server that may not be the primary any more: the next one has to answer.
  if (frame.header.epoch < known) return std::nullopt;
  if (answer->kind == ExchangeAnswer::Kind::kResult && piece.result == nullptr) {
    if (frame.payload.size() !=
        AnswerBytes(exchange->operation->spec, key->piece, answer->workers)) {
      SendLater(*key);
      return std::nullopt;
    }
    piece.result = received.empty() || frame.payload.empty() ? std::make_shared<HostBuffer>()
                                                             : received.mapped();
    piece.workers = std::move(answer->workers);
  }
  piece.is_delivered = piece.result != nullptr;
  FinishIfComplete();
  SendDue();
  return std::nullopt;
}

// A worker that died meanwhile may count in some pieces only. All workers have the same answers, so
// all of them repeat the exchange, without it.
void ExchangeClient::FinishIfComplete() {
  if (!current_) return;
  const std::vector<Piece>& pieces = current_->pieces;
  if (!std::ranges::all_of(pieces, [](const Piece& piece) { return piece.result != nullptr; }))
    return;
  const std::shared_ptr<ExchangeOperation> operation = current_->operation;
  const bool is_even = std::ranges::all_of(
      pieces, [&](const Piece& piece) { return piece.workers == pieces.front().workers; });
  kept_ = std::exchange(current_, std::nullopt);
  if (!is_even) return Begin(operation);
  operation->workers = kept_->pieces.front().workers;
  for (const Piece& piece : kept_->pieces) operation->results.push_back(piece.result);
  operation->pending.Finish();
}

}  // namespace pushpull
