// SPDX-License-Identifier: Apache-2.0
//
// A worker's request to a lane about a piece of an exchange, and the waiter to answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/exchange/exchange.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/frame.h"

namespace pushpull {

class Connection;

struct ExchangeContribution {
  ExchangeKey key;
  ExchangeSpec spec;
  ShardId shard;
  WorkerId worker;
  Incarnation incarnation;
  HostBuffer values;
  // Set: `values` are the result of the piece, and these workers contributed to it. From a
  // message's receiver, without values: a receipt, i.e. it has the piece.
  std::optional<std::vector<WorkerId>> result_of;
  std::string label = {};  // a message's, with its first piece
};

// A request to be answered once.
struct ExchangeWaiter {
  Connection* connection = nullptr;  // opaque here
  FrameHeader request;
  bool has_result = false;               // the request carried the result
  std::optional<MessagePair> pair = {};  // set for messages
};

}  // namespace pushpull
