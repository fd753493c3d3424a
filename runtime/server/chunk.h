// SPDX-License-Identifier: Apache-2.0
//
// One chunk on a member of its shard's replica set. On every member: value, optimizer state,
// version, and what is replicated with them. On the primary also: the open step (open_step.h) and
// the requests that wait for the next version (waiter_queue.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/consistency/uneven_steps.h"
#include "runtime/consistency/worker_clocks.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/server/checkpoint_writer.h"
#include "runtime/server/open_step.h"
#include "runtime/server/shard.h"
#include "runtime/server/waiter_queue.h"
#include "runtime/store/chunk_state.h"
#include "runtime/store/placed_tensor.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/channel.h"

namespace pushpull {

class StepRules;

// A log entry that has been applied here and goes to the other members.
struct LogEntry {
  StreamMeta meta = {};      // kind and arguments; the stream fills in shard, position and seq
  Step step;                 // it turns this version into the next; of kInitialize: 0
  double learning_rate = 0;  // kApply
  Payload payload = {};
};

// The facts about the step that made a version which workers compare across chunks. All 0 if
// unknown: the version comes from a checkpoint or a worker's copy, or was made in another mode.
struct MadeBy {
  ContributorsDigest contributors = 0;
  double clip_scale = 0;     // what clipping multiplied the gradient by; 0: none
  bool has_gradient = true;  // false: nobody had one; a worker's copy says so too
};

// A chunk's replicated state at one version, from another member, a worker or a checkpoint.
struct ChunkSnapshot {
  Step version;
  uint64_t updates = 0;
  HostBuffer value;            // state().num_bytes(); for rows: RowImage::header
  HostBuffer optimizer_state;  // state().state_bytes(); for rows: RowImage::rows
  std::vector<WorkerClock> clocks = {};
  MadeBy made_by = {};
  std::optional<Admission> admission = {};
};

// Thread-confined to its lane.
class Chunk {
 public:
  // `shard` and the tensor outlive the chunk.
  Chunk(Shard& shard, size_t index_in_shard, ChunkPosition position, uint64_t num_bytes);

  ChunkId id() const { return ChunkId{position_.tensor->first_chunk.value() + position_.index}; }
  bool is_leading() const { return id() == kLeadingChunk; }
  // `tensor "fc1.weight" chunk 3`, for messages.
  std::string Name() const;
  const PlacedTensor& tensor() const { return *position_.tensor; }
  Shard& shard() const { return shard_; }
  size_t index_in_shard() const { return index_in_shard_; }

  const ChunkState& state() const { return state_; }
  // Async and Bounded: which pushes of each worker have been applied.
  const WorkerClocks& clocks() const { return clocks_; }
  // About the step that made the current version.
  MadeBy made_by() const;
  // On the leading chunk, with backup workers or gated steps: who counted in the step that made the
  // current version; null if unknown. Checkpoints do not need it: all their chunks are past that
  // step.
  const Admission* admission() const;

  const OpenStep& step() const { return step_; }
  OpenStep& step() { return step_; }
  WaiterQueue& waiters() { return waiters_; }

  // ---- changes on the primary; the caller appends the entry to the log ----

  // Takes version 0: the value and, if the optimizer continues from an earlier state, that state
  // after `updates` steps; or rows. kResourceExhausted: no memory. kInvalidArgument: the rows do
  // not belong to this chunk.
  absl::StatusOr<LogEntry> Initialize(HostBuffer initial, uint64_t updates);
  // What the active view requires, without a step; empty: nothing. In synchronous modes the version
  // is the number of the step, so versions made in other modes are raised to the step where the
  // mode begins. In Async and Bounded, workers that are gone push no more, and others may wait for
  // their samples: these come back. Errors of WithoutGone (sample_chunk.h).
  absl::StatusOr<std::optional<LogEntry>> FollowView(const StepRules& rules);
  // Turns version t into t + 1 with the contributions of step(), and clears it. The entry's payload
  // holds the sum's memory until it has been sent; the memory then returns to `pool`.
  // kResourceExhausted, kDataLoss: the step stays as it was; the job cannot continue.
  absl::StatusOr<LogEntry> CompleteStep(const StepRules& rules,
                                        const std::shared_ptr<BufferPool>& pool);
  // Removes and returns the requests that can be answered now, timed at `now`: those that wait for
  // no newer version, no other worker's progress, and no entry not yet known here.
  WaiterQueue::Taken TakeAnswerable(const StepRules& rules, SteadyTime now);
  // The worker's connection is gone. Its contributions stay.
  void DropRequestsOf(const Connection& connection);
  // This server is no longer primary. Removes and returns all requests. Held contributions of a
  // gated step stay: it may become primary again at the same version, when the workers that sent
  // them may be gone.
  std::vector<Waiter> EndPrimary(bool keeps_held);

  // ---- changes on the other members ----

  // Applies an entry of the primary's log; `payload` is taken or left for reuse.
  // kFailedPrecondition, kUnavailable: the entry does not fit the state here, or there was no
  // memory; join the stream again. kResourceExhausted: the chunk is between two versions; the job
  // cannot continue.
  absl::Status Apply(const StreamMeta& entry, const FrameHeader& header, HostBuffer& payload);
  // Replaces the state. kDataLoss: the rows are damaged; nothing has changed.
  absl::Status Restore(ChunkSnapshot snapshot);
  // This server is no longer a member: the chunk has no value again.
  void Clear();

  // Gives a checkpoint references to value and state. Until EndCapture, the next step is applied
  // beside them, in memory from `spares`.
  // kResourceExhausted: no memory for an image of rows.
  absl::StatusOr<ChunkCapture> BeginCapture(SpareBuffers& spares);
  void EndCapture() { state_.EndCapture(); }

 private:
  // A step whose gradient does not count.
  absl::Status Skip(bool has_gradient);
  LogEntry AdvanceTo(Step version);
  void ReplaceValue(HostBuffer next, LogEntry& entry);
  absl::Status ApplyStep(const StepRules& rules,
                         const std::shared_ptr<BufferPool>& pool,
                         LogEntry& entry);
  absl::Status ApplyRows(LogEntry& entry);
  Payload LendSum(std::shared_ptr<BufferPool> pool);
  absl::Status InstallWithState(const HostBuffer& initial, uint64_t updates);

  Shard& shard_;
  const size_t index_in_shard_;
  const ChunkPosition position_;
  // Replicated.
  ChunkState state_;
  WorkerClocks clocks_;
  std::optional<Admission> admission_;  // leading chunk only
  Step counted_version_;                // the newest one made by a synchronous step
  MadeBy counted_;                      // and that step
  // On the primary only.
  OpenStep step_;
  WaiterQueue waiters_;
};

// Whether it has rows of a row-sparse tensor.
inline bool HoldsRows(const Chunk& chunk) {
  return chunk.state().rows() != nullptr;
}

}  // namespace pushpull
