// SPDX-License-Identifier: Apache-2.0
//
// Optimizers and inputs that the tests of this folder go through, and a float64 reference.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/optim/optimizer.h"

namespace pushpull {

// Every kind, with and without each setting that changes its loop.
std::vector<OptimizerSpec> AllOptimizers();

// One chunk under an optimizer: what ApplyOptimizer reads and writes.
struct Chunk {
  std::vector<float> value;
  std::vector<float> state;  // zeros at the start
};
Chunk MakeChunk(const OptimizerSpec& spec, std::vector<float> value);

// Normally distributed, of magnitudes from 2^-20 to 2^20. The same for the same seed.
std::vector<float> RandomFloats(size_t num_elements, uint32_t seed);

// Settings that change from step to step, as warm-up and uneven contributors do.
StepInput InputOfStep(const OptimizerSpec& spec, uint64_t step);

// What one element goes through, written down from the formulas in optimizer.h, in float64 and in
// the order of the papers.
class ReferenceElement {
 public:
  ReferenceElement(const OptimizerSpec& spec, double value) : spec_(spec), value_(value) {}

  void Update(const StepInput& input, double gradient);

  double value() const { return value_; }
  double distance() const { return distance_; }  // sum of all changes without their signs

 private:
  double AdamChange(const StepInput& input, double gradient);

  OptimizerSpec spec_;
  double value_;
  double distance_ = 0;
  double first_ = 0;   // momentum, or first moment
  double second_ = 0;  // sum of squares, or second moment
};

}  // namespace pushpull
