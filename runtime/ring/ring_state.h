// SPDX-License-Identifier: Apache-2.0
//
// What a worker of a ring keeps in place of servers: the values of all tensors, their optimizer
// state, and the job's position in its data set. Bit-identical on all workers of the ring, because
// each of them applies the same sums in the same order. Values and sums are float32, whatever the
// tensors' type is. No I/O.
//
//   Contribute: this worker's part --reduced over all ranks: facts(), then gradients()--> Apply
//
// Facts are a few numbers besides the gradients: weights, learning rates, how many ranks have a
// gradient, which workers want samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/store/placed_tensor.h"
#include "runtime/tensor/element_reduce.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/shm/shared_memory.h"

namespace pushpull {

// A worker's push of one tensor.
struct RingPush {
  std::span<const std::byte> gradient;  // values of the tensor's type
  double weight = 1;                    // samples
  double learning_rate = 0;             // 0: as registered
  bool has_gradient = true;             // false: zeros; `gradient` is not read
};

// The gradients of all tensors that are reduced by the same operation.
struct RingGradients {
  ElementOp op = ElementOp::kSum;  // also of a mean: gradients are multiplied by their weights
  std::span<float> values;
};

// Thread-compatible. Tensors are identified by their position in the job's list.
class RingState {
 public:
  // Where gradients() are: in memory that ranks on the same host read in place, or not.
  enum class Sums { kPrivate, kShared };

  // Zeros everywhere. kResourceExhausted: no memory; names the bytes.
  static absl::StatusOr<RingState> Make(std::span<const PlacedTensor> tensors,
                                        Sums sums = Sums::kPrivate);

  // A worker's own initial value, in the tensor's type, which counts if no worker has any values
  // (BeginFresh). `state`: the optimizer's, after `updates` updates; empty: zeros.
  void SetInitial(size_t tensor,
                  std::span<const std::byte> value,
                  std::span<const float> state,
                  uint64_t updates);
  // The values are those before step `mark.step`, whose samples are divided among these workers:
  // initial ones, or a checkpoint's. kDataLoss: the tensor of samples holds something else.
  absl::Status Begin(const RingMark& mark, std::span<const RingWorker> workers);

  // All memory of this state, to be overwritten with another worker's; call TakeCopy with its mark
  // afterwards.
  std::vector<std::span<std::byte>> CopyParts();
  void TakeCopy(const RingMark& mark);

  // Writes this rank's part of the next step into facts() and gradients(). `pushes`: one per
  // tensor, with as many values. `batch`: the desired number of samples per step; 0: as it is.
  void Contribute(std::span<const RingPush> pushes, uint32_t rank, uint32_t ranks, uint64_t batch);
  std::span<double> facts() { return facts_; }
  // None is empty; in the order of their operations.
  std::vector<RingGradients> gradients();
  // What has gradients(); null: they are private.
  std::shared_ptr<const SharedMemory> shared_sums() const { return shared_sums_; }
  // To be called when facts have been summed over all ranks, and gradients reduced: takes the step.
  // `workers` by rank; `epoch`: the ring's.
  //
  //   kInvalidArgument  a sum is not finite; the text names tensor and step. Nothing has changed.
  absl::Status Apply(std::span<const RingWorker> workers, Epoch epoch);

  // A chunk of the job's table (runtime/shard/chunk.h), which is how checkpoints store tensors.
  struct ChunkPlace {
    ChunkId chunk;
    size_t tensor = 0;
    uint64_t index = 0;        // among the tensor's chunks
    uint64_t value_bytes = 0;  // float32
    uint64_t state_bytes = 0;  // the optimizer's
  };
  // In the order of their ids.
  std::vector<ChunkPlace> chunks() const;
  // `value` and `optimizer_state` are as large as `place` says.
  void CopyChunk(const ChunkPlace& place,
                 std::span<float> value,
                 std::span<float> optimizer_state) const;
  // Sets a chunk. A tensor has had as many updates as the chunk with the most.
  void SetChunk(const ChunkPlace& place,
                std::span<const float> value,
                std::span<const float> optimizer_state,
                uint64_t updates);

  const RingMark& mark() const { return mark_; }
  // Samples of a full step over all workers; 0: the job does not divide any.
  uint64_t Batch() const;
  size_t num_tensors() const { return tensors_.size(); }
  const TensorSpec& spec(size_t tensor) const { return tensors_[tensor].spec; }
  std::span<const float> value(size_t tensor) const { return tensors_[tensor].value.floats(); }
  // Writes the value in the tensor's type; `target` has its size, or is empty. Returns the number
  // of finite values that are infinite in that type.
  uint64_t WriteValue(size_t tensor, std::span<std::byte> target) const;
  std::span<const float> optimizer_state(size_t tensor) const {
    return tensors_[tensor].state.floats();
  }
  uint64_t updates(size_t tensor) const { return updates_[tensor]; }
  // Whether a gradient counted in the tensor's last step; without one its optimizer was not run
  // (docs/decisions/0092-pushes-without-a-gradient.md). True before the first step and after a
  // checkpoint.
  bool had_gradient(size_t tensor) const { return had_gradient_[tensor] != 0; }

 private:
  struct Tensor {
    TensorSpec spec;
    ChunkId first_chunk;
    HostBuffer value;
    HostBuffer state;
    size_t offset = 0;  // in sums_; unused for the tensor of samples
    bool holds_samples = false;
  };

  RingState() = default;
  // Gives the tensors of `op` their places in sums_, from `begin` on. Returns the end.
  size_t Place(ElementOp op, size_t begin);
  std::span<float> SumOf(const Tensor& tensor);
  bool IsFinite(size_t index);
  absl::Status CheckSums();
  void ApplyTo(size_t index);
  absl::Status Divide(Tensor& samples, double num_samples, std::span<const RingWorker> workers);

  // Positions in facts_.
  size_t WeightAt(size_t tensor) const { return 1 + 3 * tensor; }
  size_t RateAt(size_t tensor) const { return WeightAt(tensor) + 1; }
  size_t GradientsAt(size_t tensor) const { return WeightAt(tensor) + 2; }
  size_t WantsAt(size_t rank) const { return WeightAt(tensors_.size()) + rank; }

  std::vector<Tensor> tensors_;
  std::vector<uint64_t> updates_;       // by tensor
  std::vector<uint64_t> had_gradient_;  // by tensor, 0 or 1
  RingMark mark_;
  std::shared_ptr<const SharedMemory> shared_sums_;  // lends sums_ its memory
  HostBuffer sums_;
  std::vector<std::pair<ElementOp, size_t>> ends_;  // of each operation's part of sums_, in order
  // Batch; weight, learning rate and number of gradients per tensor; wishes by rank.
  std::vector<double> facts_;
};

}  // namespace pushpull
