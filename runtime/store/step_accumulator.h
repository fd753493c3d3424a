// SPDX-License-Identifier: Apache-2.0
//
// The sum of one chunk's step. The first contribution is received straight into it; a later one is
// added when it is complete. Who may contribute, and in which order, is decided in
// server/step_policy.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/store/buffer_pool.h"
#include "runtime/store/gradient_noise.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {

// Clipping (docs/decisions/0053-clipping-by-the-global-norm.md) of the step's reduced gradient.
struct StepClip {
  std::optional<double> squares = {};  // of its values, once everybody has contributed
  std::optional<double> scale = {};    // what it is multiplied by
};

//            BeginDirect              FinishDirect(weight)
//   empty ----------------> receiving --------------------> summed --Clear--> empty
//     ^                        |                              ^ |
//     +----- AbandonDirect ----+        Add(first) from empty-+ +-- Add (again)
//
// Memory is taken with the first use and kept for the next step. Thread-confined to its lane.
class StepAccumulator {
 public:
  StepAccumulator(Reduction reduction, uint64_t num_bytes)
      : reduction_(reduction), num_bytes_(num_bytes) {}
  // Of a row-sparse tensor: contributions are rows of `dim` values in the form of ParseSparseRows,
  // and so is the sum. Add alone is for them, and sum_bytes.
  static StepAccumulator OfRows(Reduction reduction, size_t dim) {
    StepAccumulator accumulator(reduction, 0);
    accumulator.row_dim_ = dim;
    return accumulator;
  }

  bool is_empty() const { return !has_sum_ && !is_receiving_; }
  bool is_receiving() const { return is_receiving_; }
  bool has_sum() const { return has_sum_; }

  // Where the first contribution goes; is_empty() must hold. kResourceExhausted: no memory.
  // Memory comes from `pool` where there is none from an earlier step.
  absl::StatusOr<std::span<std::byte>> BeginDirect(BufferPool& pool);
  // What was received counts with `weight` (samples).
  void FinishDirect(double weight);
  // The received values do not count: the connection broke, or the contribution was rejected.
  void AbandonDirect() { is_receiving_ = false; }
  std::span<const float> received() const { return sum_.floats(); }

  // Adds a complete contribution; must not be receiving. May exchange `contribution`'s memory for
  // its own; the contents are then undefined.
  void Add(HostBuffer& contribution, double weight);

  // Adds a complete contribution that is read during the call; has_sum() must hold.
  void AddTo(std::span<const float> contribution, double weight);

  // The step's reduced gradient is sum() times scale(): the division of the mean is left to the
  // optimizer, which walks over the values anyway. has_sum() must hold.
  std::span<const float> sum() const { return sum_.floats(); }
  std::span<const std::byte> sum_bytes() const { return sum_.bytes(); }
  double scale() const { return MeanScale() * clip_.scale.value_or(1); }
  // Whether every value of the sum is, given that every contribution was when it was looked at:
  // false where finite numbers add up to more than float32 has, or where a contribution that was
  // read from shared memory had changed after the look.
  bool is_finite() const { return is_finite_; }

  const StepClip& clip() const { return clip_; }
  StepClip& clip() { return clip_; }
  // Everybody has contributed: computes the squares, 0 for a gradient that does not count or where
  // there is no sum. False: they are known already.
  bool BeginClip(bool counts);

  // Of the contributions to a mean of dense gradients.
  const NoiseMeter& noise() const { return noise_; }
  NoiseMeter& noise() { return noise_; }

  void Clear();
  // The memory of the sum, which leaves this accumulator; has_sum() must hold. Clears.
  HostBuffer TakeSum();
  // Whether its memory is lent.
  bool is_lent() const { return sum_.is_lent(); }
  // Takes other memory in exchange for its own, none for what TakeSum has taken; is_empty() must
  // hold.
  HostBuffer ExchangeMemory(HostBuffer memory) { return std::exchange(sum_, std::move(memory)); }
  // Gives the memory back until the next use; not while receiving.
  void Release() { sum_ = HostBuffer(); }

 private:
  double MeanScale() const {
    return reduction_ == Reduction::kMean ? first_weight_ / total_weight_ : 1;
  }

  void AddRows(HostBuffer& contribution, double weight);

  const Reduction reduction_;
  const uint64_t num_bytes_;
  size_t row_dim_ = 0;  // above 0: of a row-sparse tensor
  HostBuffer sum_;
  bool is_receiving_ = false;
  bool has_sum_ = false;
  bool is_finite_ = true;
  // sum_ is the weighted sum divided by the first contribution's weight, so that the first needs no
  // pass of its own and equal weights need no multiplication.
  double first_weight_ = 1;
  double total_weight_ = 0;
  StepClip clip_;
  NoiseMeter noise_;
};

}  // namespace pushpull
