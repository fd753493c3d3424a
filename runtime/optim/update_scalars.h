// SPDX-License-Identifier: Apache-2.0
//
// What an update needs besides the elements: the scalars of one step, precomputed in float32. The
// CPU (kernels.h) and GPUs (runtime/device) use the same ones, so they get the same bits. Device
// code includes this header: C++17, and nothing that allocates.
#pragma once

namespace pushpull {

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

}  // namespace pushpull
