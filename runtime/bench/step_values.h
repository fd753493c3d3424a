// SPDX-License-Identifier: Apache-2.0
//
// Gradients whose sum is known: whole numbers, small enough that float32 adds them exactly, and
// different for each place, step and worker.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace pushpull {

class StepValues {
 public:
  // For one worker of `workers`, at most 4,096.
  StepValues(uint32_t worker, uint32_t workers);

  // This worker's gradient in `step`; `place` is the position of its first value among those of all
  // tensors.
  void Fill(uint64_t step, uint64_t place, std::span<float> gradient) const;

  // kDataLoss: `sum` is not the sum of all workers' gradients; the text has step and place.
  absl::Status Check(uint64_t step, uint64_t place, std::span<const float> sum) const;

 private:
  // Two periods of the values, so that a whole period begins at each place of the first.
  std::vector<float> gradient_;
  std::vector<float> sum_;
};

}  // namespace pushpull
