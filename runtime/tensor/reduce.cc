// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/reduce.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"

// Highway compiles the code between BEFORE and AFTER once for each instruction set by including
// this file repeatedly; the functions below HWY_ONCE pick one at run time. The order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/tensor/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/algo/transform-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct Add {
  template <class D, class V>
  HWY_INLINE V operator()(D /*tag*/, V accumulator, V x) const {
    return hn::Add(accumulator, x);
  }
};

struct MultiplyThenAdd {
  float scale = 1;

  // Not hn::MulAdd, which rounds once on machines that have the instruction and twice elsewhere.
  template <class D, class V>
  HWY_INLINE V operator()(D tag, V accumulator, V x) const {
    return hn::Add(accumulator, hn::Mul(x, hn::Set(tag, scale)));
  }
};

struct Multiply {
  float scale = 1;

  template <class D, class V>
  HWY_INLINE V operator()(D tag, V x) const {
    return hn::Mul(x, hn::Set(tag, scale));
  }
};

// Not hn::Min and hn::Max, which treat NaN differently on different machines.
struct TakeSmaller {
  template <class D, class V>
  HWY_INLINE V operator()(D /*tag*/, V accumulator, V x) const {
    return hn::IfThenElse(hn::Or(hn::Lt(x, accumulator), hn::IsNaN(x)), x, accumulator);
  }
};

struct TakeLarger {
  template <class D, class V>
  HWY_INLINE V operator()(D /*tag*/, V accumulator, V x) const {
    return hn::IfThenElse(hn::Or(hn::Lt(accumulator, x), hn::IsNaN(x)), x, accumulator);
  }
};

// As integers, the bits of NaN and infinities without their sign are at least these; those of
// every finite number are below.
constexpr int32_t kInfinityBits = 0x7F800000;

// The larger of `largest` and the magnitude of `x`, as integers.
template <class D>
HWY_INLINE hn::Vec<D> LargerMagnitude(D tag, hn::Vec<D> largest, hn::Vec<hn::Rebind<float, D>> x) {
  return hn::Max(largest, hn::And(hn::BitCast(tag, x), hn::Set(tag, 0x7FFFFFFF)));
}

// accumulator[i] = operation(accumulator[i], x[i]). Returns whether all results are finite, checked
// along the way, which costs nothing when memory is the bottleneck.
template <class Operation>
HWY_INLINE bool TransformFinite(std::span<float> accumulator,
                                const float* x,
                                const Operation& operation) {
  const hn::ScalableTag<float> tag;
  const hn::RebindToSigned<decltype(tag)> bits;
  const size_t lanes = hn::Lanes(tag);
  auto largest = hn::Zero(bits);
  size_t i = 0;
  for (; i + lanes <= accumulator.size(); i += lanes) {
    const auto result = operation(tag, hn::LoadU(tag, &accumulator[i]), hn::LoadU(tag, x + i));
    hn::StoreU(result, tag, &accumulator[i]);
    largest = LargerMagnitude(bits, largest, result);
  }
  const hn::CappedTag<float, 1> single;
  const hn::RebindToSigned<decltype(single)> single_bits;
  auto largest_of_rest = hn::Zero(single_bits);
  for (; i < accumulator.size(); ++i) {
    const auto result =
        operation(single, hn::LoadU(single, &accumulator[i]), hn::LoadU(single, x + i));
    hn::StoreU(result, single, &accumulator[i]);
    largest_of_rest = LargerMagnitude(single_bits, largest_of_rest, result);
  }
  return hn::AllTrue(bits, hn::Lt(largest, hn::Set(bits, kInfinityBits))) &&
         hn::GetLane(largest_of_rest) < kInfinityBits;
}

// All kernels for one instruction set. `x` has as many elements as `accumulator`.
bool AddScaledKernel(std::span<float> accumulator, const float* x, float scale) {
  // The same bits with one operation less, for sums and unweighted means.
  if (scale == 1.0F) return TransformFinite(accumulator, x, Add{});
  return TransformFinite(accumulator, x, MultiplyThenAdd{scale});
}

void MinimumKernel(std::span<float> accumulator, const float* x) {
  const hn::ScalableTag<float> tag;
  hn::Transform1(tag, accumulator.data(), accumulator.size(), x, TakeSmaller{});
}

void MaximumKernel(std::span<float> accumulator, const float* x) {
  const hn::ScalableTag<float> tag;
  hn::Transform1(tag, accumulator.data(), accumulator.size(), x, TakeLarger{});
}

