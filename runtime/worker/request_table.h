// SPDX-License-Identifier: Apache-2.0
//
// The chunks of a worker's tensors and the unanswered requests on them. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/store/placed_tensor.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/frame.h"
#include "runtime/worker/chunk_encoder.h"
#include "runtime/worker/joint_sum.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/row_request.h"
#include "runtime/worker/sync_meter.h"

namespace pushpull {

// A request on a whole tensor, as made by the program.
struct TensorRequest {
  FrameType type = FrameType::kPushPull;  // kInit, kPush, kPull or kPushPull
  size_t tensor = 0;                      // position in the job's list
  Step step;                              // kPull: the lowest version that answers it
  Step clock = {};                        // kPull: the number of the worker's next step
  std::span<const std::byte> source;  // gradient or initial value; the caller keeps it until done
  std::span<std::byte> target;        // receives the answer; may be empty for kPush
  // kInit: the optimizer's state after `updates` updates, [rows, values]; empty: none.
  std::span<const std::byte> initial_state = {};
  uint64_t updates = 0;
  // kPull: receives the optimizer's state, [rows, values], instead of the value in `target`.
  std::span<std::byte> state_target = {};
  double weight = 1;
  double learning_rate = 0;
  uint8_t priority = 0;
  bool has_gradient = true;     // of a push; false: `source` is empty
  bool is_kept = false;         // the program leaves the answer in `target`: it counts as a copy
  bool takes_in_place = false;  // the answer need not be in `target`: `pending` says where it is
  SteadyTime ready;
  std::shared_ptr<PendingOperation> pending;
  // For a row-sparse tensor, instead of `source` and `target`. Never kPushPull.
  std::shared_ptr<const RowRequest> rows = {};
};

// One chunk of a TensorRequest.
struct ChunkRequest {
  FrameType type;
  Step step;
  Step clock = {};
  Step base_version = {};
  std::span<const std::byte> source = {};
  std::span<std::byte> target;
  double weight = 0;
  double learning_rate = 0;
  uint8_t priority;
  bool has_gradient = true;  // of a push; false: nothing is sent but its header
  bool is_kept = false;
  bool takes_in_place = false;
  ServerId server;
  EncodedGradient encoded = {};  // sent instead of `source`
  // For a pull of the optimizer's state: the buffer of `target`, which holds this chunk's part of
  // each row, one after the other.
  std::shared_ptr<HostBuffer> state = {};
  std::span<std::byte> state_target = {};  // that of the whole tensor
  PushTimes times = {};
  SteadyTime sent = {};
  bool must_send = false;      // not on its way to the shard's primary
  bool waits = false;          // in the push window
  bool is_again = false;       // waits, but was sent before
  bool is_refused = false;     // for now; a timer sends it again
  bool is_held = false;        // not sent before StepAgreement releases it
  bool is_taken = false;       // gated step: the shard's primary holds it until the step is decided
  bool is_answered = false;    // kept for its target and `pending` until the whole step is
  bool is_with_group = false;  // handed to the member of the group that sums it
  bool is_alone = false;       // not summed in a group (any more)
  std::shared_ptr<JointPush> joint = {};  // sent instead of `source`
  // The version of the value that is, or would be, in `target`; ClientChunk::version may belong to
  // a value the program has pulled elsewhere.
  Step held_version = {};
  bool had_gradient = true;  // somebody had one in the step that made it
  PhaseTimes phases = {};    // once it is answered
  std::shared_ptr<PendingOperation> pending;
  // For a row-sparse tensor: this is part `row_part` of the request. Null: the tensor is dense.
  std::shared_ptr<const RowRequest> rows = {};
  size_t row_part = 0;

  // Bytes of the value that answers this request.
  size_t answer_bytes() const {
    if (joint != nullptr) return joint->value.num_bytes();
    return rows ? rows->parts[row_part].answer_bytes : target.size();
  }
  bool wants_value() const { return joint != nullptr ? joint->wants_value : !target.empty(); }
};

// At most one push (or initial value), one pull and, if the leading chunk decides who counts in a
// step, one fetch per chunk are under way.
struct ClientChunk {
  ShardId shard;
  DType dtype = DType::kFloat32;
  bool holds_samples = false;  // of the sample queue
  uint64_t offset = 0;         // in its tensor, in bytes of `dtype`
  uint64_t bytes = 0;
  uint64_t tensor_bytes = 0;
  Step version;
  Step clock;  // one more than the worker's last step that the chunk has answered
  std::optional<ChunkRequest> push;
  std::optional<ChunkRequest> pull;
  std::optional<ChunkRequest> fetch;
};

// Thread-compatible.
class RequestTable {
 public:
  using Slot = std::optional<ChunkRequest> ClientChunk::*;

  // Once.
  void SetTensors(const std::vector<PlacedTensor>& tensors);

  size_t num_tensors() const { return tensors_.size(); }
  std::span<ClientChunk> chunks() { return chunks_; }
  std::span<const ClientChunk> chunks() const { return chunks_; }
  std::span<ClientChunk> ChunksOf(size_t tensor);
  ClientChunk* Find(ChunkId chunk) {
    return chunk.value() < chunks_.size() ? &chunks_[chunk.value()] : nullptr;
  }
  ChunkId IdOf(const ClientChunk& chunk) const {
    return ChunkId{static_cast<uint64_t>(&chunk - chunks_.data())};
  }
  ClientChunk& leading();
  bool IsLeading(const ClientChunk& chunk) const;

  // Pulls and fetches are numbered; the number travels as base_version and their answers repeat it.
  Step BeginRead() { return newest_read_ = Step{newest_read_.value() + 1}; }
  Step newest_read() const { return newest_read_; }

  void ForEachRequest(const std::function<void(ClientChunk&, Slot)>& visit);

  // The request that a publication answers; null: none (the publication is a duplicate).
  static Slot AnsweredBy(const ClientChunk& chunk, const FrameHeader& answer);
  // The request that a refusal is for; the slot may be empty.
  static Slot RefusedBy(const ClientChunk& chunk, const FrameHeader& refusal);

  // The lowest known version of all chunks: in synchronous mode, the next step of this worker.
  Step LowestVersion() const;
  // One more than this worker's last step that all chunks have answered; 0 before the first.
  Step LowestClock() const;
  bool has_pushes() const;
  // Raises every chunk's version to at least this one.
  void RaiseVersions(Step version);

  // Fails every request with `why`. Returns the first one's error, which names the servers that
  // have not answered, tensor and step; OK: there was no request.
  absl::Status FailAll(const absl::Status& why);
  // Fails the step under way, including its pushes that are already answered.
  void FailStep(const absl::Status& why);
  // Removes all pushes, all of which are answered, and sets every chunk's clock to `version`.
  std::vector<ChunkRequest> FinishStep(Step version);

 private:
  std::vector<ClientChunk> chunks_;                 // by ChunkId
  std::vector<std::pair<size_t, size_t>> tensors_;  // first chunk and number of chunks, by tensor
  Step newest_read_;
};

}  // namespace pushpull
