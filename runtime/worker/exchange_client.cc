// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/exchange_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// The number of unanswered pieces of a stream: what servers hold of an exchange that the slowest
// worker has just begun.
constexpr size_t kPiecesUnderWayMax = 16;

// The delay before resending a piece that a server was not ready for.
constexpr Duration kSentAgainAfter = std::chrono::milliseconds(20);

absl::Status WrongMode(const Consistency& mode) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the job's mode is ", Describe(mode), ": collectives need Sync without backup workers"));
}

}  // namespace

ExchangeOperation::ExchangeOperation(
    const ExchangeSpec& of, Step at, uint64_t program_step, HostBuffer values, std::string label_of)
    : spec(of),
      step(at),
      input(std::make_shared<const HostBuffer>(std::move(values))),
      label(std::move(label_of)),
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
  const Stream& stream = streams_[operation->spec.pair];
  if (stream.current) {
    return operation->pending.Fail(absl::FailedPreconditionError(absl::StrCat(
        stream.current->operation->pending.what(), " is still under way: wait for it")));
  }
  if (operation->step < stream.next.step) {
    return operation->pending.Fail(absl::FailedPreconditionError(
        absl::StrCat("a collective of a later step, ",
                     stream.next.step.value() - operation->step.value(),
                     " after this one, was called before: steps do not go back")));
  }
  if (const std::optional<MessagePair>& pair = operation->spec.pair) {
    const bool receives = Receives(operation->spec);
    operation->pending.SetNote(
        absl::StrCat(ToString(receives ? pair->from : pair->to),
                     receives ? " has not sent it yet" : " has not received it yet",
                     ", or a server does not answer"));
  }
  Begin(std::move(operation));
}

void ExchangeClient::Begin(std::shared_ptr<ExchangeOperation> operation) {
  const ExchangeSpec& spec = operation->spec;
  Stream& stream = streams_[spec.pair];
  if (stream.next.step != operation->step) stream.next = {operation->step, 0};
  stream.current = Exchange{.operation = operation,
                            .id = stream.next,
                            .spec = spec,
                            .pieces = std::vector<Piece>(NumPieces(spec))};
  ++stream.next.sequence;
  SendDue(stream);
}

void ExchangeClient::UseMode(const Consistency& mode) {
  mode_ = mode;
  if (mode_.is_sync() && !mode_.admits()) return;
  for (auto& [pair, stream] : streams_) Fail(stream, WrongMode(mode_));
}

void ExchangeClient::FailAll(const absl::Status& why) {
  for (auto& [pair, stream] : streams_) {
    Fail(stream, why);
    stream.kept.reset();
  }
}

// The pieces are resent with the next entry of their shard, so that a worker that has not learned
// of the failure yet learns of it from the next primary.
void ExchangeClient::Fail(Stream& stream, const absl::Status& why) {
  if (!stream.current) return;
  stream.kept = std::exchange(stream.current, std::nullopt);
  for (Piece& piece : stream.kept->pieces) piece.is_delivered = true;
  const std::shared_ptr<ExchangeOperation> failed = stream.kept->operation;
  failed->pending.Fail(why);
}

// ---- sending ----

// Concurrent messages of several pairs do not all begin at one server.
ChunkId ExchangeClient::ChunkOf(const Exchange& exchange, size_t piece) {
  const std::optional<MessagePair>& pair = exchange.spec.pair;
  const size_t first = pair ? size_t{pair->from.value()} + pair->to.value() : 0;
  return ChunkId{(first + piece) % chunks_.chunks().size()};
}

ShardId ExchangeClient::ShardOf(const Exchange& exchange, size_t piece) {
  return chunks_.Find(ChunkOf(exchange, piece))->shard;
}

ExchangeClient::Exchange* ExchangeClient::Find(const ExchangeKey& key) {
  const auto found = streams_.find(key.pair);
  if (found == streams_.end()) return nullptr;
  for (std::optional<Exchange>* exchange : {&found->second.current, &found->second.kept})
    if (*exchange && (*exchange)->id == key.exchange) return &**exchange;
  return nullptr;
}

void ExchangeClient::SendDue() {
  for (auto& [pair, stream] : streams_) SendDue(stream);
}

