// SPDX-License-Identifier: Apache-2.0
//
// What a lane is asked for a piece of an exchange, and whom it will answer.
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
  // Set: `values` are the result of the piece, and these workers contributed to it. By the receiver
  // of a message, without values: a receipt, it has the piece.
  std::optional<std::vector<WorkerId>> result_of;
  std::string label = {};  // of a message, with its first piece
};

// A request to answer, once.
struct ExchangeWaiter {
  Connection* connection = nullptr;  // opaque here
  FrameHeader request;
  bool has_result = false;               // it came with the result
  std::optional<MessagePair> pair = {};  // of a message
};

}  // namespace pushpull
