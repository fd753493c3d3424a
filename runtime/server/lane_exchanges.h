// SPDX-License-Identifier: Apache-2.0
//
// A lane's part in the exchanges of workers (docs/decisions/0057-collectives-over-servers.md):
// routes their frames to the ExchangeTable or the MessageTable and answers them, as primary of the
// shard a piece belongs to.
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

  // Where a contribution is received; empty: it is dropped, out of memory or of a worker that is in
  // no view of its step.
  std::span<std::byte> PlacePayload(Reception& reception, const FrameHeader& header) const;
  // A complete kExchange. kDataLoss: it cannot be read.
  absl::Status OnFrame(Connection& connection, const ReceivedFrame& frame);

  // A view is in force.
  void OnViewActivated();
  // Entries have changed: this server may be primary of a shard again.
  void OnEntries();
  // This server was the shard's primary and is not any more.
  void OnDemoted(const Shard& shard);
  void OnDropped(const Connection& connection);

  // The highest step with an exchange that no joiner can take part in any more; empty: none.
  std::optional<Step> highest_completed() const {
    return std::max(table_.highest_completed(), messages_.highest_ended());
  }

 private:
  // What keeps this server from taking the request; none: it is taken.
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