// In piece order in every worker: the first piece that one worker waits for, all others have sent.
// Changes made by an answer that arrives at once are seen by the next iteration.
void ExchangeClient::SendDue(Stream& stream) {
  size_t under_way = 0;
  for (std::optional<Exchange>* exchange : {&stream.kept, &stream.current}) {
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
  const ShardId shard = ShardOf(exchange, index);
  LaneLink* link = routes_.ToPrimary(shard);
  if (link == nullptr || link->channel() == nullptr) return;  // when there is one
  piece.is_under_way = true;
  piece.epoch = routes_.EpochOf(shard);
  piece.sent = executor_.Now();
  const ExchangeSpec& spec = exchange.spec;
  const auto number = static_cast<uint32_t>(index);
  OutgoingFrame frame{.header = {.type = FrameType::kExchange,
                                 .worker = options_.hello.worker,
                                 .incarnation = options_.hello.incarnation,
                                 .epoch = piece.epoch,
                                 .chunk = ChunkOf(exchange, index)},
                      .meta = {},
                      .payload = {}};
  SetExchangeKey({exchange.id, number}, frame.header);
  ExchangeMeta meta{.spec = spec, .result_of = {}};
  if (number == 0 && spec.pair && !Receives(spec)) meta.label = exchange.operation->label;
  if (piece.result != nullptr) {
    meta.result_of = piece.workers;
    // For a message, this is a receipt.
    if (!spec.pair) frame.payload = {piece.result->bytes(), piece.result};
  } else if (const uint64_t bytes = ContributionBytes(spec, number, options_.hello.worker)) {
    const std::shared_ptr<const HostBuffer>& input = exchange.operation->input;
    frame.payload = {input->bytes().subspan(PieceOffset(spec, number), bytes), input};
  }
  frame.meta = EncodeExchange(meta);
  link->channel()->Send(std::move(frame));
}

void ExchangeClient::SendAgain(const std::function<bool(ShardId shard, const Piece&)>& is_due) {
  for (auto& [pair, stream] : streams_) {
    for (std::optional<Exchange>* exchange : {&stream.kept, &stream.current}) {
      for (size_t i = 0; *exchange && i < (*exchange)->pieces.size(); ++i) {
        Piece& piece = (*exchange)->pieces[i];
        // Nobody asks a message's sender for what the receiver already has.
        const bool is_over = pair && !Receives((*exchange)->spec) && piece.result != nullptr;
        if (is_over || !is_due(ShardOf(**exchange, i), piece)) continue;
        piece.is_delivered = false;
        piece.is_under_way = false;
      }
    }
  }
  SendDue();
}

void ExchangeClient::OnEntries() {
  SendAgain(
      [&](ShardId shard, const Piece& piece) { return piece.epoch < routes_.EpochOf(shard); });
}

void ExchangeClient::OnLinkUp(const LaneLink& link) {
  SendAgain([&](ShardId shard, const Piece&) { return routes_.ToPrimary(shard) == &link; });
}

void ExchangeClient::ResendLost() {
  const SteadyTime now = executor_.Now();
  SendAgain([&](ShardId shard, const Piece& piece) {
    LaneLink* link = routes_.ToPrimary(shard);
    return piece.is_under_way && !piece.is_delivered && link != nullptr &&
           link->channel() != nullptr && !link->channel()->is_reliable() &&
           now - piece.sent >= options_.resend_after;
  });
}

void ExchangeClient::SendLater(const ExchangeKey& key) {
  executor_.RunAfter(kSentAgainAfter, [self = std::weak_ptr<ExchangeClient*>(self_), this, key] {
    if (self.expired()) return;
    Exchange* exchange = Find(key);
    if (exchange == nullptr) return;
    exchange->pieces[key.piece].is_under_way = false;
    SendDue();
  });
}

// ---- answers ----

// A message's pair, and thus whether the answer is wanted, is only known with the meta.
std::span<std::byte> ExchangeClient::PlacePayload(const LaneLink& link, const FrameHeader& header) {
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (!buffer.ok()) return {};
  std::shared_ptr<HostBuffer>& reception = receptions_[&link];
  reception = std::make_shared<HostBuffer>(*std::move(buffer));
  return reception->bytes();
}

std::optional<ShardEntry> ExchangeClient::OnFrame(const LaneLink& link,
                                                  const ReceivedFrame& frame) {
  const auto received = receptions_.extract(&link);
  absl::StatusOr<ExchangeAnswer> answer = DecodeExchangeAnswer(frame.meta);
  if (!answer.ok()) return std::nullopt;
  const std::optional<ExchangeKey> key = ExchangeKeyOf(frame.header, answer->pair);
  Exchange* exchange = key ? Find(*key) : nullptr;
  if (exchange == nullptr || key->piece >= exchange->pieces.size()) return std::nullopt;
  if (answer->kind == ExchangeAnswer::Kind::kMoved ||
      answer->kind == ExchangeAnswer::Kind::kRefused)
    return OnRejected(link, *key, *std::move(answer));
  // The server may no longer be primary: the next one must answer.
  if (frame.header.epoch < routes_.EpochOf(ShardOf(*exchange, key->piece))) return std::nullopt;
  const bool has_values = !received.empty() && !frame.payload.empty();
  std::shared_ptr<const HostBuffer> result =
      has_values ? received.mapped() : std::make_shared<HostBuffer>();
  const bool is_taken = key->pair ? TakeMessagePiece(*exchange, *key, *std::move(answer), result)
                                  : TakeResult(*exchange, *key, *std::move(answer), result);
  if (!is_taken) {
    SendLater(*key);
    return std::nullopt;
  }
  // Receipts are sent before the program may leave.
  SendDue();
  FinishIfComplete(streams_[key->pair]);
  SendDue();
  return std::nullopt;
}

std::optional<ShardEntry> ExchangeClient::OnRejected(const LaneLink& link,
                                                     const ExchangeKey& key,
                                                     ExchangeAnswer answer) {
  Stream& stream = streams_[key.pair];
  Exchange& exchange = *Find(key);
  if (answer.kind == ExchangeAnswer::Kind::kMoved) {
    const Epoch known = routes_.EpochOf(ShardOf(exchange, key.piece));
    if (answer.entry->entry.epoch > known) return std::move(answer.entry);
    SendLater(key);
  } else if (absl::IsUnavailable(answer.status)) {
    SendLater(key);
  } else if (stream.current && &exchange == &*stream.current) {
    Fail(
        stream,
        absl::Status(answer.status.code(),
                     absl::StrCat(ToString(link.server()), " refuses: ", answer.status.message())));
  } else {
    exchange.pieces[key.piece].is_delivered = true;
  }
  return std::nullopt;
}

bool ExchangeClient::TakeResult(Exchange& exchange,
                                const ExchangeKey& key,
                                ExchangeAnswer answer,
                                std::shared_ptr<const HostBuffer> result) {
  Piece& piece = exchange.pieces[key.piece];
  if (answer.kind == ExchangeAnswer::Kind::kResult && piece.result == nullptr) {
    if (result->num_bytes() != AnswerBytes(exchange.spec, key.piece, answer.workers)) return false;
    piece.result = std::move(result);
    piece.workers = std::move(answer.workers);
  }
  piece.is_delivered = piece.result != nullptr;
  return true;
}

bool ExchangeClient::TakeMessagePiece(Exchange& exchange,
                                      const ExchangeKey& key,
                                      ExchangeAnswer answer,
                                      std::shared_ptr<const HostBuffer> result) {
  Stream& stream = streams_[key.pair];
  const bool receives = Receives(exchange.spec);
  if (answer.kind == ExchangeAnswer::Kind::kTaken) {
    Piece& piece = exchange.pieces[key.piece];
    if (!receives) piece.result = std::move(result);
    piece.is_delivered = piece.result != nullptr;
    return true;
  }
  if (!receives || exchange.pieces[key.piece].result != nullptr) return true;
  if (!stream.current || &exchange != &*stream.current) {
    // A failed message must not be received later: the sender would take it for delivered.
    exchange.pieces[key.piece].is_delivered = true;
    return true;
  }
  std::optional<MessageHead>& head = exchange.operation->head;
  if (exchange.spec.takes_any) {
    exchange.spec.type = answer.head.type;
    exchange.spec.bytes = answer.head.bytes;
    exchange.spec.takes_any = false;
    exchange.pieces.resize(NumPieces(exchange.spec));
  }
  if (answer.head.type != exchange.spec.type || answer.head.bytes != exchange.spec.bytes)
    return false;
  // The answers to the pieces of a known array arrive in any order.
  if (!head) head = answer.head;
  if (key.piece == 0) head->label = answer.head.label;
  if (answer.head.sender != head->sender) {
    Fail(stream,
         absl::NotFoundError(absl::StrCat(ToString(key.pair->from),
                                          " was replaced by a new process, which sends another "
                                          "message")));
    return true;
  }
  if (result->num_bytes() != PieceBytes(exchange.spec, key.piece)) return false;
  Piece& piece = exchange.pieces[key.piece];
  piece.result = std::move(result);
  piece.workers = {std::min(key.pair->from, key.pair->to), std::max(key.pair->from, key.pair->to)};
  piece.is_under_way = false;  // the receipt follows
  return true;
}

// A worker that died meanwhile may count in only some pieces. All workers have the same answers, so
// all of them repeat the exchange without it.
void ExchangeClient::FinishIfComplete(Stream& stream) {
  if (!stream.current) return;
  std::vector<Piece>& pieces = stream.current->pieces;
  if (!std::ranges::all_of(pieces, [](const Piece& piece) { return piece.result != nullptr; }))
    return;
  const std::shared_ptr<ExchangeOperation> operation = stream.current->operation;
  const bool is_even = std::ranges::all_of(
      pieces, [&](const Piece& piece) { return piece.workers == pieces.front().workers; });
  stream.kept = std::exchange(stream.current, std::nullopt);
  if (!is_even) return Begin(operation);
  operation->workers = stream.kept->pieces.front().workers;
  for (const Piece& piece : stream.kept->pieces) operation->results.push_back(piece.result);
  if (operation->spec.pair) Forget(stream);
  operation->pending.Finish();
}

// Drops what nobody asks for any more: for a message, its values.
void ExchangeClient::Forget(Stream& stream) {
  if (!Receives(stream.kept->spec)) return stream.kept.reset();
  const auto nothing = std::make_shared<const HostBuffer>();
  for (Piece& piece : stream.kept->pieces) piece.result = nothing;
  // The program has the operation, and with it the values.
  stream.kept->operation = nullptr;
}

}  // namespace pushpull
