// SPDX-License-Identifier: Apache-2.0
//
// The simple noise scale of gradients (McCandlish et al. 2018, "An Empirical Model of Large-Batch
// Training", arXiv 1812.06162): B_simple = tr(Sigma) / |G|^2 (equation 2.9), where G is the
// gradient over the whole data set and Sigma the covariance of a single sample's. Much smaller
// batches leave steps dominated by noise, much larger ones gain little.
//
// A step of n contributions has gradients of two batch sizes, one worker's and that of all workers,
// from which appendix A.1 estimates both numbers without bias. Worker i has b_i samples and the
// mean gradient g_i over them; with B = sum(b_i) and g = sum(b_i g_i) / B:
//
//   S_small = sum(b_i |g_i|^2) / B    expected: |G|^2 + n tr(Sigma) / B    (B_small = B / n)
//   S_big   = |g|^2                   expected: |G|^2 +   tr(Sigma) / B    (B_big = B)
//
//   tr(Sigma) = (S_small - S_big) B / (n - 1)
//   |G|^2     = S_big - tr(Sigma) / B
//
// Weighting by b_i makes S_small exact even if workers' batches differ in size. Both are sums over
// the values of the gradient, so each chunk estimates its own part, with its own contributors, and
// the parts of all chunks add up. The ratio of two estimates is biased, so each is averaged over
// steps before the ratio is taken. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/ids.h"

namespace pushpull {

struct GradientNoise {
  double squares = 0;   // estimate of |G|^2
  double variance = 0;  // estimate of tr(Sigma), in samples times squares

  GradientNoise& operator+=(const GradientNoise& other);
  // variance / squares, in samples. None while the averages are too noisy to tell: an estimate of a
  // positive number can be negative.
  std::optional<double> scale() const;
  friend bool operator==(const GradientNoise&, const GradientNoise&) = default;
};

// Measures one chunk. Thread-compatible value.
class NoiseMeter {
 public:
  // One in this many steps is measured, the same ones in all chunks, so that the passes over the
  // values cost little; noise changes slowly.
  static constexpr uint64_t kStepsEach = 8;
  // Weight of each measurement relative to the next one in an average: about the last 50 count.
  static constexpr double kDecay = 0.98;

  static bool Measures(Step step) { return step.value() % kStepsEach == 0; }

  // The open step's contributions are measured; call before each of them.
  void Begin() { is_measuring_ = true; }
  // Measures a contribution to the mean: `values` over `samples`. Call before it is changed.
  void Add(std::span<const float> values, double samples);
  // The step is complete; `sum` is the sum of its contributions, each times its samples divided by
  // those of the first. Two or more contributions yield an estimate.
  void Finish(std::span<const float> sum);
  // The step is dropped; averages stay.
  void Drop();

  // Averages over the steps that were measured; zeros before the first.
  GradientNoise average() const;

 private:
  bool is_measuring_ = false;
  uint32_t contributions_ = 0;
  double first_samples_ = 0;
  double samples_ = 0;
  double weighted_squares_ = 0;  // sum(b_i |g_i|^2)
  GradientNoise decayed_;        // weighted sums of the measurements
  double weight_ = 0;
};

}  // namespace pushpull
