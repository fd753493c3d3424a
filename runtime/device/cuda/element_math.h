// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element, for the GPU and, in tests, for the CPU. Every operation rounds
// once to nearest, as IEEE 754 specifies, and no product is fused with a sum, so results have the
// bits of runtime/tensor and runtime/optim, except for a NaN's sign and payload. That requires
// nvcc's -fmad=false and GCC's -ffp-contract=off (CMakeLists.txt). C++17.
#pragma once

#include <cstdint>
#include <cstring>

#include "runtime/optim/update_scalars.h"

#ifdef __CUDACC__
#define PUSHPULL_DEVICE __host__ __device__ __forceinline__
#else
#include <cmath>
#define PUSHPULL_DEVICE inline
#endif

namespace pushpull {

constexpr uint32_t kFloatSignBit = 0x80000000U;
constexpr uint32_t kFloatInfinity = 0x7F800000U;

PUSHPULL_DEVICE uint32_t FloatBits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

PUSHPULL_DEVICE float FloatOfBits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

PUSHPULL_DEVICE float SquareRoot(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

PUSHPULL_DEVICE bool IsFiniteFloat(float x) {
  return (FloatBits(x) & ~kFloatSignBit) < kFloatInfinity;
}

// a + scale b in two roundings.
PUSHPULL_DEVICE float PlusScaledElement(float a, float scale, float b) {
  const float product = scale * b;
  return a + product;
}

// NaN if either is NaN; if both are equal, the accumulator's stays.
PUSHPULL_DEVICE float SmallerElement(float accumulator, float x) {
  return x < accumulator || x != x ? x : accumulator;
}

PUSHPULL_DEVICE float LargerElement(float accumulator, float x) {
  return accumulator < x || x != x ? x : accumulator;
}

// Rounds to nearest float16 and bfloat16, ties to even, as runtime/tensor/half_float.h does.
PUSHPULL_DEVICE uint16_t Float16OfFloat(float x) {
#ifdef __CUDA_ARCH__
  uint16_t half = 0;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  const uint32_t bits = FloatBits(x);
  const uint32_t magnitude = bits & ~kFloatSignBit;
  const uint32_t sign = (bits & kFloatSignBit) >> 16;
  if (magnitude > kFloatInfinity) return static_cast<uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65,520
  // Below 2^-14: a float whose lowest bits, once 0.5 is added, count multiples of 2^-24.
  if (magnitude < 0x38800000U) {
    const uint32_t sum = FloatBits(FloatOfBits(magnitude) + 0.5F) - FloatBits(0.5F);
    return static_cast<uint16_t>(sign | sum);
  }
  const uint32_t rounded = magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | (rounded >> 13));
#endif
}

PUSHPULL_DEVICE float FloatOfFloat16(uint16_t half) {
#ifdef __CUDA_ARCH__
  float x = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1FU) return FloatOfBits(sign | kFloatInfinity | (fraction << 13));
  if (exponent != 0) return FloatOfBits(sign | ((exponent + 112U) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return FloatOfBits(sign | FloatBits(magnitude));
#endif
}

// In integers on the GPU too: compute capability 7.5 has no such conversion.
PUSHPULL_DEVICE uint16_t BFloat16OfFloat(float x) {
  const uint32_t bits = FloatBits(x);
  const uint32_t magnitude = bits & ~kFloatSignBit;
  const uint32_t sign = (bits & kFloatSignBit) >> 16;
  const uint32_t rounded = (magnitude + 0x7FFFU + ((magnitude >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>(sign | (magnitude > kFloatInfinity ? 0x7FC0U : rounded));
}

PUSHPULL_DEVICE float FloatOfBFloat16(uint16_t half) {
  return FloatOfBits(static_cast<uint32_t>(half) << 16);
}

// Whether a finite value became infinite.
PUSHPULL_DEVICE bool HasOverflown16(float x, uint16_t half, uint16_t infinity) {
  return IsFiniteFloat(x) && (half & 0x7FFFU) == infinity;
}

// --- Updates: the formulas of pushpull/tensor_spec.h
// ------------------------------------------------

PUSHPULL_DEVICE float GradientElement(const GradientTerms& terms, float gradient, float value) {
  return PlusScaledElement(terms.gradient_scale * gradient, terms.l2, value);
}

PUSHPULL_DEVICE float SgdElement(const SgdScalars& scalars, float gradient, float value) {
  const float g = GradientElement(scalars.gradient, gradient, value);
  return PlusScaledElement(value, -scalars.learning_rate, g);
}

PUSHPULL_DEVICE float MomentumElement(const MomentumScalars& scalars,
                                      float gradient,
                                      float value,
                                      float& momentum) {
  const float g = GradientElement(scalars.gradient, gradient, value);
  momentum = PlusScaledElement(g, scalars.momentum, momentum);
  const float direction =
      scalars.nesterov ? PlusScaledElement(g, scalars.momentum, momentum) : momentum;
  return PlusScaledElement(value, -scalars.learning_rate, direction);
}

PUSHPULL_DEVICE float AdagradElement(const AdagradScalars& scalars,
                                     float gradient,
                                     float value,
                                     float& squares) {
  const float g = GradientElement(scalars.gradient, gradient, value);
  const float square = g * g;
  squares = squares + square;
  const float root = SquareRoot(squares) + scalars.epsilon;
  return PlusScaledElement(value, -scalars.learning_rate, g / root);
}

PUSHPULL_DEVICE float AdamElement(const AdamScalars& scalars,
                                  float gradient,
                                  float value,
                                  float& first_moment,
                                  float& second_moment) {
  const float g = GradientElement(scalars.gradient, gradient, value);
  const float square = g * g;
  first_moment = PlusScaledElement(scalars.beta1 * first_moment, scalars.one_minus_beta1, g);
  second_moment = PlusScaledElement(scalars.beta2 * second_moment, scalars.one_minus_beta2, square);
  const float root = SquareRoot(second_moment) + scalars.epsilon;
  const float decayed = scalars.value_scale * value;
  return PlusScaledElement(decayed, -scalars.step_size, first_moment / root);
}

}  // namespace pushpull
