// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/optim/optimizer_cases.h"

#include <cmath>
#include <random>
#include <utility>

namespace pushpull {

std::vector<OptimizerSpec> AllOptimizers() {
  using Kind = OptimizerKind;
  return {
      {.kind = Kind::kSum},
      {.kind = Kind::kSgd, .learning_rate = 0.1},
      {.kind = Kind::kSgd, .learning_rate = 0.1, .weight_decay = 0.05},
      {.kind = Kind::kSgd, .learning_rate = 0.1, .momentum = 0.9},
      {.kind = Kind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.05},
      {.kind = Kind::kSgd,
       .learning_rate = 0.1,
       .momentum = 0.9,
       .nesterov = true,
       .weight_decay = 0.05},
      {.kind = Kind::kAdagrad, .learning_rate = 0.1, .epsilon = 1e-10},
      {.kind = Kind::kAdagrad, .learning_rate = 0.1, .weight_decay = 0.05, .epsilon = 1e-3},
      {.kind = Kind::kAdam, .learning_rate = 0.01},
      {.kind = Kind::kAdam,
       .learning_rate = 0.01,
       .weight_decay = 0.05,
       .beta1 = 0.8,
       .beta2 = 0.95,
       .epsilon = 1e-3},
      {.kind = Kind::kAdam, .learning_rate = 0.01, .beta1 = 0, .beta2 = 0},
      {.kind = Kind::kAdamW, .learning_rate = 0.01, .weight_decay = 0.01},
  };
}

Chunk MakeChunk(const OptimizerSpec& spec, std::vector<float> value) {
  Chunk chunk;
  chunk.state.assign(value.size() * StateFloatsPerValue(spec), 0.0F);
  chunk.value = std::move(value);
  return chunk;
}

std::vector<float> RandomFloats(size_t num_elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(num_elements);
  for (float& x : floats) {
    const float mantissa = normal(random);
    x = std::ldexp(mantissa, static_cast<int>(random() % 41) - 20);
  }
  return floats;
}

StepInput InputOfStep(const OptimizerSpec& spec, uint64_t step) {
  return {.learning_rate = spec.learning_rate * (1 + 0.1 * static_cast<double>(step % 7)),
          .step = step,
          .gradient_scale = 1.0 / static_cast<double>(1 + step % 3)};
}

double ReferenceElement::AdamChange(const StepInput& input, double gradient) {
  const double step = static_cast<double>(input.step);
  first_ = spec_.beta1 * first_ + (1 - spec_.beta1) * gradient;
  second_ = spec_.beta2 * second_ + (1 - spec_.beta2) * gradient * gradient;
  const double first = first_ / (1 - std::pow(spec_.beta1, step));
  const double second = second_ / (1 - std::pow(spec_.beta2, step));
  return -input.learning_rate * first / (std::sqrt(second) + spec_.epsilon);
}

void ReferenceElement::Update(const StepInput& input, double gradient) {
  const double scaled = gradient * input.gradient_scale;
  const double decayed = scaled + spec_.weight_decay * value_;
  double change = 0;
  switch (spec_.kind) {
    case OptimizerKind::kSum:
      change = scaled - value_;
      break;
    case OptimizerKind::kSgd:
      first_ = spec_.momentum * first_ + decayed;
      change = -input.learning_rate * (spec_.nesterov ? decayed + spec_.momentum * first_ : first_);
      break;
    case OptimizerKind::kAdagrad:
      second_ += decayed * decayed;
      change = -input.learning_rate * decayed / (std::sqrt(second_) + spec_.epsilon);
      break;
    case OptimizerKind::kAdam:
      change = AdamChange(input, decayed);
      break;
    case OptimizerKind::kAdamW:
      change = AdamChange(input, scaled) - input.learning_rate * spec_.weight_decay * value_;
      break;
  }
  value_ += change;
  distance_ += std::abs(change);
}

}  // namespace pushpull
