// SPDX-License-Identifier: Apache-2.0
//
// An exchange: one call of a collective by all workers
// (docs/decisions/0057-collectives-over-servers.md), or a message from one worker to another
// (docs/decisions/0058-messages-over-servers.md). It is cut into pieces, each of which one server
// collects and answers.
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

// The most that a piece of a contribution and its answer have.
constexpr uint64_t kExchangePieceBytesMax = uint64_t{1} << 18;
constexpr uint64_t kExchangeAnswerBytesMax = uint64_t{1} << 20;

// Of all pieces that a lane keeps for one worker: two of its largest exchanges, and what is late.
constexpr uint64_t kExchangeBytesPerWorkerMax = 3 * kCollectiveBytesMax;

enum class ExchangeOp : uint8_t {
  kBarrier = 1,
  kAllReduce = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kMessage = 5,
};

// Who sends a message, and who receives it.
struct MessagePair {
  WorkerId from;
  WorkerId to;
  friend auto operator<=>(const MessagePair&, const MessagePair&) = default;
};

// The workers number their exchanges alike: those of a step from 0, and the messages of each pair
// in a step from 0.
struct ExchangeId {
  Step step;
  uint64_t sequence = 0;
  friend auto operator<=>(const ExchangeId&, const ExchangeId&) = default;
};

struct ExchangeKey {
  ExchangeId exchange;
  uint32_t piece = 0;
  std::optional<MessagePair> pair = {};  // of a message
  friend auto operator<=>(const ExchangeKey&, const ExchangeKey&) = default;
};

// What all workers must agree in, for a message sender and receiver.
struct ExchangeSpec {
  ExchangeOp op = ExchangeOp::kBarrier;
  ElementType type = ElementType::kUint8;
  Reduction reduction = Reduction::kSum;  // of kAllReduce
  // An exchange before the values', by which the workers learn who they are.
  bool is_prelude = false;
  uint64_t bytes = 0;                             // of one worker's array
  uint32_t piece_bytes = kExchangePieceBytesMax;  // of every piece but the last
  std::optional<WorkerId> root;                   // of kBroadcast
  std::optional<MessagePair> pair;                // of kMessage
  // The receiver of a message takes values of any type and size, and learns them from the answer to
  // the first piece.
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
// Of one worker's array.
uint64_t PieceBytes(const ExchangeSpec& spec, uint32_t piece);
// What `worker` contributes to the piece: nothing where only others have values.
uint64_t ContributionBytes(const ExchangeSpec& spec, uint32_t piece, WorkerId worker);
// Of the piece's result when these workers, ascending, contributed; not of a message, whose result
// is the contribution.
uint64_t AnswerBytes(const ExchangeSpec& spec,
                     uint32_t piece,
                     const std::vector<WorkerId>& workers);

// The largest pieces whose answers fit a frame with so many workers.
uint32_t GatherPieceBytes(size_t num_workers);

}  // namespace pushpull
