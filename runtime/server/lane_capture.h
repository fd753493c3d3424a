// SPDX-License-Identifier: Apache-2.0
//
// A lane's part in a checkpoint (protocol.md section 8): which chunks are still to be captured, and
// when. Capturing takes references to the chunk's value and optimizer state, so nothing waits for a
// disk; the writer (checkpoint_writer.h) does.
//
// A chunk is captured when it has reached the step's version and that version may be published.
// What is never published may be made anew, differently, by the next primary. No worker pushes the
// step before it has seen that version, so the capture always comes before the step is applied.
// Where pushes are applied as they arrive (Async, Bounded), a chunk is captured as it is, at once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "runtime/membership/control.h"
#include "runtime/server/checkpoint_writer.h"
#include "runtime/server/chunk_slot.h"
#include "runtime/server/shard_slot.h"

namespace pushpull {

// Thread-confined to its lane.
class LaneCapture {
 public:
  // Called on the lane's executor with why an order cannot be carried out.
  using Refuser = std::function<void(Captured)>;

  // `executor` is the lane's.
  LaneCapture(size_t lane,
              Executor& executor,
              std::shared_ptr<CheckpointWriter> writer,
              Refuser refuse)
      : lane_(lane),
        executor_(executor),
        writer_(std::move(writer)),
        refuse_(std::move(refuse)),
        self_(std::make_shared<LaneCapture*>(this)) {}

  // Takes the order; an earlier one is forgotten. `shards` are all of the lane.
  void Begin(const Capture& order, const std::vector<ShardSlot*>& shards);
  void End(uint64_t attempt);

  // Versions of the shard may have become publishable, or this server reigns over it now.
  void OnPublishable(ShardSlot& shard);
  // Likewise of one chunk.
  void OnPublishable(ChunkSlot& slot);
  // A step is complete and about to be applied. So somebody has seen the version that it goes on
  // from, whatever the followers of this reign have said yet.
  void BeforeApply(ChunkSlot& slot);
  // Somebody else captures what is missing of it.
  void OnReignEnded(ShardSlot& shard);

 private:
  void Add(ShardSlot& shard);
  void Look(ShardSlot& shard);
  void CaptureIfDue(ChunkSlot& slot, bool is_publishable);
  void FinishIfComplete();
  // Tells the coordinator and forgets the order.
  void Refuse(absl::Status why, Step highest);

  const size_t lane_;
  Executor& executor_;
  const std::shared_ptr<CheckpointWriter> writer_;
  const Refuser refuse_;
  std::optional<Capture> order_;
  absl::flat_hash_set<ChunkSlot*> missing_;
  std::vector<ChunkSlot*> captured_;          // since the lane last finished
  bool has_finished_ = false;                 // and nothing was added since
  const std::shared_ptr<LaneCapture*> self_;  // what posted tasks look at: gone with the lane
};

}  // namespace pushpull
