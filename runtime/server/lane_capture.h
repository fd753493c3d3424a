// SPDX-License-Identifier: Apache-2.0
//
// A lane's part in a checkpoint (docs/protocol.md section 8): which chunks are still to be
// captured, and when. Capturing only takes references to the chunk's value and optimizer state, so
// a lane never waits for a disk; the writer (checkpoint_writer.h) does.
//
// A chunk is captured once it has reached the step's version and that version may be published: the
// next primary may make an unpublished version again, with different bits. No worker pushes the
// step before it has seen that version, so the capture always precedes the step's application. In
// Async and Bounded, where pushes are applied as they arrive, a chunk is captured at once, as it
// is.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "runtime/server/lane_context.h"

namespace pushpull {

// Thread-confined to its lane.
class LaneCapture {
 public:
  explicit LaneCapture(const LaneContext& lane) : lane_(lane) {}  // which outlives this object

  // Takes the order, replacing an earlier one.
  void Begin(const Capture& order);
  void End(uint64_t attempt);

  // Versions of the shard may have become publishable, or this server has become its primary.
  void OnPublishable(Shard& shard);
  // Likewise for one chunk.
  void OnPublishable(Chunk& chunk);
  // A step is complete and about to be applied. Some worker has therefore seen the version before
  // it, so that version may be published, whatever followers have acknowledged since this server
  // became primary.
  void BeforeApply(Chunk& chunk) { CaptureIfMissing(chunk, true); }
  // The next primary captures the shard's missing chunks.
  void OnDemoted(Shard& shard);

 private:
  void Add(Shard& shard);
  void CaptureDue(Shard& shard);
  void CaptureIfMissing(Chunk& chunk, bool is_publishable);
  void CaptureIfDue(Chunk& chunk, bool is_publishable);
  void FinishIfComplete();
  // Notifies the coordinator and forgets the order.
  void Refuse(absl::Status why, Step highest);

  const LaneContext& lane_;
  std::optional<Capture> order_;
  absl::flat_hash_set<Chunk*> missing_;
  absl::flat_hash_map<const Chunk*, uint64_t> attempts_;  // the last that captured each chunk
  std::vector<Chunk*> captured_;                          // since the lane last finished
  bool has_finished_ = false;                             // and nothing was added since
  // Posted tasks hold it weakly; it ends with the lane.
  const std::shared_ptr<LaneCapture*> self_ = std::make_shared<LaneCapture*>(this);
};

}  // namespace pushpull
