// SPDX-License-Identifier: Apache-2.0
#include "runtime/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/optim/optimizer_cases.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// ---- the update ----

// Of every magnitude that a gradient can have: sparse features (0), vanished (denormal and below
// where squares are representable), usual, and huge ones whose square is still a float32.
constexpr float kMagnitudes[] = {0.0F, 1e-42F, 1e-30F, 1e-12F, 1e-3F, 1.0F, 1e4F, 1e18F};

std::vector<float> EdgeGradient(size_t num_elements, uint32_t seed) {
  std::vector<float> gradient = RandomFloats(num_elements, seed);
  for (size_t i = 0; i < num_elements / 2; ++i) {
    const float sign = gradient[i] < 0 ? -1.0F : 1.0F;
    gradient[i] = sign * kMagnitudes[i % std::size(kMagnitudes)];
  }
  return gradient;
}

TEST(OptimizerTest, MatchesTheReferenceWithinRounding) {
  constexpr size_t kTensorElements = 203;
  constexpr uint64_t kOptimizerSteps = 50;
  for (const OptimizerSpec& spec : AllOptimizers()) {
    SCOPED_TRACE(ToString(spec));
    Chunk chunk = MakeChunk(spec, RandomFloats(kTensorElements, 1));
    chunk.value[3] = chunk.value[5] = 0.0F;
    std::vector<ReferenceElement> reference;
    for (const float value : chunk.value) reference.emplace_back(spec, value);

    double largest_error = 0;
    for (uint64_t step = 1; step <= kOptimizerSteps; ++step) {
      const StepInput input = InputOfStep(spec, step);
      const std::vector<float> gradient =
          EdgeGradient(kTensorElements, static_cast<uint32_t>(step) + 1);
      ApplyOptimizer(spec, input, gradient, chunk.value, chunk.value, chunk.state);
      for (size_t i = 0; i < kTensorElements; ++i) {
        reference[i].Update(input, gradient[i]);
        // Relative to the value and to the way it has come.
        const double scale = std::abs(reference[i].value()) + reference[i].distance() + 1e-42;
        const double error = std::abs(chunk.value[i] - reference[i].value()) / scale;
        largest_error = std::max(largest_error, error);
      }
    }

    // A rounding to float32 costs 6e-8 at most; 50 steps of one or two each may add up.
    EXPECT_LE(largest_error, 5e-6);
  }
}

struct PyTorchCase {
  OptimizerSpec spec;
  std::array<double, 2> value = {};  // after the five steps
};

// Printed by LibTorch 1.13 (torch::optim, float64) for the gradients below, with the learning rate
// halved before the third step.
const std::vector<PyTorchCase> kPyTorchCases = {
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1}, {0.490000000000, -1.357500000000}},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .weight_decay = 0.2},
     {0.457116269200, -1.270757379500}},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.2},
     {0.354153875200, -1.207333727000}},
    {{.kind = OptimizerKind::kSgd,
      .learning_rate = 0.1,
      .momentum = 0.9,
      .nesterov = true,
      .weight_decay = 0.2},
     {0.331872051358, -1.235153314574}},
    {{.kind = OptimizerKind::kAdagrad, .learning_rate = 0.1, .weight_decay = 0.2, .epsilon = 1e-3},
     {0.399350394468, -1.225503547909}},
    {{.kind = OptimizerKind::kAdam, .learning_rate = 0.1, .epsilon = 1e-3},
     {0.343453775890, -1.335172271662}},
    {{.kind = OptimizerKind::kAdam,
      .learning_rate = 0.1,
      .weight_decay = 0.2,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .epsilon = 1e-3},
     {0.291916463680, -1.173924011695}},
    {{.kind = OptimizerKind::kAdamW,
      .learning_rate = 0.1,
      .weight_decay = 0.2,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .epsilon = 1e-3},
     {0.323886775586, -1.252047348812}},
};

