// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/gradient_noise.h"

#include <cmath>

#include "runtime/tensor/reduce.h"

namespace pushpull {

GradientNoise& GradientNoise::operator+=(const GradientNoise& other) {
  squares += other.squares;
  variance += other.variance;
  return *this;
}

std::optional<double> GradientNoise::scale() const {
  if (!(squares > 0) || !(variance > 0)) return std::nullopt;
  const double ratio = variance / squares;
  return std::isfinite(ratio) ? std::optional<double>(ratio) : std::nullopt;
}

void NoiseMeter::Add(std::span<const float> values, double samples) {
  if (!is_measuring_ || samples == 0) return;
  if (contributions_++ == 0) first_samples_ = samples;
  samples_ += samples;
  weighted_squares_ += samples * FastSumOfSquares(values);
}

void NoiseMeter::Finish(std::span<const float> sum) {
  if (contributions_ >= 2) {
    const double scale = first_samples_ / samples_;
    const double small = weighted_squares_ / samples_;
    const double big = FastSumOfSquares(sum) * scale * scale;
    const double variance = (small - big) * samples_ / (contributions_ - 1);
    const double squares = big - variance / samples_;
    if (std::isfinite(variance) && std::isfinite(squares)) {
      decayed_ = {.squares = decayed_.squares * kDecay + squares,
                  .variance = decayed_.variance * kDecay + variance};
      weight_ = weight_ * kDecay + 1;
    }
  }
  Drop();
}

void NoiseMeter::Drop() {
  is_measuring_ = false;
  contributions_ = 0;
  samples_ = 0;
  weighted_squares_ = 0;
}

GradientNoise NoiseMeter::average() const {
  if (weight_ == 0) return {};
  return {.squares = decayed_.squares / weight_, .variance = decayed_.variance / weight_};
}

}  // namespace pushpull
