// SPDX-License-Identifier: Apache-2.0
//
// The kernels against plain loops, bit for bit, on every instruction set that this machine has and
// at every alignment.
#include "runtime/tensor/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace pushpull {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kLargest = std::numeric_limits<float>::max();

// Lengths around all vector lengths, and one of several vectors with a rest.
constexpr size_t kLengths[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1027};

// Every pair of these stands at some place of the input.
constexpr float kEdges[] = {0.0F,
                            -0.0F,
                            1.0F,
                            -1.0F,
                            kDenormal,
                            -kDenormal,
                            1e-40F,
                            kLargest,
                            -kLargest,
                            kInfinity,
                            -kInfinity,
                            kNaN};

// Runs `body` once for each instruction set that was compiled in and that this machine has.
void OnEveryTarget(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::vector<float> RandomFloats(size_t num_elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(num_elements);
  for (float& x : floats) x = std::ldexp(normal(random), static_cast<int>(random() % 40) - 20);
  return floats;
}

struct Inputs {
  std::vector<float> accumulator;
  std::vector<float> x;
};

Inputs RandomInputs(size_t num_elements) {
  const uint32_t seed = static_cast<uint32_t>(num_elements);
  return {RandomFloats(num_elements, 2 * seed), RandomFloats(num_elements, 2 * seed + 1)};
}

Inputs EdgeInputs() {
  Inputs inputs;
  for (const float a : kEdges) {
    for (const float b : kEdges) {
      inputs.accumulator.push_back(a);
      inputs.x.push_back(b);
    }
  }
  return inputs;
}

std::vector<Inputs> AllInputs() {
  std::vector<Inputs> all = {EdgeInputs()};
  for (const size_t num_elements : kLengths) all.push_back(RandomInputs(num_elements));
  return all;
}

// Same bits; where the expected value is NaN, any NaN.
void ExpectSameBits(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << "element " << i << " is " << actual[i] << ", expected " << expected[i];
    }
  }
}

using Kernel = std::function<void(std::span<float>, std::span<const float>)>;
using Element = std::function<float(float accumulator, float x)>;

// `kernel` gives what `element` gives for each pair, whatever the inputs, offsets and targets.
void ExpectElementwise(const Kernel& kernel, const Element& element) {
  for (const Inputs& inputs : AllInputs()) {
    std::vector<float> expected(inputs.x.size());
    std::transform(inputs.accumulator.begin(),
                   inputs.accumulator.end(),
                   inputs.x.begin(),
                   expected.begin(),
                   element);
    OnEveryTarget([&] {
      for (const size_t offset : {size_t{0}, size_t{1}, size_t{3}}) {
        std::vector<float> accumulator(offset + inputs.x.size());
        std::vector<float> x(2 * offset + inputs.x.size());
        std::ranges::copy(inputs.accumulator, accumulator.begin() + static_cast<long>(offset));
        std::ranges::copy(inputs.x, x.begin() + static_cast<long>(2 * offset));

        kernel(std::span(accumulator).subspan(offset), std::span(x).subspan(2 * offset));

        ExpectSameBits(std::span(accumulator).subspan(offset), expected);
      }
    });
  }
}

TEST(ReduceTest, AddScaledRoundsTheProductBeforeTheSum) {
  for (const float scale : {1.0F, 0.1F, -3.0F, 64.0F, 0.0F, 1e-30F, kDenormal}) {
    SCOPED_TRACE(scale);
    ExpectElementwise([scale](auto accumulator, auto x) { AddScaled(accumulator, x, scale); },
                      [scale](float accumulator, float x) {
                        const float product = scale * x;
                        return accumulator + product;
                      });
  }
}

TEST(ReduceTest, AddScaledFindsSumsThatAreNotFinite) {
  OnEveryTarget([] {
    for (const size_t num_elements : kLengths) {
      const std::vector<float> x(num_elements, kLargest / 2);
      std::vector<float> accumulator = x;
      EXPECT_TRUE(AddScaled(accumulator, x, 1.0F));
      EXPECT_TRUE(AddScaled(accumulator, x, -2.0F));

      for (size_t i = 0; i < num_elements; ++i) {
        accumulator.assign(num_elements, -1.0F);
        accumulator[i] = kLargest;
        EXPECT_FALSE(AddScaled(accumulator, x, 1.0F)) << i << " of " << num_elements;
        accumulator.assign(num_elements, -1.0F);
        accumulator[i] = kNaN;
        EXPECT_FALSE(AddScaled(accumulator, x, 0.5F)) << i << " of " << num_elements;
      }
    }
  });
}

TEST(ReduceTest, FusedMultiplyAddWouldDiffer) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last term is lost when the product is rounded.
  const float x = 1.0F + 0x1p-12F;
  std::vector<float> accumulator(19, -1.0F);

  OnEveryTarget([&] {
    std::ranges::fill(accumulator, -1.0F);
    AddScaled(accumulator, std::vector<float>(19, x), x);

    ExpectSameBits(accumulator, std::vector<float>(19, 0x1p-11F));
    EXPECT_NE(std::fma(x, x, -1.0F), 0x1p-11F);
  });
}

