// SPDX-License-Identifier: Apache-2.0
//
// What a worker of a ring has in the place of servers: the values of all tensors, their optimizer
// state, and the job's position in its data set. Equal in all workers of the ring, bit by bit,
// because each of them applies the same sums in the same order. No I/O.
//
//   Contribute: this worker's part --sums over all ranks of facts(), then of gradients()--> Apply
//
// Facts are a few numbers beside the gradients: weights, learning rates, who wants samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/store/placed_tensor.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// A worker's push of one tensor.
struct RingPush {
  std::span<const float> gradient;
  double weight = 1;         // samples
  double learning_rate = 0;  // 0: as registered
};

// Thread-compatible. Tensors are named by their position in the job's list.
class RingState {
 public:
  // Zeros everywhere. kResourceExhausted: no memory; names the bytes.
  static absl::StatusOr<RingState> Make(std::span<const PlacedTensor> tensors);

  // A worker's own initial value, which counts where nobody has any (BeginFresh). `state`: the
  // optimizer's, after so many updates; empty: zeros.
  void SetInitial(size_t tensor,
                  std::span<const float> value,
                  std::span<const float> state,
                  uint64_t updates);
  // The values are those before step 0, whose samples are divided among these workers.
  // kDataLoss: the tensor of samples holds something else.
  absl::Status BeginFresh(std::span<const RingWorker> workers);

  // Everything that makes this state, to be overwritten by that of another worker; then TakeCopy
  // with its mark.
  std::vector<std::span<std::byte>> CopyParts();
  void TakeCopy(const RingMark& mark);

  // Writes this rank's part of the next step into facts() and gradients(). `pushes`: one for each
  // tensor, with as many values. `batch`: samples of a step that the job is to have; 0: as it is.
  void Contribute(std::span<const RingPush> pushes, uint32_t rank, uint32_t ranks, uint64_t batch);
  std::span<double> facts() { return facts_; }
  std::span<float> gradients() { return sums_.floats(); }
  // Both have been summed over all ranks: takes the step. `workers` by rank; `epoch`: the ring's.
  //
  //   kInvalidArgument  a sum is not finite; the text names tensor and step. Nothing has changed.
  absl::Status Apply(std::span<const RingWorker> workers, Epoch epoch);

  const RingMark& mark() const { return mark_; }
  // Samples of a full step over all workers; 0: the job does not divide any.
  uint64_t Batch() const;
  size_t num_tensors() const { return tensors_.size(); }
  std::span<const float> value(size_t tensor) const { return tensors_[tensor].value.floats(); }
  std::span<const float> optimizer_state(size_t tensor) const {
    return tensors_[tensor].state.floats();
  }
  uint64_t updates(size_t tensor) const { return updates_[tensor]; }

 private:
  struct Tensor {
    TensorSpec spec;
    HostBuffer value;
    HostBuffer state;
    size_t offset = 0;  // in sums_; of the tensor of samples: none
    bool holds_samples = false;
  };

  RingState() = default;
  std::span<float> SumOf(const Tensor& tensor);
  absl::Status CheckSums();
  void ApplyTo(size_t index);
  absl::Status Divide(Tensor& samples, std::span<const RingWorker> workers);

  // Places in facts_.
  size_t WeightAt(size_t tensor) const { return 1 + 2 * tensor; }
  size_t RateAt(size_t tensor) const { return WeightAt(tensor) + 1; }
  size_t WantsAt(size_t rank) const { return WeightAt(tensors_.size()) + rank; }

  std::vector<Tensor> tensors_;
  std::vector<uint64_t> updates_;  // by tensor
  RingMark mark_;
  HostBuffer sums_;
  std::vector<double> facts_;  // batch; weight and learning rate of each tensor; wishes by rank
};

}  // namespace pushpull