void ScaleKernel(std::span<float> x, float scale) {
  const hn::ScalableTag<float> tag;
  hn::Transform(tag, x.data(), x.size(), Multiply{scale});
}

bool AllFiniteKernel(std::span<const float> x) {
  const hn::ScalableTag<int32_t> tag;
  const hn::RebindToFloat<decltype(tag)> floats;
  const size_t lanes = hn::Lanes(tag);
  auto largest = hn::Zero(tag);
  size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes)
    largest = LargerMagnitude(tag, largest, hn::LoadU(floats, &x[i]));

  const hn::CappedTag<int32_t, 1> single;
  const hn::RebindToFloat<decltype(single)> single_float;
  auto largest_of_rest = hn::Zero(single);
  for (; i < x.size(); ++i)
    largest_of_rest = LargerMagnitude(single, largest_of_rest, hn::LoadU(single_float, &x[i]));
  return hn::AllTrue(tag, hn::Lt(largest, hn::Set(tag, kInfinityBits))) &&
         hn::GetLane(largest_of_rest) < kInfinityBits;
}

// Four sums, so that none waits for its previous addition.
double SumOfSquaresKernel(std::span<const float> x) {
  const hn::ScalableTag<double> tag;
  const hn::Rebind<float, decltype(tag)> narrow;
  const size_t lanes = hn::Lanes(tag);
  auto first = hn::Zero(tag);
  auto second = hn::Zero(tag);
  auto third = hn::Zero(tag);
  auto fourth = hn::Zero(tag);
  const auto add = [&](size_t at, auto& sum) {
    const auto values = hn::PromoteTo(tag, hn::LoadU(narrow, &x[at]));
    sum = hn::MulAdd(values, values, sum);
  };
  size_t i = 0;
  for (; i + 4 * lanes <= x.size(); i += 4 * lanes) {
    add(i, first);
    add(i + lanes, second);
    add(i + 2 * lanes, third);
    add(i + 3 * lanes, fourth);
  }
  const auto sums = hn::Add(hn::Add(first, second), hn::Add(third, fourth));
  double total = hn::GetLane(hn::SumOfLanes(tag, sums));
  for (; i < x.size(); ++i) total += double{x[i]} * double{x[i]};
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

// Number of independent sums, which do not wait for each other's additions.
constexpr size_t kSquareSums = 8;

}  // namespace

HWY_EXPORT(AddScaledKernel);
HWY_EXPORT(MinimumKernel);
HWY_EXPORT(MaximumKernel);
HWY_EXPORT(ScaleKernel);
HWY_EXPORT(AllFiniteKernel);
HWY_EXPORT(SumOfSquaresKernel);

bool AddScaled(std::span<float> accumulator, std::span<const float> x, float scale) {
  PUSHPULL_CHECK(accumulator.size() == x.size());
  return HWY_DYNAMIC_DISPATCH(AddScaledKernel)(accumulator, x.data(), scale);
}

void Minimum(std::span<float> accumulator, std::span<const float> x) {
  PUSHPULL_CHECK(accumulator.size() == x.size());
  HWY_DYNAMIC_DISPATCH(MinimumKernel)(accumulator, x.data());
}

void Maximum(std::span<float> accumulator, std::span<const float> x) {
  PUSHPULL_CHECK(accumulator.size() == x.size());
  HWY_DYNAMIC_DISPATCH(MaximumKernel)(accumulator, x.data());
}

void Scale(std::span<float> x, float scale) {
  HWY_DYNAMIC_DISPATCH(ScaleKernel)(x, scale);
}

bool AllFinite(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteKernel)(x);
}

// Element i belongs to sum i % kSquareSums: one order of additions on every machine.
double SumOfSquares(std::span<const float> x) {
  std::array<double, kSquareSums> sums{};
  const size_t whole = x.size() - x.size() % kSquareSums;
  for (size_t i = 0; i < whole; i += kSquareSums) {
    for (size_t k = 0; k < kSquareSums; ++k) {
      const double value = x[i + k];
      sums[k] += value * value;
    }
  }
  for (size_t i = whole; i < x.size(); ++i) {
    const double value = x[i];
    sums[i % kSquareSums] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double FastSumOfSquares(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresKernel)(x);
}

}  // namespace pushpull
#endif  // HWY_ONCE
