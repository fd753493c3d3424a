// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/push_numbers.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string Refused(double samples, double learning_rate) {
  return std::string(CheckPushNumbers(samples, learning_rate).message());
}

TEST(PushNumbersTest, SamplesAreZeroOrHaveRatiosThatAreFloats) {
  for (const double samples : {0.0, 1e-18, 0.5, 64.0, 1e18})
    EXPECT_TRUE(CheckPushNumbers(samples, 0).ok()) << samples;
  for (const double samples : {-1.0, kNaN, kInfinity, -kInfinity, 1e-320, 1e300})
    EXPECT_THAT(Refused(samples, 0), HasSubstr("samples must be 0, or from 1e-18 to 1e+18, is "))
        << samples;
  EXPECT_THAT(Refused(-1, 0), HasSubstr("is -1"));
}

TEST(PushNumbersTest, LearningRatesAreFiniteFloats) {
  for (const double rate : {0.0, 1e-10, 0.1, 1e30})
    EXPECT_TRUE(CheckPushNumbers(1, rate).ok()) << rate;
  for (const double rate : {-1.0, kNaN, kInfinity, 1e300})
    EXPECT_THAT(Refused(1, rate), HasSubstr("learning rate must be above 0 and finite")) << rate;
}

}  // namespace
}  // namespace pushpull
