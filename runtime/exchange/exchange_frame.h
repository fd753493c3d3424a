// SPDX-License-Identifier: Apache-2.0
//
// The metas of kExchange and kExchanged. Their headers have the exchange's step in `step`, its
// number within the step in `base_version` and the piece in `clock`; `chunk` is any chunk of the
// shard that the piece goes to. The pair of a message is in the metas.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/exchange/exchange.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// Empty if the piece's number is out of range.
std::optional<ExchangeKey> ExchangeKeyOf(const FrameHeader& header,
                                         const std::optional<MessagePair>& pair);
void SetExchangeKey(const ExchangeKey& key, FrameHeader& header);

// kExchange: a worker's contribution to a piece, or the piece's result if it has that.
struct ExchangeMeta {
  ExchangeSpec spec;
  // Set: the payload is the result, and these workers contributed to it. From a message's receiver,
  // without a payload: a receipt, i.e. it has the piece.
  std::optional<std::vector<WorkerId>> result_of;
  // From a message's sender, with its first piece; at most kMessageLabelBytesMax bytes.
  std::string label = {};
};

std::vector<std::byte> EncodeExchange(const ExchangeMeta& meta);
// kDataLoss: too short, or a field is out of range. The spec has passed Check.
absl::StatusOr<ExchangeMeta> DecodeExchange(std::span<const std::byte> meta);

// What the receiver of a message learns with each piece.
struct MessageHead {
  ElementType type = ElementType::kUint8;
  uint64_t bytes = 0;  // of the message
  Incarnation sender;
  std::string label;  // with the first piece
  friend bool operator==(const MessageHead&, const MessageHead&) = default;
};

// kExchanged.
struct ExchangeAnswer {
  enum class Kind : uint8_t {
    kResult = 1,   // the payload, of `workers`; for the receiver of a message, of `head`
    kTaken = 2,    // the asking worker's result; for a message's sender: it was received
    kRefused = 3,  // because of `status`; kUnavailable: send it again
    kMoved = 4,    // to the primary of `entry`
  };
  Kind kind = Kind::kTaken;
  std::vector<WorkerId> workers;
  absl::Status status;
  std::optional<ShardEntry> entry;
  std::optional<MessagePair> pair = {};
  MessageHead head = {};
};

std::vector<std::byte> EncodeExchangeAnswer(const ExchangeAnswer& answer);
// kDataLoss: not what EncodeExchangeAnswer writes.
absl::StatusOr<ExchangeAnswer> DecodeExchangeAnswer(std::span<const std::byte> meta);

}  // namespace pushpull
