// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/half_float.h"

#include <bit>

#include "runtime/base/check.h"
#include "runtime/tensor/unaligned.h"

// As in reduce.cc: compiled once for each instruction set. The kernels are plain loops without
// branches, which the compiler vectorizes; Highway's own conversions of float16 and bfloat16 round
// differently on machines that lack the instructions.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/tensor/half_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

constexpr uint32_t kSignBit = 0x80000000U;
constexpr uint32_t kInfinityBits = 0x7F800000U;

HWY_INLINE uint32_t BitsOf(float x) {
  return std::bit_cast<uint32_t>(x);
}

HWY_INLINE float FloatOf(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// Uses masks: the compiler may turn a choice between computed values into branches instead of
// vectors.
HWY_INLINE uint32_t Choose(bool condition, uint32_t one, uint32_t other) {
  const uint32_t mask = 0U - static_cast<uint32_t>(condition);
  return (one & mask) | (other & ~mask);
}

// Converts a number without its sign, to nearest, ties to even. All three cases are computed, and
// one is chosen.
HWY_INLINE uint32_t MagnitudeToFloat16(uint32_t magnitude) {
  // 2^16 - 2^4 and above are nearer to 2^16, which float16 cannot represent, than to 65,504; a
  // carry of the rounding below makes them infinite.
  constexpr uint32_t kAboveAll = (127U + 16U) << 23;
  constexpr uint32_t kLeastNormal = (127U - 14U) << 23;
  // Added to a number below 2^-14, this leaves a multiple of 2^-24, the spacing of denormal
  // float16, in the lowest bits, rounded like every sum.
  constexpr uint32_t kOfDenormals = ((127U - 15U) + (23U - 10U) + 1U) << 23;
  const uint32_t is_odd = (magnitude >> 13) & 1U;
  const uint32_t normal = (magnitude - ((127U - 15U) << 23) + 0xFFFU + is_odd) >> 13;
  const uint32_t denormal = BitsOf(FloatOf(magnitude) + FloatOf(kOfDenormals)) - kOfDenormals;
  const uint32_t not_finite = Choose(magnitude > kInfinityBits, 0x7E00U, 0x7C00U);
  const uint32_t finite = Choose(magnitude < kLeastNormal, denormal, normal);
  return Choose(magnitude >= kAboveAll, not_finite, finite);
}

HWY_INLINE uint32_t Float16ToFloat32(uint32_t half) {
  constexpr uint32_t kExponent = 0x7C00U << 13;
  constexpr uint32_t kLeastNormal = (127U - 14U) << 23;
  const uint32_t shifted = (half & 0x7FFFU) << 13;
  const uint32_t exponent = shifted & kExponent;
  const uint32_t normal = shifted + ((127U - 15U) << 23);
  const uint32_t not_finite = normal + ((128U - 16U) << 23);
  const uint32_t denormal = BitsOf(FloatOf(normal + (1U << 23)) - FloatOf(kLeastNormal));
  const uint32_t finite = exponent == 0 ? denormal : normal;
  return ((half & 0x8000U) << 16) | (exponent == kExponent ? not_finite : finite);
}

HWY_INLINE uint32_t MagnitudeToBFloat16(uint32_t magnitude) {
  const uint32_t rounded = (magnitude + 0x7FFFU + ((magnitude >> 16) & 1U)) >> 16;
  return magnitude > kInfinityBits ? 0x7FC0U : rounded;
}

// Writes 16 bits per value, its sign and `convert` of its magnitude. Returns the number of finite
// values that became infinite: those of `least_too_large` and above.
template <typename Convert>
HWY_INLINE uint64_t EncodeHalves(const float* values,
                                 size_t num_values,
                                 std::byte* out,
                                 uint32_t least_too_large,
                                 Convert convert) {
  uint32_t overflows = 0;
  for (size_t i = 0; i < num_values; ++i) {
    const uint32_t bits = BitsOf(values[i]);
    const uint32_t magnitude = bits & ~kSignBit;
    const uint32_t sign = (bits & kSignBit) >> 16;
    StoreAt(out, i, static_cast<uint16_t>(sign | convert(magnitude)));
    const uint32_t is_above = magnitude >= least_too_large ? 1U : 0U;
    const uint32_t is_finite = magnitude < kInfinityBits ? 1U : 0U;
    overflows += is_above & is_finite;
  }
  return overflows;
}

uint64_t EncodeFloat16Kernel(const float* values, size_t num_values, std::byte* out) {
  constexpr uint32_t kLeastTooLarge = 0x477FF000U;  // 65,520
  return EncodeHalves(values, num_values, out, kLeastTooLarge, [](uint32_t magnitude) HWY_ATTR {
    return MagnitudeToFloat16(magnitude);
  });
}

uint64_t EncodeBFloat16Kernel(const float* values, size_t num_values, std::byte* out) {
  constexpr uint32_t kLeastTooLarge = 0x7F7F8000U;
  return EncodeHalves(values, num_values, out, kLeastTooLarge, [](uint32_t magnitude) HWY_ATTR {
    return MagnitudeToBFloat16(magnitude);
  });
}

void DecodeFloat16Kernel(const std::byte* encoded, float* values, size_t num_values) {
  for (size_t i = 0; i < num_values; ++i)
    values[i] = FloatOf(Float16ToFloat32(LoadAt<uint16_t>(encoded, i)));
}

void DecodeBFloat16Kernel(const std::byte* encoded, float* values, size_t num_values) {
  for (size_t i = 0; i < num_values; ++i)
    values[i] = FloatOf(static_cast<uint32_t>(LoadAt<uint16_t>(encoded, i)) << 16);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

HWY_EXPORT(EncodeFloat16Kernel);
HWY_EXPORT(EncodeBFloat16Kernel);
HWY_EXPORT(DecodeFloat16Kernel);
HWY_EXPORT(DecodeBFloat16Kernel);

uint64_t EncodeFloat16(std::span<const float> values, std::span<std::byte> halves) {
  PUSHPULL_CHECK(halves.size() >= 2 * values.size());
  return HWY_DYNAMIC_DISPATCH(EncodeFloat16Kernel)(values.data(), values.size(), halves.data());
}

uint64_t EncodeBFloat16(std::span<const float> values, std::span<std::byte> halves) {
  PUSHPULL_CHECK(halves.size() >= 2 * values.size());
  return HWY_DYNAMIC_DISPATCH(EncodeBFloat16Kernel)(values.data(), values.size(), halves.data());
}

void DecodeFloat16(std::span<const std::byte> halves, std::span<float> values) {
  PUSHPULL_CHECK(halves.size() >= 2 * values.size());
  HWY_DYNAMIC_DISPATCH(DecodeFloat16Kernel)(halves.data(), values.data(), values.size());
}

void DecodeBFloat16(std::span<const std::byte> halves, std::span<float> values) {
  PUSHPULL_CHECK(halves.size() >= 2 * values.size());
  HWY_DYNAMIC_DISPATCH(DecodeBFloat16Kernel)(halves.data(), values.data(), values.size());
}

}  // namespace pushpull
#endif  // HWY_ONCE
