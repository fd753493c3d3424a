// SPDX-License-Identifier: Apache-2.0
//
// Each kernel's arguments: one struct by value, identical on the host and on the GPU. Pointers are
// addresses in device memory. Device code includes this header: C++17, and nothing that allocates.
#pragma once

#include <cstdint>

#include "runtime/optim/update_scalars.h"

namespace pushpull {

constexpr unsigned kThreadsPerBlock = 256;
constexpr unsigned kVectorWidth = 4;  // elements that one thread loads at once: 16 bytes of float32

// The elements of a call. The first num_vectors vectors are read and written as vectors, which must
// be aligned; the rest, a tail or all of an unaligned array, one by one.
struct KernelExtent {
  uint64_t num_elements = 0;
  uint64_t num_vectors = 0;
};

// kName: the function in the kernel image. kUnroll: vectors that a thread loads before it stores
// the first result, so that enough loads are in flight; kernels with many arrays need fewer.

// to = from
struct CopyArgs {
  static constexpr const char* kName = "pushpull_copy";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const float* from;
  float* to;
};

// accumulator += scale x; unless null, *not_finite = 1 if a result is NaN or infinite
struct AddScaledArgs {
  static constexpr const char* kName = "pushpull_add_scaled";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  float* accumulator;
  const float* x;
  float scale;
  uint32_t* not_finite;
};

// accumulator = the smaller (larger) of accumulator and x
struct MinimumArgs {
  static constexpr const char* kName = "pushpull_minimum";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  float* accumulator;
  const float* x;
};

struct MaximumArgs {
  static constexpr const char* kName = "pushpull_maximum";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  float* accumulator;
  const float* x;
};

// x *= scale
struct ScaleArgs {
  static constexpr const char* kName = "pushpull_scale";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  float* x;
  float scale;
};

// *not_finite = 1 if an element is NaN or infinite
struct CheckFiniteArgs {
  static constexpr const char* kName = "pushpull_check_finite";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const float* x;
  uint32_t* not_finite;
};

// *overflows += number of finite values that became infinite
struct EncodeFloat16Args {
  static constexpr const char* kName = "pushpull_encode_float16";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const float* values;
  uint16_t* halves;
  unsigned long long* overflows;
};

struct EncodeBFloat16Args {
  static constexpr const char* kName = "pushpull_encode_bfloat16";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const float* values;
  uint16_t* halves;
  unsigned long long* overflows;
};

struct DecodeFloat16Args {
  static constexpr const char* kName = "pushpull_decode_float16";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const uint16_t* halves;
  float* values;
};

struct DecodeBFloat16Args {
  static constexpr const char* kName = "pushpull_decode_bfloat16";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const uint16_t* halves;
  float* values;
};

// The updates of runtime/optim/kernels.h. value_out is value_in or disjoint from it.
struct UpdateSumArgs {
  static constexpr const char* kName = "pushpull_update_sum";
  static constexpr unsigned kUnroll = 4;
  KernelExtent extent;
  const float* gradient;
  float* value_out;
  float scale;
};

struct UpdateSgdArgs {
  static constexpr const char* kName = "pushpull_update_sgd";
  static constexpr unsigned kUnroll = 2;
  KernelExtent extent;
  const float* gradient;
  const float* value_in;
  float* value_out;
  SgdScalars scalars;
};

struct UpdateMomentumArgs {
  static constexpr const char* kName = "pushpull_update_momentum";
  static constexpr unsigned kUnroll = 2;
  KernelExtent extent;
  const float* gradient;
  const float* value_in;
  float* value_out;
  float* momentum;
  MomentumScalars scalars;
};

struct UpdateAdagradArgs {
  static constexpr const char* kName = "pushpull_update_adagrad";
  static constexpr unsigned kUnroll = 2;
  KernelExtent extent;
  const float* gradient;
  const float* value_in;
  float* value_out;
  float* squares;
  AdagradScalars scalars;
};

struct UpdateAdamArgs {
  static constexpr const char* kName = "pushpull_update_adam";
  static constexpr unsigned kUnroll = 1;
  KernelExtent extent;
  const float* gradient;
  const float* value_in;
  float* value_out;
  float* first_moment;
  float* second_moment;
  AdamScalars scalars;
};

}  // namespace pushpull
