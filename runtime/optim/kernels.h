// SPDX-License-Identifier: Apache-2.0
//
// The element loops behind ApplyOptimizer, vectorised for the machine they run on. Scalars are
// precomputed (update_scalars.h); formulas and sources are in optimizer.h.
#pragma once

#include <cstddef>

#include "runtime/optim/update_scalars.h"

namespace pushpull {

// [num_elements] float32 each; value_out is value_in or disjoint from it; nothing else overlaps.
struct UpdateMemory {
  size_t num_elements = 0;
  const float* gradient = nullptr;
  const float* value_in = nullptr;
  float* value_out = nullptr;
};

// value_out = scale gradient.
void UpdateSum(const UpdateMemory& memory, float scale);

void UpdateSgd(const UpdateMemory& memory, const SgdScalars& scalars);
void UpdateMomentum(const UpdateMemory& memory, const MomentumScalars& scalars, float* momentum);
void UpdateAdagrad(const UpdateMemory& memory, const AdagradScalars& scalars, float* squares);
void UpdateAdam(const UpdateMemory& memory,
                const AdamScalars& scalars,
                float* first_moment,
                float* second_moment);

}  // namespace pushpull
