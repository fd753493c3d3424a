// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_exchanges.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/server/chunk.h"

namespace pushpull {
namespace {

// How often results that nobody can request any more are dropped.
constexpr Duration kForgetEvery = std::chrono::seconds(1);

ExchangeAnswer Refusal(const absl::Status& why) {
  return {.kind = ExchangeAnswer::Kind::kRefused, .workers = {}, .status = why, .entry = {}};
}

ExchangeAnswer Later(const std::string& why) {
  return Refusal(absl::UnavailableError(why));
}

ExchangeAnswer Moved(ShardId shard, const ReplicaSet& entry) {
  return {.kind = ExchangeAnswer::Kind::kMoved,
          .workers = {},
          .status = {},
          .entry = ShardEntry{shard, entry}};
}

}  // namespace

LaneExchanges::~LaneExchanges() {
  if (timer_ != 0) lane_.executor.Cancel(timer_);
}

bool LaneExchanges::IsMember(const FrameHeader& header) const {
  return lane_.rules.membership().IsMember(header.worker, header.incarnation, header.step);
}

std::span<std::byte> LaneExchanges::PlacePayload(Reception& reception,
                                                 const FrameHeader& header) const {
  if (!IsMember(header)) return {};
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (!buffer.ok()) return {};
  reception.place = Reception::Place::kBuffer;
  reception.buffer = *std::move(buffer);
  return reception.buffer.bytes();
}

absl::Status LaneExchanges::OnFrame(Connection& connection, const ReceivedFrame& frame) {
  const FrameHeader& header = frame.header;
  HostBuffer values = std::exchange(connection.reception(), Reception{}).buffer;
  absl::StatusOr<ExchangeMeta> meta = DecodeExchange(frame.meta);
  if (!meta.ok()) return meta.status();
  const std::optional<MessagePair>& pair = meta->spec.pair;
  const std::optional<ExchangeKey> key = ExchangeKeyOf(header, pair);
  if (!key || key->piece >= NumPieces(meta->spec))
    return absl::DataLossError("exchange: a piece that it does not have");
  const ExchangeWaiter waiter{&connection, header, meta->result_of.has_value(), pair};
  if (const auto rejection = Rejection(header)) {
    Send(waiter, *rejection);
    return absl::OkStatus();
  }
  absl::Status taken = CheckLength(*meta, *key, header);
  // Nothing is kept for a non-member, and Take refuses it.
  if (taken.ok() && values.num_bytes() != header.payload_bytes && IsMember(header))
    taken = absl::UnavailableError("an exchange came before its worker's view, or out of memory");
  if (taken.ok()) {
    taken = Take({.key = *key,
                  .spec = meta->spec,
                  .shard = *lane_.shards.ShardOf(header.chunk),
                  .worker = header.worker,
                  .incarnation = header.incarnation,
                  .values = std::move(values),
                  .result_of = std::move(meta->result_of),
                  .label = std::move(meta->label)},
                 waiter);
  }
  if (!taken.ok()) {
    Send(waiter, Refusal(taken));
    return absl::OkStatus();
  }
  const MembershipView& membership = lane_.rules.membership();
  if (pair) {
    SendAll(messages_.Settle(*key, membership, IsOpen()));
  } else {
    SendAll(table_.Settle(*key, membership, IsOpen()));
  }
  ForgetLater();
  return absl::OkStatus();
}

absl::Status LaneExchanges::Take(ExchangeContribution contribution, const ExchangeWaiter& waiter) {
  const MembershipView& membership = lane_.rules.membership();
  return contribution.key.pair ? messages_.Take(std::move(contribution), waiter, membership)
                               : table_.Take(std::move(contribution), waiter, membership);
}

std::optional<ExchangeAnswer> LaneExchanges::Rejection(const FrameHeader& header) const {
  const std::optional<ShardId> id = lane_.shards.ShardOf(header.chunk);
  if (!id) return Later(absl::StrCat("no chunk ", header.chunk.value(), " yet"));
  const Consistency& mode = lane_.rules.membership().active().consistency;
  if (!mode.is_sync() || mode.admits()) {
    return Refusal(absl::FailedPreconditionError(absl::StrCat(
        "the job's mode is ", Describe(mode), ": collectives need Sync without backup workers")));
  }
  const Shard* shard = lane_.shards.Find(*id);
  const bool is_primary = shard != nullptr && shard->member().is_primary();
  const ReplicaSet& entry = is_primary ? shard->member().entry() : lane_.shards.entry(*id);
  const bool is_newer_known = header.epoch > entry.epoch;
  if (is_newer_known || (!is_primary && entry.primary == lane_.server))
    return Later(absl::StrCat("not the primary of shard ", id->value(), " yet"));
  if (!is_primary) return Moved(*id, entry);
  if (!shard->member().is_open()) return Later("the shard is being handed over");
  // A frame sent under an earlier entry may be outdated: there may have been another primary in
  // between.
  if (header.epoch < entry.epoch) return Moved(*id, entry);
  return std::nullopt;
}

absl::Status LaneExchanges::CheckLength(const ExchangeMeta& meta,
                                        const ExchangeKey& key,
                                        const FrameHeader& header) const {
  const bool has_result = meta.result_of && !key.pair;  // unlike a receipt of a message
  const uint64_t expected = has_result ? AnswerBytes(meta.spec, key.piece, *meta.result_of)
                                       : ContributionBytes(meta.spec, key.piece, header.worker);
  if (header.payload_bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Describe(meta.spec),
                                                 ": piece ",
                                                 key.piece,
                                                 " of ",
                                                 ToString(header.worker),
                                                 " has ",
                                                 header.payload_bytes,
                                                 " bytes, expected ",
                                                 expected));
}

