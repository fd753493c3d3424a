// SPDX-License-Identifier: Apache-2.0
//
// Which of a worker's payloads is sent next, over all of its connections. Each connection has a
// queue of its own, and TCP shares a link among connections, not among bytes: where servers hold
// unequal parts, those with little would be served early and those with much late, and an urgent
// chunk of one server would share the link with what can wait at another. So channels are given a
// bounded number of bytes, and the rest waits here, the most urgent first: a connection that is
// slow for what it has to carry fills the window, and gets the link
// (decisions/0042-push-window.md).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"

namespace pushpull {

// Thread-confined to its executor; what Lend returns may end on any thread, and later.
class PushWindow {
 public:
  // `on_room` is called on `executor`, which outlives the window, when there is room for the next
  // after Next had none.
  PushWindow(Executor& executor, std::function<void()> on_room);
  ~PushWindow();
  PushWindow(const PushWindow&) = delete;
  PushWindow& operator=(const PushWindow&) = delete;

  // As many bytes may be lent; one payload may be lent whatever its size.
  void SetLimit(uint64_t bytes) { limit_ = bytes; }

  // The chunk's payload waits. Equal priorities keep their order.
  void Add(uint8_t priority, ChunkId chunk) { waiting_[priority].push_back(chunk); }

  // Takes out the next that may go; nothing while the window is full or none waits.
  std::optional<ChunkId> Next();

  // For as long as what is returned lives, `bytes` of the window are lent; it keeps `owner` alive.
  std::shared_ptr<const void> Lend(uint64_t bytes, std::shared_ptr<const void> owner);

 private:
  struct Account;

  const std::shared_ptr<Account> account_;
  uint64_t limit_ = 1;
  std::map<uint8_t, std::deque<ChunkId>> waiting_;  // no empty ones
};

}  // namespace pushpull
