// SPDX-License-Identifier: Apache-2.0
//
// An exchange: one call of a collective by all workers
// (docs/decisions/0057-collectives-over-servers.md), or a message from one worker to another
// (docs/decisions/0058-messages-over-servers.md). An exchange is cut into pieces, each collected
// and answered by one server.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pushpull/collectives.h"

#include "runtime/base/ids.h"

namespace pushpull {

// Maximum sizes of a contribution's piece and of its answer.
constexpr uint64_t kExchangePieceBytesMax = uint64_t{1} << 18;
constexpr uint64_t kExchangeAnswerBytesMax = uint64_t{1} << 20;

// Limit for all pieces that a lane keeps for one worker: two of its largest exchanges, and late
// pieces.
constexpr uint64_t kExchangeBytesPerWorkerMax = 3 * kCollectiveBytesMax;

enum class ExchangeOp : uint8_t {
  kBarrier = 1,
  kAllReduce = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kMessage = 5,
};

// A message's sender and receiver.
struct MessagePair {
  WorkerId from;
  WorkerId to;
  friend auto operator<=>(const MessagePair&, const MessagePair&) = default;
};

// All workers use the same numbers: exchanges of a step count from 0, and so do each pair's
// messages in a step.
struct ExchangeId {
  Step step;
  uint64_t sequence = 0;
  friend auto operator<=>(const ExchangeId&, const ExchangeId&) = default;
};

struct ExchangeKey {
  ExchangeId exchange;
  uint32_t piece = 0;
  std::optional<MessagePair> pair = {};  // set for messages
  friend auto operator<=>(const ExchangeKey&, const ExchangeKey&) = default;
};

// What all workers, or a message's sender and receiver, must agree on.
struct ExchangeSpec {
  ExchangeOp op = ExchangeOp::kBarrier;
  ElementType type = ElementType::kUint8;
  Reduction reduction = Reduction::kSum;  // for kAllReduce
  // An exchange before that of the values, by which the workers learn who takes part.
  bool is_prelude = false;
  uint64_t bytes = 0;                             // of one worker's array
  uint32_t piece_bytes = kExchangePieceBytesMax;  // of every piece but the last
  std::optional<WorkerId> root;                   // for kBroadcast
  std::optional<MessagePair> pair;                // for kMessage
  // The receiver of a message accepts values of any type and size, which it learns from the answer
  // to the first piece.
  bool takes_any = false;
  friend bool operator==(const ExchangeSpec&, const ExchangeSpec&) = default;
};

// Bytes of one element; 0 for an unknown type.
size_t ElementBytes(ElementType type);
// "float32".
std::string ToString(ElementType type);
// "all_reduce(sum) of 2 float64 values".
std::string Describe(const ExchangeSpec& spec);
// kInvalidArgument: a field is out of range, or the fields contradict each other.
absl::Status Check(const ExchangeSpec& spec);

// 1 or more.
uint32_t NumPieces(const ExchangeSpec& spec);
uint64_t PieceOffset(const ExchangeSpec& spec, uint32_t piece);
// Bytes of the piece in one worker's array.
uint64_t PieceBytes(const ExchangeSpec& spec, uint32_t piece);
// Bytes that `worker` contributes to the piece: 0 if only others have values.
uint64_t ContributionBytes(const ExchangeSpec& spec, uint32_t piece, WorkerId worker);
// Bytes of the piece's result if these workers, ascending, contributed. Not for messages, whose
// result is the contribution.
uint64_t AnswerBytes(const ExchangeSpec& spec,
                     uint32_t piece,
                     const std::vector<WorkerId>& workers);

// The largest piece size whose answers fit into a frame with this many workers.
uint32_t GatherPieceBytes(size_t num_workers);

}  // namespace pushpull
