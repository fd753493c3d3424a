// SPDX-License-Identifier: Apache-2.0
//
// Decides which of a worker's payloads is sent next, over all of its connections. Each connection
// has its own queue, and TCP shares a link equally among connections regardless of their load: a
// server with few bytes would be served early and one with many late, and an urgent chunk for one
// server would share the link with less urgent ones for others. Channels are therefore given a
// bounded number of bytes, and the rest waits here in priority order: a connection that is slow for
// its load fills the window, and gets the link (docs/decisions/0042-push-window.md).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"

namespace pushpull {

// Thread-confined to its executor; what Lend returns may be destroyed on any thread, and later.
class PushWindow {
 public:
  // `on_room` is called on `executor`, which outlives the window, when there is room again after
  // Next returned nothing for lack of room.
  PushWindow(Executor& executor, std::function<void()> on_room);
  ~PushWindow();
  PushWindow(const PushWindow&) = delete;
  PushWindow& operator=(const PushWindow&) = delete;

  // Sets the number of bytes that may be lent; one payload may exceed it.
  void SetLimit(uint64_t bytes) { limit_ = bytes; }

  // Queues the chunk's payload. Equal priorities keep their order.
  void Add(uint8_t priority, ChunkId chunk) { waiting_.push({priority, num_added_++, chunk}); }

  // Removes and returns the next chunk to send; empty: the window is full, or no chunk waits.
  std::optional<ChunkId> Next();

  // Lends `bytes` of the window until the result is destroyed, which also keeps `owner` alive.
  std::shared_ptr<const void> Lend(uint64_t bytes, std::shared_ptr<const void> owner);

 private:
  struct Account;
  struct Waiting {
    uint8_t priority;
    uint64_t number;
    ChunkId chunk;
    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };

  const std::shared_ptr<Account> account_;
  uint64_t limit_ = 1;
  uint64_t num_added_ = 0;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
};

}  // namespace pushpull
