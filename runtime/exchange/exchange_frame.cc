// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/exchange_frame.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/replication/worker_bits.h"

namespace pushpull {
namespace {

// Without a pair, both ends are the same worker.
MessagePair PairOrNone(const std::optional<MessagePair>& pair) {
  return pair.value_or(MessagePair{});
}

std::optional<MessagePair> PairUnlessNone(const MessagePair& pair) {
  return pair == MessagePair{} ? std::nullopt : std::optional(pair);
}

template <typename Visit, typename Spec, typename Root, typename Pair>
void VisitSpec(Visit& visit, Spec& spec, Root& has_root, Root& root, Pair& pair) {
  visit(spec.op,
        spec.type,
        spec.reduction,
        spec.is_prelude,
        spec.bytes,
        spec.piece_bytes,
        has_root,
        root,
        spec.takes_any,
        pair.from,
        pair.to);
}

template <typename Visit, typename Head>
void VisitHead(Visit& visit, Head& head) {
  visit(head.type, head.bytes, head.sender, head.label);
}

absl::Status Damaged(absl::string_view what, size_t num_bytes) {
  return absl::DataLossError(absl::StrCat(what, ": its ", num_bytes, " bytes are not well formed"));
}

bool IsWellFormed(const MessageHead& head) {
  const size_t element = ElementBytes(head.type);
  return element != 0 && head.bytes % element == 0 && head.bytes <= kCollectiveBytesMax &&
         head.label.size() <= kMessageLabelBytesMax;
}

}  // namespace

std::optional<ExchangeKey> ExchangeKeyOf(const FrameHeader& header,
                                         const std::optional<MessagePair>& pair) {
  if (header.clock.value() > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return ExchangeKey{{header.step, header.base_version.value()},
                     static_cast<uint32_t>(header.clock.value()),
                     pair};
}

void SetExchangeKey(const ExchangeKey& key, FrameHeader& header) {
  header.step = key.exchange.step;
  header.base_version = Step{key.exchange.sequence};
  header.clock = Step{key.piece};
}

std::vector<std::byte> EncodeExchange(const ExchangeMeta& meta) {
  ByteWriter writer;
  const uint32_t has_root = meta.spec.root ? 1 : 0;
  const uint32_t root = meta.spec.root.value_or(WorkerId{}).value();
  const MessagePair pair = PairOrNone(meta.spec.pair);
  VisitSpec(writer, meta.spec, has_root, root, pair);
  writer(meta.label, uint8_t{meta.result_of.has_value()});
  if (meta.result_of) PutWorkerBits(*meta.result_of, writer);
  return writer.Take();
}

absl::StatusOr<ExchangeMeta> DecodeExchange(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  ExchangeMeta decoded;
  uint32_t has_root = 0;
  uint32_t root = 0;
  MessagePair pair;
  VisitSpec(reader, decoded.spec, has_root, root, pair);
  if (has_root != 0) decoded.spec.root = WorkerId{root};
  decoded.spec.pair = PairUnlessNone(pair);
  reader(decoded.label);
  if (decoded.label.size() > kMessageLabelBytesMax) return Damaged("exchange", meta.size());
  if (reader.Get<uint8_t>() != 0) {
    decoded.result_of.emplace();
    if (!GetWorkerBits(reader, *decoded.result_of)) return Damaged("exchange", meta.size());
  }
  if (!reader.ok()) return Damaged("exchange", meta.size());
  const absl::Status checked = Check(decoded.spec);
  if (!checked.ok()) return absl::DataLossError(checked.message());
  return decoded;
}

std::vector<std::byte> EncodeExchangeAnswer(const ExchangeAnswer& answer) {
  ByteWriter writer;
  const MessagePair pair = PairOrNone(answer.pair);
  writer(answer.kind, pair.from, pair.to);
  switch (answer.kind) {
    case ExchangeAnswer::Kind::kResult:
      if (answer.pair) {
        VisitHead(writer, answer.head);
      } else {
        PutWorkerBits(answer.workers, writer);
      }
      break;
    case ExchangeAnswer::Kind::kTaken:
      break;
    case ExchangeAnswer::Kind::kRefused:
      writer(answer.status);
      break;
    case ExchangeAnswer::Kind::kMoved:
      writer.PutBytes(EncodeShardEntry(*answer.entry));
      break;
  }
  return writer.Take();
}

absl::StatusOr<ExchangeAnswer> DecodeExchangeAnswer(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  ExchangeAnswer answer;
  MessagePair pair;
  reader(answer.kind, pair.from, pair.to);
  answer.pair = PairUnlessNone(pair);
  if (!reader.ok()) return Damaged("exchanged", meta.size());
  switch (answer.kind) {
    case ExchangeAnswer::Kind::kResult:
      if (answer.pair) {
        VisitHead(reader, answer.head);
        if (!reader.ok() || !IsWellFormed(answer.head)) return Damaged("exchanged", meta.size());
      } else if (!GetWorkerBits(reader, answer.workers)) {
        return Damaged("exchanged", meta.size());
      }
      return answer;
    case ExchangeAnswer::Kind::kTaken:
      return answer;
    case ExchangeAnswer::Kind::kRefused:
      answer.status = reader.GetStatus();
      if (!reader.ok() || answer.status.ok()) return Damaged("exchanged", meta.size());
      return answer;
    case ExchangeAnswer::Kind::kMoved: {
      PUSHPULL_ASSIGN_OR_RETURN(answer.entry, DecodeShardEntry(reader.GetBytes(reader.num_left())));
      return answer;
    }
  }
  return Damaged("exchanged", meta.size());
}

}  // namespace pushpull