TEST(ReduceTest, MinimumKeepsTheSmallerAndEveryNaN) {
  ExpectElementwise([](auto accumulator, auto x) { Minimum(accumulator, x); },
                    [](float accumulator, float x) {
                      if (std::isnan(accumulator) || std::isnan(x)) return kNaN;
                      return x < accumulator ? x : accumulator;
                    });
}

TEST(ReduceTest, MaximumKeepsTheLargerAndEveryNaN) {
  ExpectElementwise([](auto accumulator, auto x) { Maximum(accumulator, x); },
                    [](float accumulator, float x) {
                      if (std::isnan(accumulator) || std::isnan(x)) return kNaN;
                      return x > accumulator ? x : accumulator;
                    });
}

TEST(ReduceTest, ScaleMultipliesEachElement) {
  for (const float scale : {1.0F, 1.0F / 3.0F, -2.0F, kDenormal, kLargest}) {
    SCOPED_TRACE(scale);
    ExpectElementwise([scale](auto accumulator, auto) { Scale(accumulator, scale); },
                      [scale](float accumulator, float) { return accumulator * scale; });
  }
}

TEST(ReduceTest, WritesNothingOutsideTheSpan) {
  for (const size_t num_elements : kLengths) {
    const std::vector<float> x(num_elements, 2.0F);
    OnEveryTarget([&] {
      std::vector<float> memory(num_elements + 2, 7.0F);
      const std::span<float> accumulator = std::span(memory).subspan(1, num_elements);

      AddScaled(accumulator, x, 3.0F);
      Minimum(accumulator, x);
      Maximum(accumulator, x);
      Scale(accumulator, 0.5F);

      EXPECT_EQ(memory.front(), 7.0F);
      EXPECT_EQ(memory.back(), 7.0F);
    });
  }
}

TEST(ReduceTest, FiniteNumbersAreFinite) {
  OnEveryTarget([] {
    for (const size_t num_elements : kLengths) {
      EXPECT_TRUE(AllFinite(RandomFloats(num_elements, 1)));
      EXPECT_TRUE(AllFinite(std::vector<float>(num_elements, kLargest)));
      EXPECT_TRUE(AllFinite(std::vector<float>(num_elements, -kLargest)));
      EXPECT_TRUE(AllFinite(std::vector<float>(num_elements, kDenormal)));
    }
  });
}

TEST(ReduceTest, FindsNonFiniteElementsAtAnyPosition) {
  const float signalling = std::bit_cast<float>(0x7F800001U);
  const float negative_nan = std::bit_cast<float>(0xFFC00000U);
  OnEveryTarget([&] {
    for (const float bad : {kNaN, negative_nan, signalling, kInfinity, -kInfinity}) {
      for (const size_t num_elements : {size_t{1}, size_t{5}, size_t{37}}) {
        for (size_t i = 0; i < num_elements; ++i) {
          std::vector<float> x(num_elements, -1.5F);
          x[i] = bad;

          EXPECT_FALSE(AllFinite(x)) << bad << " at " << i << " of " << num_elements;
        }
      }
    }
  });
}

TEST(ReduceTest, SquaresAreAddedInDouble) {
  std::vector<float> x(1001, 1e-3F);
  x[7] = 1e30F;  // its square is no float
  double rest = 0;
  for (size_t i = 0; i < 1000; ++i) rest += double{1e-3F} * 1e-3F;

  EXPECT_DOUBLE_EQ(SumOfSquares(x), double{1e30F} * 1e30F);
  x[7] = 0;
  EXPECT_NEAR(SumOfSquares(x), rest, 1e-15);
  EXPECT_EQ(SumOfSquares({}), 0);
}

TEST(ReduceTest, TheFastSumOfSquaresDiffersByRoundingAlone) {
  OnEveryTarget([] {
    for (const size_t num_elements : kLengths) {
      std::vector<float> x(num_elements);
      for (size_t i = 0; i < num_elements; ++i) x[i] = 1e3F / static_cast<float>(i + 1);

      EXPECT_NEAR(FastSumOfSquares(x), SumOfSquares(x), 1e-6) << num_elements;
    }
    EXPECT_DOUBLE_EQ(FastSumOfSquares(std::vector<float>{1e30F, -1e30F}),
                     2 * double{1e30F} * 1e30F);
  });
}

TEST(ReduceDeathTest, DifferentLengthsAreABrokenInvariant) {
  std::vector<float> three(3);
  const std::vector<float> four(4);

  EXPECT_DEATH(AddScaled(three, four, 1.0F), "accumulator.size\\(\\) == x.size\\(\\)");
  EXPECT_DEATH(Minimum(three, four), "accumulator.size\\(\\) == x.size\\(\\)");
  EXPECT_DEATH(Maximum(three, four), "accumulator.size\\(\\) == x.size\\(\\)");
}

}  // namespace
}  // namespace pushpull