std::function<bool(ShardId)> LaneExchanges::IsOpen() const {
  return [this](ShardId id) {
    const Shard* shard = lane_.shards.Find(id);
    return shard != nullptr && shard->member().is_open();
  };
}

void LaneExchanges::OnViewActivated() {
  table_.OnView(lane_.rules.membership());
  messages_.OnView(lane_.rules.membership());
  OnEntries();
}

void LaneExchanges::OnEntries() {
  SendAll(table_.SettleAll(lane_.rules.membership(), IsOpen()));
  SendAll(messages_.SettleAll(lane_.rules.membership(), IsOpen()));
}

void LaneExchanges::OnDropped(const Connection& connection) {
  table_.DropConnection(connection);
  messages_.DropConnection(connection);
}

void LaneExchanges::OnDemoted(const Shard& shard) {
  const ReplicaSet& entry = shard.member().entry();
  for (const ExchangeWaiter& waiter : table_.DropShard(shard.id()))
    Send(waiter, Moved(shard.id(), entry));
  for (const ExchangeWaiter& waiter : messages_.DropShard(shard.id()))
    Send(waiter, Moved(shard.id(), entry));
}

void LaneExchanges::Send(const ExchangeWaiter& to, ExchangeAnswer answer, Payload payload) const {
  const std::optional<ShardId> id = lane_.shards.ShardOf(to.request.chunk);
  OutgoingFrame frame{.header = to.request, .meta = {}, .payload = std::move(payload)};
  frame.header.type = FrameType::kExchanged;
  frame.header.flags = 0;
  answer.pair = to.pair;
  frame.meta = EncodeExchangeAnswer(answer);
  if (id) {
    const Shard* shard = lane_.shards.Find(*id);
    const bool is_primary = shard != nullptr && shard->member().is_primary();
    frame.header.epoch = is_primary ? shard->member().entry().epoch : lane_.shards.entry(*id).epoch;
  }
  to.connection->channel().Send(std::move(frame));
}

void LaneExchanges::SendAll(const std::vector<ExchangeReply>& replies) const {
  for (const ExchangeReply& reply : replies) {
    if (reply.result == nullptr) {
      Send(reply.to, Refusal(reply.status));
      continue;
    }
    if (reply.to.has_result) {
      Send(reply.to, {});
      continue;
    }
    Send(reply.to,
         {.kind = ExchangeAnswer::Kind::kResult,
          .workers = reply.result->workers,
          .status = {},
          .entry = {}},
         {reply.result->values.bytes(), reply.result});
  }
}

void LaneExchanges::SendAll(const std::vector<MessageReply>& replies) const {
  for (const MessageReply& reply : replies) {
    if (!reply.status.ok()) {
      Send(reply.to, Refusal(reply.status));
    } else if (reply.piece == nullptr) {
      Send(reply.to, {});
    } else {
      Send(reply.to,
           {.kind = ExchangeAnswer::Kind::kResult,
            .workers = {},
            .status = {},
            .entry = {},
            .head = reply.piece->head},
           {reply.piece->values.bytes(), reply.piece});
    }
  }
}

void LaneExchanges::ForgetLater() {
  if (timer_ != 0 || (table_.empty() && messages_.empty())) return;
  timer_ = lane_.executor.RunAfter(kForgetEvery, [this] {
    timer_ = 0;
    Step highest;
    for (const auto& [id, chunk] : lane_.shards.chunks())
      highest = std::max(highest, chunk->state().version());
    table_.OnVersion(highest);
    messages_.OnVersion(highest);
    ForgetLater();
  });
}

}  // namespace pushpull
