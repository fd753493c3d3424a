// SPDX-License-Identifier: Apache-2.0
//
// The sum of one chunk's step. The first contribution is received directly into it; later ones are
// added once they are complete. server/step_policy.h decides who may contribute, and in which
// order.
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
  std::optional<double> squares = {};  // of the gradient's values, once everybody has contributed
  std::optional<double> scale = {};    // by which the gradient is multiplied
};

// The weight of a contribution in a mean: its samples. One that is itself a sum, the sum of
// (w_i / unit) g_i (docs/decisions/0084-joint-pushes.md), has the samples of all in it.
struct SumWeight {
  // NOLINTNEXTLINE(google-explicit-constructor): mostly, a contribution is that of one worker
  SumWeight(double of_one) : unit(of_one), samples(of_one) {}
  SumWeight(double its_unit, double of_all) : unit(its_unit), samples(of_all) {}

  double unit;
  double samples;
};

//            BeginDirect              FinishDirect(weight)
//   empty ----------------> receiving --------------------> summed --Clear--> empty
//     ^                        |                              ^ |
//     +----- AbandonDirect ----+        Add(first) from empty-+ +-- Add (again)
//
// AddNothing changes none of these states: what has only such contributions has no sum.
//
// Memory is taken on first use and kept for the next step. Thread-confined to its lane.
class StepAccumulator {
 public:
  StepAccumulator(Reduction reduction, uint64_t num_bytes)
      : reduction_(reduction), num_bytes_(num_bytes) {}
  // For a row-sparse tensor: contributions are rows of `dim` values in the form of ParseSparseRows,
  // and so is the sum. Only Add adds them, and sum_bytes reads their sum.
  static StepAccumulator OfRows(Reduction reduction, size_t dim) {
    StepAccumulator accumulator(reduction, 0);
    accumulator.row_dim_ = dim;
    return accumulator;
  }

  bool is_empty() const { return !has_sum_ && !is_receiving_; }
  bool is_receiving() const { return is_receiving_; }
  bool has_sum() const { return has_sum_; }

  // Where the first contribution goes; is_empty() must hold. kResourceExhausted: no memory.
  // Memory comes from `pool` if there is none from an earlier step.
  absl::StatusOr<std::span<std::byte>> BeginDirect(BufferPool& pool);
  // The received contribution counts with `weight` (samples).
  void FinishDirect(SumWeight weight);
  // The received values do not count: the connection broke, or the contribution was rejected.
  void AbandonDirect() { is_receiving_ = false; }

  // Adds a complete contribution; must not be receiving. May exchange `contribution`'s memory for
  // its own; the contents are then undefined.
  void Add(HostBuffer& contribution, SumWeight weight);

  // Adds a contribution of zeros that come without memory: in a mean only its samples count. Must
  // not be receiving.
  void AddNothing(SumWeight weight);

  // Adds a complete contribution that is read during the call; has_sum() must hold.
  void AddTo(std::span<const float> contribution, SumWeight weight);

  // The step's reduced gradient is sum() times scale(): the division for the mean is left to the
  // optimizer, which passes over the values anyway. has_sum() must hold; before FinishDirect, sum()
  // is what has been received.
  std::span<const float> sum() const { return sum_.floats(); }
  std::span<const std::byte> sum_bytes() const { return sum_.bytes(); }
  double scale() const { return MeanScale() * clip_.scale.value_or(1); }
  // Whether every value of the sum is finite, given that every contribution was when it was
  // checked. False: finite numbers have overflowed float32, or a contribution read from shared
  // memory has changed since its check.
  bool is_finite() const { return is_finite_; }

  const StepClip& clip() const { return clip_; }
  StepClip& clip() { return clip_; }
  // Everybody has contributed: computes the squares, 0 if the gradient does not count or there is
  // no sum. False: they are already known.
  bool BeginClip(bool counts);

  // The noise of contributions to a mean of dense gradients.
  const NoiseMeter& noise() const { return noise_; }
  NoiseMeter& noise() { return noise_; }

  // A payload being received is unaffected.
  void Clear();
  // Moves the memory of the sum out and clears; has_sum() must hold.
  HostBuffer TakeSum();
  // Whether its memory is lent.
  bool is_lent() const { return sum_.is_lent(); }
  // Takes `memory` and returns its own, none after TakeSum; is_empty() must hold.
  HostBuffer ExchangeMemory(HostBuffer memory) { return std::exchange(sum_, std::move(memory)); }
  // Frees the memory until the next use; not while receiving.
  void Release() { sum_ = HostBuffer(); }

 private:
  double MeanScale() const {
    return reduction_ == Reduction::kMean ? first_weight_ / total_weight_ : 1;
  }

  void AddRows(HostBuffer& contribution, SumWeight weight);

  const Reduction reduction_;
  const uint64_t num_bytes_;
  size_t row_dim_ = 0;  // above 0: for a row-sparse tensor
  HostBuffer sum_;
  bool is_receiving_ = false;
  bool has_sum_ = false;
  bool is_finite_ = true;
  // sum_ is the weighted sum divided by the first contribution's weight, so that the first needs no
  // pass of its own and equal weights need no multiplication.
  double first_weight_ = 1;
  double total_weight_ = 0;  // of all contributions so far, also of those without values
  StepClip clip_;
  NoiseMeter noise_;
};

}  // namespace pushpull
