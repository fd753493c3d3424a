// SPDX-License-Identifier: Apache-2.0
//
// One chunk on its primary: its state, the step being summed, and the requests that wait for its
// next version. What a frame means is decided in consistency/sync_step.h; what is sent, in lane.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/consistency/sync_step.h"
#include "runtime/consistency/uneven_steps.h"
#include "runtime/consistency/worker_clocks.h"
#include "runtime/store/chunk_state.h"
#include "runtime/store/step_accumulator.h"
#include "runtime/store/tensor_spec.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/channel.h"

namespace pushpull {

class Connection;
class SharedPages;
struct ShardSlot;

// A request that is answered when the chunk has reached a version.
struct Waiter {
  Connection* connection = nullptr;
  FrameHeader request;
  Step min_version;
  bool wants_value = true;
  Step clock;              // of a read: the worker's own, with its push counted
  SteadyTime looked_at;    // for a push: when the server turned to it
  Duration sum_time{0};    // what adding it took, checks included
  PublishedTiming timing;  // filled in on the way
};

// A whole contribution that must not be added yet: another one is being received into the
// accumulator, (deterministic mode) a worker with a lower index is still to come, or it is not
// decided who counts in the step.
struct HeldContribution {
  Contribution contribution;
  HostBuffer values;
  bool counts = true;       // false: counted as a contributor, left out of the sum
  bool skips_step = false;  // with it the chunk keeps its value in this step
  Waiter waiter;
};

// Thread-confined to its lane.
class ChunkSlot {
 public:
  // `tensor` outlives the slot.
  ChunkSlot(const PlacedTensor& tensor, uint64_t index, uint64_t num_bytes);

  // "tensor "fc1.weight" chunk 3": for messages.
  std::string Name() const;

  ChunkId id() const { return ChunkId{tensor.first_chunk.value() + index}; }
  bool is_leading() const { return id() == kLeadingChunk; }
  bool HasHeld(WorkerId worker) const;
  // Of the process that pushes, where that matters.
  bool HasHeldOf(const MembershipView& membership, const FrameHeader& push) const;

  // What a push means now; counts contributions that are held.
  PushVerdict Judge(const MembershipView& membership, const FrameHeader& push) const;

  // What has been added makes a step.
  bool IsComplete(const MembershipView& membership) const;

  // Deterministic mode: whether this worker is next in the order of the sum.
  bool IsTurn(const MembershipView& membership, WorkerId worker) const;

  // Whether the step under way waits for this member of it.
  bool Awaits(const MembershipView& membership, WorkerId member) const;

  // Takes what the leading chunk has decided, where it is of the step under way. Not for that
  // chunk itself.
  void Learn(Admission decided);
  // The worker pushes no step before `step` any more.
  void Withdraw(WorkerId worker, Step step);

  // Takes the place of an earlier process's.
  void Hold(HeldContribution held);

  // A worker has one push, one pull and one fetch waiting at a time; a repeated one takes the
  // earlier's place.
  void AddWaiter(const Waiter& waiter);
  void DropWaitersOf(const Connection& connection);
  // Takes out those that `version()` and the other workers' clocks satisfy and that know no entry
  // above `epoch`.
  std::vector<Waiter> TakeSatisfied(Epoch epoch, const View& view);

  // This server is no member of the shard any more.
  void ClearState();

  // Gated steps: what is held from before this server reigned is of another step by now.
  void DropOutdated(const MembershipView& membership);

  // Forgets the step's contributions; the requests stay, their workers send again or are told.
  void DropContributions();

  // Of version(); 0 where that is of a checkpoint, of a worker's copy or of another mode.
  ContributorsDigest contributors() const;

  // Who counts in the step under way; null where that is not known, or everybody does.
  const Admission* Admitted(const MembershipView& membership) const;

  const PlacedTensor& tensor;
  const uint64_t index;        // among the tensor's chunks
  ShardSlot* shard = nullptr;  // set once by the lane
  size_t index_in_shard = 0;   // likewise
  ChunkState state;
  SyncStep step;
  WorkerClocks clocks;  // of the modes Async and Bounded; replicated like the state
  StepAccumulator accumulator;
  // Backup workers and gated steps. Leading chunk: of the step before version(), replicated like
  // the state; it needs not be in checkpoints, which have every chunk behind that step. Others: of
  // the step under way, as frames of workers have said.
  std::optional<Admission> admission;
  // The newest version that a synchronous step has made, here or on the primary that it came from.
  CountedVersion counted;
  std::vector<HeldContribution> held;  // in worker order
  std::vector<Waiter> waiters;
  // Where its value may lie for workers to read, and its position there; null: nobody has asked.
  std::shared_ptr<SharedPages> pages;
  size_t index_in_pages = 0;
  bool skips_step = false;   // nonFinite: Skip
  bool has_failed = false;   // nonFinite: Fail; nothing changes any more
  uint64_t captured_in = 0;  // the last attempt at a checkpoint that has it
  SteadyTime step_began_at;  // the first contribution of the step under way
  // Of the last step that this server completed.
  SteadyTime completed_at;
  SteadyTime optimized_at;
};

}  // namespace pushpull
