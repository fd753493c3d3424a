// SPDX-License-Identifier: Apache-2.0
//
// The metas of kExchange and kExchanged. Their headers have the exchange's step in `step`, its
// number within the step in `base_version` and the piece in `clock`; `chunk` is one whose shard
// the piece goes to.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/exchange/exchange.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// None where the piece's number is out of range.
std::optional<ExchangeKey> ExchangeKeyOf(const FrameHeader& header);
void SetExchangeKey(const ExchangeKey& key, FrameHeader& header);

// kExchange: a worker's contribution to a piece, or the result of the piece that it has.
struct ExchangeMeta {
  ExchangeSpec spec;
  // Set: the payload is the result, and these workers contributed to it.
  std::optional<std::vector<WorkerId>> result_of;
};

std::vector<std::byte> EncodeExchange(const ExchangeMeta& meta);
// kDataLoss: too short, or a field is out of range. The spec has passed Check.
absl::StatusOr<ExchangeMeta> DecodeExchange(std::span<const std::byte> meta);

// kExchanged.
struct ExchangeAnswer {
  enum class Kind : uint8_t {
    kResult = 1,   // the payload, of `workers`
    kTaken = 2,    // the sender's result
    kRefused = 3,  // because of `status`: kUnavailable asks to send it again
    kMoved = 4,    // to the primary of `entry`
  };
  Kind kind = Kind::kTaken;
  std::vector<WorkerId> workers;
  absl::Status status;
  std::optional<ShardEntry> entry;
};

std::vector<std::byte> EncodeExchangeAnswer(const ExchangeAnswer& answer);
// kDataLoss: not what EncodeExchangeAnswer writes.
absl::StatusOr<ExchangeAnswer> DecodeExchangeAnswer(std::span<const std::byte> meta);

}  // namespace pushpull
