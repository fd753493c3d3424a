// SPDX-License-Identifier: Apache-2.0
//
// The element loops behind ApplyOptimizer, vectorised for the machine they run on. Scalars come
// ready made, formulas and sources are in optimizer.h.
#pragma once

#include <cstddef>

namespace pushpull {

// [num_elements] float32 each; value_out is value_in or apart from it, nothing else overlaps.
struct UpdateMemory {
  size_t num_elements = 0;
  const float* gradient = nullptr;
  const float* value_in = nullptr;
  float* value_out = nullptr;
};

// In every kernel: g = gradient_scale gradient + l2 value.
struct GradientTerms {
  float gradient_scale = 1;
  float l2 = 0;
};

struct SgdScalars {
  GradientTerms gradient;
  float learning_rate = 0;
};

struct MomentumScalars {
  GradientTerms gradient;
  float learning_rate = 0;
  float momentum = 0;
  bool nesterov = false;
};

struct AdagradScalars {
  GradientTerms gradient;
  float learning_rate = 0;
  float epsilon = 0;
};

struct AdamScalars {
  GradientTerms gradient;
  float value_scale = 1;  // decoupled weight decay: 1 - learning rate x weight decay
  float beta1 = 0;
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;
  float step_size = 0;  // learning rate with both bias corrections
  float epsilon = 0;    // with the second moment's bias correction
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
