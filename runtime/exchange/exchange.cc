// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/replication/worker_bits.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {
namespace {

// So that no element is split.
constexpr uint64_t kPieceAlignment = 8;

bool HasValues(const ExchangeSpec& spec) {
  return spec.op != ExchangeOp::kBarrier && !spec.is_prelude;
}

bool IsFloat(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat64 ||
         type == ElementType::kFloat16 || type == ElementType::kBFloat16;
}

std::string NameOf(const ExchangeSpec& spec) {
  switch (spec.op) {
    case ExchangeOp::kBarrier:
      return "barrier";
    case ExchangeOp::kAllReduce:
      return absl::StrCat("all_reduce(", ToString(spec.reduction), ")");
    case ExchangeOp::kAllGather:
      return "all_gather";
    case ExchangeOp::kMessage:
      return absl::StrCat(
          "message from ", ToString(spec.pair->from), " to ", ToString(spec.pair->to));
    case ExchangeOp::kBroadcast:
      break;
  }
  return spec.root ? absl::StrCat("broadcast from ", ToString(*spec.root)) : "broadcast";
}

absl::Status Invalid(absl::string_view field, uint64_t value) {
  return absl::InvalidArgumentError(
      absl::StrCat("exchange: ", field, " ", value, " is out of range"));
}

absl::Status CheckPair(const MessagePair& pair) {
  for (const WorkerId worker : {pair.from, pair.to}) {
    if (worker.value() >= kWorkersMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message: ", ToString(worker), " is out of range: indices are below ", kWorkersMax));
    }
  }
  if (pair.from != pair.to) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "message: ", ToString(pair.from), " is this worker: send to or receive from another one"));
}

// Checks a message's fields, and that other exchanges have none of them.
absl::Status CheckMessage(const ExchangeSpec& spec) {
  if (spec.op != ExchangeOp::kMessage) {
    if (spec.pair) return Invalid("receiver", spec.pair->to.value());
    return spec.takes_any ? Invalid("any size", 1) : absl::OkStatus();
  }
  if (!spec.pair) return absl::InvalidArgumentError("exchange: a message between no workers");
  if (spec.piece_bytes != kExchangePieceBytesMax)
    return Invalid("length of a piece of a message", spec.piece_bytes);
  if (spec.is_prelude) return Invalid("message before a message", 1);
  if (spec.takes_any && spec.bytes != 0) return Invalid("bytes of any size", spec.bytes);
  return CheckPair(*spec.pair);
}

}  // namespace

size_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return 1;
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
      return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
  }
  return 0;
}

std::string ToString(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBFloat16:
      return "bfloat16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
  }
  return absl::StrCat("element type ", static_cast<unsigned>(type));
}

std::string Describe(const ExchangeSpec& spec) {
  if (spec.op == ExchangeOp::kBarrier || spec.takes_any) return NameOf(spec);
  return absl::StrCat(NameOf(spec),
                      " of ",
                      spec.bytes / ElementBytes(spec.type),
                      " ",
                      ToString(spec.type),
                      " values");
}

absl::Status Check(const ExchangeSpec& spec) {
  if (spec.op < ExchangeOp::kBarrier || spec.op > ExchangeOp::kMessage)
    return Invalid("operation", static_cast<uint64_t>(spec.op));
  PUSHPULL_RETURN_IF_ERROR(CheckMessage(spec));
  const size_t element = ElementBytes(spec.type);
  if (element == 0) return Invalid("element type", static_cast<uint64_t>(spec.type));
  if (!IsKnown(spec.reduction)) return Invalid("reduction", static_cast<uint64_t>(spec.reduction));
  if (spec.piece_bytes == 0 || spec.piece_bytes > kExchangePieceBytesMax ||
      spec.piece_bytes % kPieceAlignment != 0)
    return Invalid("length of a piece", spec.piece_bytes);
  if (spec.bytes > kCollectiveBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(Describe(spec),
                                                     ": ",
                                                     spec.bytes,
                                                     " bytes, at most ",
                                                     kCollectiveBytesMax,
                                                     " are exchanged at once: use several calls"));
  }
  if (spec.bytes % element != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(spec), ": ", spec.bytes, " bytes are not a whole number of values"));
  }
  const bool is_mean = spec.op == ExchangeOp::kAllReduce && spec.reduction == Reduction::kMean;
  if (is_mean && !IsFloat(spec.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(spec),
                     ": a mean is one of float32, float64, float16 or bfloat16 values: convert "
                     "them, or use sum"));
  }
  if (spec.root && spec.op != ExchangeOp::kBroadcast) return Invalid("root", spec.root->value());
  return absl::OkStatus();
}

uint32_t NumPieces(const ExchangeSpec& spec) {
  if (!HasValues(spec) || spec.bytes == 0) return 1;
  return static_cast<uint32_t>((spec.bytes + spec.piece_bytes - 1) / spec.piece_bytes);
}

uint64_t PieceOffset(const ExchangeSpec& spec, uint32_t piece) {
  return uint64_t{piece} * spec.piece_bytes;
}

uint64_t PieceBytes(const ExchangeSpec& spec, uint32_t piece) {
  if (!HasValues(spec)) return 0;
  const uint64_t offset = std::min(spec.bytes, PieceOffset(spec, piece));
  return std::min<uint64_t>(spec.piece_bytes, spec.bytes - offset);
}

uint64_t ContributionBytes(const ExchangeSpec& spec, uint32_t piece, WorkerId worker) {
  const bool is_silent = (spec.op == ExchangeOp::kBroadcast && spec.root != worker) ||
                         (spec.op == ExchangeOp::kMessage && spec.pair->from != worker);
  return is_silent ? 0 : PieceBytes(spec, piece);
}

uint64_t AnswerBytes(const ExchangeSpec& spec,
                     uint32_t piece,
                     const std::vector<WorkerId>& workers) {
  const uint64_t bytes = PieceBytes(spec, piece);
  if (spec.op == ExchangeOp::kAllGather) return bytes * workers.size();
  if (spec.op != ExchangeOp::kBroadcast) return bytes;
  const bool has_root = spec.root && std::ranges::binary_search(workers, *spec.root);
  return has_root ? bytes : 0;
}

uint32_t GatherPieceBytes(size_t num_workers) {
  const uint64_t fits = kExchangeAnswerBytesMax / std::max<size_t>(num_workers, 1);
  return static_cast<uint32_t>(
      std::min(kExchangePieceBytesMax, fits / kPieceAlignment * kPieceAlignment));
}

}  // namespace pushpull
