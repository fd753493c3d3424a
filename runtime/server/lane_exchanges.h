// SPDX-License-Identifier: Apache-2.0
//
// A lane's part in the workers' exchanges (docs/decisions/0057-collectives-over-servers.md): routes
// their frames to the ExchangeTable or the MessageTable and answers them, as primary of the shard
// to which a piece belongs.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/exchange/exchange_frame.h"
#include "runtime/exchange/exchange_table.h"
#include "runtime/exchange/message_table.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_context.h"

namespace pushpull {

// Thread-confined to its lane. Sending never blocks.
class LaneExchanges {
 public:
  // `lane` outlives this object.
  explicit LaneExchanges(const LaneContext& lane) : lane_(lane) {}
  ~LaneExchanges();

  // Where a contribution is received. Empty: it is dropped, for lack of memory or because its
  // worker is in no view for that step.
  std::span<std::byte> PlacePayload(Reception& reception, const FrameHeader& header) const;
  // A complete kExchange. kDataLoss: it cannot be read.
  absl::Status OnFrame(Connection& connection, const ReceivedFrame& frame);

  // A view has come into force.
  void OnViewActivated();
  // Entries have changed: this server may be primary of a shard again.
  void OnEntries();
  // This server is no longer the shard's primary.
  void OnDemoted(const Shard& shard);
  void OnDropped(const Connection& connection);

  // The highest step that has an exchange which a joiner can no longer take part in; empty: none.
  std::optional<Step> highest_completed() const {
    return std::max(table_.highest_completed(), messages_.highest_ended());
  }

 private:
  // The answer that rejects the request; none if this server can take it.
  std::optional<ExchangeAnswer> Rejection(const FrameHeader& header) const;
  absl::Status CheckLength(const ExchangeMeta& meta,
                           const ExchangeKey& key,
                           const FrameHeader& header) const;
  bool IsMember(const FrameHeader& header) const;
  std::function<bool(ShardId)> IsOpen() const;
  absl::Status Take(ExchangeContribution contribution, const ExchangeWaiter& waiter);
  void Send(const ExchangeWaiter& to, ExchangeAnswer answer, Payload payload = {}) const;
  void SendAll(const std::vector<ExchangeReply>& replies) const;
  void SendAll(const std::vector<MessageReply>& replies) const;
  void ForgetLater();

  const LaneContext& lane_;
  ExchangeTable table_;
  MessageTable messages_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