TEST(OptimizerTest, FiveStepsMatchPyTorch) {
  const std::vector<std::vector<float>> gradients = {
      {0.3F, 0.0F}, {-0.2F, 0.7F}, {0.1F, -1.5F}, {0.4F, 2.0F}, {-0.5F, 0.25F}};
  for (const PyTorchCase& c : kPyTorchCases) {
    SCOPED_TRACE(ToString(c.spec));
    Chunk chunk = MakeChunk(c.spec, {0.5F, -1.25F});

    for (uint64_t step = 1; step <= gradients.size(); ++step) {
      const StepInput input{.learning_rate = step < 3 ? 0.1 : 0.05, .step = step};
      ApplyOptimizer(c.spec, input, gradients[step - 1], chunk.value, chunk.value, chunk.state);
    }

    EXPECT_NEAR(chunk.value[0], c.value[0], 1e-6);
    EXPECT_NEAR(chunk.value[1], c.value[1], 1e-6);
  }
}

TEST(OptimizerTest, SumReplacesTheValue) {
  const OptimizerSpec spec{.kind = OptimizerKind::kSum};
  Chunk chunk = MakeChunk(spec, {100.0F, std::nanf("")});

  ApplyOptimizer(spec,
                 {.gradient_scale = 0.25},
                 std::vector<float>{8.0F, -2.0F},
                 chunk.value,
                 chunk.value,
                 chunk.state);

  EXPECT_THAT(chunk.value, ElementsAre(2.0F, -0.5F));
}

TEST(OptimizerTest, FirstMomentumStepIsTheGradient) {
  const OptimizerSpec spec{.kind = OptimizerKind::kSgd, .learning_rate = 0.5, .momentum = 0.9};
  Chunk chunk = MakeChunk(spec, {1.0F});

  ApplyOptimizer(spec,
                 {.learning_rate = 0.5},
                 std::vector<float>{2.0F},
                 chunk.value,
                 chunk.value,
                 chunk.state);

  EXPECT_THAT(chunk.value, ElementsAre(0.0F));
  EXPECT_THAT(chunk.state, ElementsAre(2.0F));
}

TEST(OptimizerTest, FirstAdamStepIsTheLearningRate) {
  const OptimizerSpec spec{.kind = OptimizerKind::kAdam, .learning_rate = 0.125, .epsilon = 1e-20};
  Chunk chunk = MakeChunk(spec, {0.0F, 0.0F, 0.0F});

  ApplyOptimizer(spec,
                 {.learning_rate = 0.125},
                 std::vector<float>{1e-6F, -3.0F, 1e12F},
                 chunk.value,
                 chunk.value,
                 chunk.state);

  EXPECT_FLOAT_EQ(chunk.value[0], -0.125F);
  EXPECT_FLOAT_EQ(chunk.value[1], 0.125F);
  EXPECT_FLOAT_EQ(chunk.value[2], -0.125F);
}

