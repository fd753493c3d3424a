// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/learning_rate.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::StartsWith;

constexpr double kTolerance = 1e-12;  // relative

void ExpectSame(double actual, double expected) {
  EXPECT_NEAR(actual, expected, kTolerance * expected);
}

TEST(LearningRateTest, FollowsTheFormulaForAnyNumberOfWorkers) {
  const LearningRateSettings settings{
      .base_learning_rate = 0.1, .base_batch = 256, .warmup_steps = 97};
  for (const uint64_t workers : {1U, 2U, 3U, 7U, 8U, 32U}) {
    const double full = 0.1 * static_cast<double>(workers);  // k eta of section 2.1
    for (uint64_t step = 0; step < 200; ++step) {
      // Section 2.2: a straight line from eta at step 0 to k eta at the end of the warm-up.
      const double expected =
          step < 97 ? 0.1 + (full - 0.1) * static_cast<double>(step) / 97.0 : full;

      ExpectSame(LearningRateAt(settings, 256 * workers, Step{step}), expected);
    }
  }
}

TEST(LearningRateTest, WarmUpRisesLinearlyToTheFullRate) {
  const LearningRateSettings settings{
      .base_learning_rate = 0.05, .base_batch = 64, .warmup_steps = 10};

  for (uint64_t step = 0; step < 10; ++step) {
    const double rise =
        LearningRateAt(settings, 256, Step{step + 1}) - LearningRateAt(settings, 256, Step{step});
    EXPECT_NEAR(rise, 0.015, kTolerance);
  }
  EXPECT_EQ(LearningRateAt(settings, 256, Step{0}), 0.05);
  EXPECT_EQ(LearningRateAt(settings, 256, Step{10}), 0.2);
  EXPECT_EQ(LearningRateAt(settings, 256, Step{1'000'000}), 0.2);
}

TEST(LearningRateTest, NoWarmUpMeansFullRateAtOnce) {
  const LearningRateSettings settings{.base_learning_rate = 0.1, .base_batch = 100};

  ExpectSame(LearningRateAt(settings, 400, Step{0}), 0.4);
}

TEST(LearningRateTest, BatchBelowTheBaseNeedsNoWarmUp) {
  const LearningRateSettings settings{
      .base_learning_rate = 0.1, .base_batch = 100, .warmup_steps = 10};

  ExpectSame(LearningRateAt(settings, 100, Step{0}), 0.1);
  ExpectSame(LearningRateAt(settings, 25, Step{0}), 0.025);
  ExpectSame(LearningRateAt(settings, 25, Step{50}), 0.025);
}

TEST(LearningRateTest, RateToBatchRatioIsIndependentOfWorkers) {
  const LearningRateSettings settings{.base_learning_rate = 0.1, .base_batch = 32};

  for (const uint64_t batch : {8U, 32U, 96U, 4096U}) {
    ExpectSame(LearningRateAt(settings, batch, Step{0}) / static_cast<double>(batch), 0.1 / 32);
  }
}

TEST(LearningRateTest, GrowingTheBatchEqualsDividingTheRate) {
  const Step step{5};
  for (const uint64_t factor : {2U, 5U, 10U}) {
    const double f = static_cast<double>(factor);
    const LearningRateSettings divided{.base_learning_rate = 0.1 / f, .base_batch = 32};
    const LearningRateSettings grown{.base_learning_rate = 0.1, .base_batch = 32 * factor};

    const double rate_of_divided = LearningRateAt(divided, 128, step);
    const double rate_of_grown = LearningRateAt(grown, 128 * factor, step);

    ExpectSame(rate_of_grown, 0.4);
    ExpectSame(rate_of_grown / (128 * f), rate_of_divided / 128);
  }
}

TEST(LearningRateTest, AnnealsLinearlyAfterTheWarmUp) {
  const LearningRateSettings settings{
      .base_learning_rate = 0.1, .base_batch = 64, .warmup_steps = 10, .anneal_steps = 110};

  ExpectSame(LearningRateAt(settings, 128, Step{10}), 0.2);
  ExpectSame(LearningRateAt(settings, 128, Step{60}), 0.1);
  ExpectSame(LearningRateAt(settings, 128, Step{109}), 0.002);
}

TEST(LearningRateTest, InvalidSettingIsNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto message = [](const LearningRateSettings& settings) {
    return std::string(Validate(settings).message());
  };

  EXPECT_TRUE(Validate({.base_learning_rate = 0.1, .base_batch = 1}).ok());
  EXPECT_THAT(message({.base_learning_rate = 0, .base_batch = 1}),
              StartsWith("base_learning_rate: must be above 0"));
  EXPECT_THAT(message({.base_learning_rate = nan, .base_batch = 1}),
              StartsWith("base_learning_rate: must be above 0"));
  EXPECT_THAT(message({.base_learning_rate = 0.1, .base_batch = 0}),
              StartsWith("base_batch: must be above 0"));
}

}  // namespace
}  // namespace pushpull
