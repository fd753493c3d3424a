// SPDX-License-Identifier: Apache-2.0
//
// Which bits come out does not depend on how the loops run: in place or not, in chunks or whole, at
// any alignment, with any instruction set. Which numbers come out is optimizer_test.cc's subject.
#include "runtime/optim/kernels.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "runtime/optim/optimizer.h"
#include "tests/unit/runtime/optim/optimizer_cases.h"

namespace pushpull {
namespace {

constexpr size_t kNumElements = 171;  // whole vectors of every width and a rest
constexpr uint64_t kSteps = 4;

std::vector<float> GradientOfStep(uint64_t step) {
  return RandomFloats(kNumElements, static_cast<uint32_t>(100 + step));
}

// Value and state after kSteps steps in place over the whole tensor.
Chunk Expected(const OptimizerSpec& spec) {
  Chunk chunk = MakeChunk(spec, RandomFloats(kNumElements, 7));
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ApplyOptimizer(
        spec, InputOfStep(spec, step), GradientOfStep(step), chunk.value, chunk.value, chunk.state);
  }
  return chunk;
}

std::vector<uint32_t> Bits(std::span<const float> floats) {
  std::vector<uint32_t> bits;
  for (const float x : floats) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

TEST(KernelsTest, OutOfPlaceEqualsInPlace) {
  for (const OptimizerSpec& spec : AllOptimizers()) {
    SCOPED_TRACE(ToString(spec));
    Chunk chunk = MakeChunk(spec, RandomFloats(kNumElements, 7));
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const std::vector<float> gradient = GradientOfStep(step);
      const std::vector<float> before = chunk.value;
      std::vector<float> after(kNumElements);

      ApplyOptimizer(spec, InputOfStep(spec, step), gradient, chunk.value, after, chunk.state);

      EXPECT_EQ(Bits(chunk.value), Bits(before));
      EXPECT_EQ(Bits(gradient), Bits(GradientOfStep(step)));
      chunk.value = after;
    }

    const Chunk expected = Expected(spec);
    EXPECT_EQ(Bits(chunk.value), Bits(expected.value));
    EXPECT_EQ(Bits(chunk.state), Bits(expected.state));
  }
}

TEST(KernelsTest, ChunkBoundariesDoNotChangeBits) {
  const std::vector<size_t> cuts = {0, 1, 17, 64, 67, kNumElements};
  for (const OptimizerSpec& spec : AllOptimizers()) {
    SCOPED_TRACE(ToString(spec));
    const Chunk expected = Expected(spec);
    const std::vector<float> start = RandomFloats(kNumElements, 7);
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const size_t first = cuts[c];
      const size_t length = cuts[c + 1] - first;
      const auto part = std::span(start).subspan(first, length);
      Chunk chunk = MakeChunk(spec, {part.begin(), part.end()});

      for (uint64_t step = 1; step <= kSteps; ++step) {
        const std::vector<float> gradient = GradientOfStep(step);
        ApplyOptimizer(spec,
                       InputOfStep(spec, step),
                       std::span(gradient).subspan(first, length),
                       chunk.value,
                       chunk.value,
                       chunk.state);
      }

      EXPECT_EQ(Bits(chunk.value), Bits(std::span(expected.value).subspan(first, length)));
      for (size_t slot = 0; slot < StateFloatsPerValue(spec); ++slot) {
        EXPECT_EQ(Bits(std::span(chunk.state).subspan(slot * length, length)),
                  Bits(std::span(expected.state).subspan(slot * kNumElements + first, length)));
      }
    }
  }
}

TEST(KernelsTest, EveryInstructionSetGivesTheSameBits) {
  for (const OptimizerSpec& spec : AllOptimizers()) {
    SCOPED_TRACE(ToString(spec));
    const Chunk expected = Expected(spec);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      const Chunk actual = Expected(spec);
      hwy::SetSupportedTargetsForTest(0);

      EXPECT_EQ(Bits(actual.value), Bits(expected.value)) << hwy::TargetName(target);
      EXPECT_EQ(Bits(actual.state), Bits(expected.state)) << hwy::TargetName(target);
    }
  }
}

TEST(KernelsTest, WritesNothingOutsideTheSpans) {
  constexpr float kGuard = 7.0F;
  for (const OptimizerSpec& spec : AllOptimizers()) {
    SCOPED_TRACE(ToString(spec));
    const size_t num_states = kNumElements * StateFloatsPerValue(spec);
    const std::vector<float> gradient = GradientOfStep(1);
    std::vector<float> value(kNumElements + 2, kGuard);
    std::vector<float> state(num_states + 2, 0.0F);
    state.front() = state.back() = kGuard;
    const auto inner_value = std::span(value).subspan(1, kNumElements);
    const auto inner_state = std::span(state).subspan(1, num_states);

    ApplyOptimizer(spec, InputOfStep(spec, 1), gradient, inner_value, inner_value, inner_state);

    EXPECT_EQ(value.front(), kGuard);
    EXPECT_EQ(value.back(), kGuard);
    EXPECT_EQ(state.front(), kGuard);
    EXPECT_EQ(state.back(), kGuard);
  }
}

}  // namespace
}  // namespace pushpull