TEST(OptimizerTest, AdamBiasCorrectionFades) {
  const OptimizerSpec spec{.kind = OptimizerKind::kAdam, .learning_rate = 0.1, .epsilon = 1e-3};
  Chunk chunk = MakeChunk(spec, {0.0F});
  chunk.state = {1.0F, 4.0F};  // moments of a gradient of 1, had it always been that

  ApplyOptimizer(spec,
                 {.learning_rate = 0.1, .step = 10'000'000'000},
                 std::vector<float>{1.0F},
                 chunk.value,
                 chunk.value,
                 chunk.state);

  const double second = 0.999 * 4.0 + 0.001;
  EXPECT_NEAR(chunk.value[0], -0.1 / (std::sqrt(second) + 1e-3), 1e-7);
}

TEST(OptimizerTest, ZeroGradientsChangeNothing) {
  for (OptimizerSpec spec : AllOptimizers()) {
    if (spec.kind == OptimizerKind::kSum) continue;
    spec.weight_decay = 0;
    spec.epsilon = 1e-30;
    spec.beta2 = std::nextafter(1.0, 0.0);
    ASSERT_TRUE(Validate(spec).ok());
    Chunk chunk = MakeChunk(spec, {0.75F, -0.0F});

    for (uint64_t step = 1; step <= 3; ++step) {
      ApplyOptimizer(spec,
                     InputOfStep(spec, step),
                     std::vector<float>{0.0F, 0.0F},
                     chunk.value,
                     chunk.value,
                     chunk.state);
    }

    EXPECT_THAT(chunk.value, ElementsAre(0.75F, 0.0F)) << ToString(spec);
  }
}

TEST(OptimizerTest, NaNStaysInItsElement) {
  for (const OptimizerSpec& spec : AllOptimizers()) {
    SCOPED_TRACE(ToString(spec));
    std::vector<float> gradient(37, 0.5F);
    gradient[20] = std::nanf("");
    Chunk chunk = MakeChunk(spec, std::vector<float>(37, 1.0F));

    ApplyOptimizer(spec, InputOfStep(spec, 1), gradient, chunk.value, chunk.value, chunk.state);

    EXPECT_TRUE(std::isnan(chunk.value[20]));
    EXPECT_EQ(std::ranges::count_if(chunk.value, [](float x) { return std::isnan(x); }), 1);
  }
}

TEST(OptimizerDeathTest, DifferentLengthsAreABrokenInvariant) {
  const OptimizerSpec spec{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9};
  const std::vector<float> three(3);
  const std::vector<float> four(4);
  std::vector<float> out(4);
  std::vector<float> state(4);
  std::vector<float> short_state(3);

  EXPECT_DEATH(ApplyOptimizer(spec, {}, three, four, out, state), "broken invariant");
  EXPECT_DEATH(ApplyOptimizer(spec, {}, four, three, out, state), "broken invariant");
  EXPECT_DEATH(ApplyOptimizer(spec, {}, four, four, out, short_state), "broken invariant");
  EXPECT_DEATH(ApplyOptimizer(spec, {.step = 0}, four, four, out, state), "broken invariant");
}

// ---- the spec ----

TEST(OptimizerSpecTest, StateSizeByOptimizer) {
  using Kind = OptimizerKind;

  EXPECT_EQ(StateFloatsPerValue({.kind = Kind::kSum}), 0U);
  EXPECT_EQ(StateFloatsPerValue({.kind = Kind::kSgd}), 0U);
  EXPECT_EQ(StateFloatsPerValue({.kind = Kind::kSgd, .momentum = 0.9}), 1U);
  EXPECT_EQ(StateFloatsPerValue({.kind = Kind::kAdagrad}), 1U);
  EXPECT_EQ(StateFloatsPerValue({.kind = Kind::kAdam}), 2U);
  EXPECT_EQ(StateFloatsPerValue({.kind = Kind::kAdamW}), 2U);
}

TEST(OptimizerSpecTest, SpecsOfTheTestsAreValid) {
  for (const OptimizerSpec& spec : AllOptimizers()) {
    EXPECT_TRUE(Validate(spec).ok()) << ToString(spec) << ": " << Validate(spec);
  }
}

struct InvalidSpec {
  OptimizerSpec spec;
  std::string message_start;
};

const std::vector<InvalidSpec> kInvalidSpecs = {
    {{.kind = OptimizerKind{0}}, "kind: must be the number of an optimizer, is 0"},
    {{.kind = OptimizerKind{6}, .learning_rate = 1},
     "kind: must be the number of an optimizer, is 6"},
    {{.kind = OptimizerKind::kSum, .momentum = 0.9}, "momentum: must be 0 with sum, is 0.9"},
    {{.kind = OptimizerKind::kSum, .weight_decay = 0.1},
     "weight_decay: must be 0 with sum, is 0.1"},
    {{.kind = OptimizerKind::kSgd}, "learning_rate: must be above 0 and finite in float32, is 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 1e300},
     "learning_rate: must be above 0 and finite in float32, is 1e+300"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = -0.1}, "learning_rate: must be above 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = kInfinity}, "learning_rate: must be above 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = kNaN}, "learning_rate: must be above 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 1},
     "momentum: must be at least 0 and below 1, is 1"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = -0.5},
     "momentum: must be at least 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = kNaN},
     "momentum: must be at least 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .nesterov = true},
     "nesterov: needs a momentum above 0"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .weight_decay = -1},
     "weight_decay: must be at least 0 and finite, is -1"},
    {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .weight_decay = kInfinity},
     "weight_decay: must be at least 0"},
    {{.kind = OptimizerKind::kAdagrad, .learning_rate = 0.1, .momentum = 0.9},
     "momentum: must be 0 with adagrad, is 0.9"},
    {{.kind = OptimizerKind::kAdagrad, .learning_rate = 0.1, .epsilon = 0},
     "epsilon: must be at least 1e-30 and finite, is 0"},
    {{.kind = OptimizerKind::kAdagrad, .learning_rate = 0.1, .epsilon = kNaN},
     "epsilon: must be at least 1e-30"},
    {{.kind = OptimizerKind::kAdam, .learning_rate = 0.1, .nesterov = true},
     "nesterov: must be 0 with adam, is 1"},
    {{.kind = OptimizerKind::kAdam, .learning_rate = 0.1, .beta1 = 1},
     "beta1: must be at least 0 and below 1, is 1"},
    {{.kind = OptimizerKind::kAdam, .learning_rate = 0.1, .beta2 = 1.5},
     "beta2: must be at least 0 and below 1, is 1.5"},
    {{.kind = OptimizerKind::kAdamW, .learning_rate = 0.1, .beta2 = kNaN},
     "beta2: must be at least 0"},
    {{.kind = OptimizerKind::kAdamW, .learning_rate = 0.1, .epsilon = -1e-8},
     "epsilon: must be at least 1e-30"},
};

