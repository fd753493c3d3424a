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

template <typename Visit, typename Spec, typename Root>
void VisitSpec(Visit& visit, Spec& spec, Root& has_root, Root& root) {
  visit(spec.op,
        spec.type,
        spec.reduction,
        spec.is_prelude,
        spec.bytes,
        spec.piece_bytes,
        has_root,
        root);
}

absl::Status Damaged(absl::string_view what, size_t num_bytes) {
  return absl::DataLossError(absl::StrCat(what, ": its ", num_bytes, " bytes are not well formed"));
}

void Append(const std::vector<std::byte>& bytes, ByteWriter& writer) {
  writer.PutBytes(bytes);
}

}  // namespace

std::optional<ExchangeKey> ExchangeKeyOf(const FrameHeader& header) {
  if (header.clock.value() > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return ExchangeKey{{header.step, header.base_version.value()},
                     static_cast<uint32_t>(header.clock.value())};
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
  VisitSpec(writer, meta.spec, has_root, root);
  writer(uint8_t{meta.result_of.has_value()});
  if (meta.result_of) PutWorkerBits(*meta.result_of, writer);
  return writer.Take();
}

absl::StatusOr<ExchangeMeta> DecodeExchange(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  ExchangeMeta decoded;
  uint32_t has_root = 0;
  uint32_t root = 0;
  VisitSpec(reader, decoded.spec, has_root, root);
  if (has_root != 0) decoded.spec.root = WorkerId{root};
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
  writer(answer.kind);
  switch (answer.kind) {
    case ExchangeAnswer::Kind::kResult:
      PutWorkerBits(answer.workers, writer);
      break;
    case ExchangeAnswer::Kind::kTaken:
      break;
    case ExchangeAnswer::Kind::kRefused:
      writer(answer.status);
      break;
    case ExchangeAnswer::Kind::kMoved:
      Append(EncodeShardEntry(*answer.entry), writer);
      break;
  }
  return writer.Take();
}

absl::StatusOr<ExchangeAnswer> DecodeExchangeAnswer(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  ExchangeAnswer answer;
  reader(answer.kind);
  switch (answer.kind) {
    case ExchangeAnswer::Kind::kResult:
      if (!GetWorkerBits(reader, answer.workers)) return Damaged("exchanged", meta.size());
      return answer;
    case ExchangeAnswer::Kind::kTaken:
      return answer;
    case ExchangeAnswer::Kind::kRefused:
      answer.status = reader.GetStatus();
      if (!reader.ok() || answer.status.ok()) return Damaged("exchanged", meta.size());
      return answer;
    case ExchangeAnswer::Kind::kMoved: {
      PUSHPULL_ASSIGN_OR_RETURN(answer.entry, DecodeShardEntry(meta.subspan(1)));
      return answer;
    }
  }
  return Damaged("exchanged", meta.size());
}

}  // namespace pushpull