TEST(OptimizerSpecTest, InvalidFieldIsNamed) {
  for (const InvalidSpec& invalid : kInvalidSpecs) {
    const absl::Status status = Validate(invalid.spec);

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << invalid.message_start;
    EXPECT_THAT(std::string(status.message()), StartsWith(invalid.message_start));
  }
}

TEST(OptimizerSpecTest, UnusedSettingsMayHaveDefaults) {
  EXPECT_TRUE(Validate({.kind = OptimizerKind::kSum}).ok());
  EXPECT_TRUE(Validate({.kind = OptimizerKind::kSum, .learning_rate = 0.1}).ok());
  EXPECT_TRUE(
      Validate({.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .beta1 = 7, .epsilon = 0}).ok());
}

TEST(OptimizerSpecTest, ToStringShowsEffectiveSettings) {
  const OptimizerSpec nesterov{
      .kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .nesterov = true};
  const OptimizerSpec adamw{
      .kind = OptimizerKind::kAdamW, .learning_rate = 0.001, .weight_decay = 0.01};

  EXPECT_EQ(ToString(OptimizerSpec{}), "sum");
  EXPECT_EQ(ToString(nesterov), "sgd(learning_rate=0.1, momentum=0.9, nesterov)");
  EXPECT_EQ(ToString(adamw),
            "adamw(learning_rate=0.001, weight_decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-08)");
  EXPECT_EQ(ToString(OptimizerKind{9}), "optimizer 9");
}

TEST(OptimizerSpecTest, WireValuesNeverChange) {
  EXPECT_EQ(static_cast<int>(OptimizerKind::kSum), 1);
  EXPECT_EQ(static_cast<int>(OptimizerKind::kSgd), 2);
  EXPECT_EQ(static_cast<int>(OptimizerKind::kAdagrad), 3);
  EXPECT_EQ(static_cast<int>(OptimizerKind::kAdam), 4);
  EXPECT_EQ(static_cast<int>(OptimizerKind::kAdamW), 5);
}

}  // namespace
}  // namespace pushpull
