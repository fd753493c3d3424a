// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/gradient_noise.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

// A gradient with known mean and covariance: value k of one sample's is normal about mean[k] with
// deviation deviation[k].
struct Source {
  std::vector<double> mean;
  std::vector<double> deviation;
  std::mt19937_64 random{7};

  explicit Source(size_t values) {
    for (size_t k = 0; k < values; ++k) {
      mean.push_back(0.02 * std::sin(static_cast<double>(k)));
      deviation.push_back(k % 3 == 0 ? 1.5 : 0.5);
    }
  }
  double squares() const {
    double sum = 0;
    for (const double value : mean) sum += value * value;
    return sum;
  }
  double variance() const {
    double sum = 0;
    for (const double value : deviation) sum += value * value;
    return sum;
  }
  // The mean over `samples`.
  std::vector<float> Gradient(double samples) {
    std::normal_distribution<double> normal;
    std::vector<float> gradient;
    for (size_t k = 0; k < mean.size(); ++k)
      gradient.push_back(
          static_cast<float>(mean[k] + deviation[k] * normal(random) / std::sqrt(samples)));
    return gradient;
  }
};

// One step as the accumulator makes it: the sum is divided by the samples of the first.
void MeasureStep(Source& source, const std::vector<double>& samples, NoiseMeter& meter) {
  std::vector<float> sum(source.mean.size());
  for (const double count : samples) {
    meter.Begin();
    const std::vector<float> gradient = source.Gradient(count);
    meter.Add(gradient, count);
    for (size_t k = 0; k < sum.size(); ++k)
      sum[k] += static_cast<float>(count / samples.front()) * gradient[k];
  }
  meter.Finish(sum);
}

void ExpectKnown(const std::vector<double>& samples) {
  Source source(20000);
  NoiseMeter meter;

  for (int step = 0; step < 30; ++step) MeasureStep(source, samples, meter);

  const GradientNoise noise = meter.average();
  EXPECT_NEAR(noise.squares / source.squares(), 1, 0.05);
  EXPECT_NEAR(noise.variance / source.variance(), 1, 0.01);
  EXPECT_NEAR(*noise.scale() / (source.variance() / source.squares()), 1, 0.05);
}

TEST(NoiseMeterTest, FindsTheNoiseScaleOfAKnownGradient) {
  ExpectKnown({16384, 16384, 16384, 16384});
}

TEST(NoiseMeterTest, BatchesOfDifferentSizesCountByTheirSamples) {
  ExpectKnown({1000, 32000, 8000});
}

TEST(NoiseMeterTest, OneStepIsCountedExactly) {
  NoiseMeter meter;
  meter.Begin();

  meter.Add(std::vector<float>{3, 1}, 2);  // |g|^2 = 10
  meter.Add(std::vector<float>{0, 1}, 6);  // |g|^2 = 1
  meter.Finish(std::vector<float>{3, 4});  // of weights 1 and 3; the mean is {0.75, 1}

  // S_small = (2 * 10 + 6 * 1) / 8 = 3.25, S_big = 1.5625
  EXPECT_DOUBLE_EQ(meter.average().variance, (3.25 - 1.5625) * 8);
  EXPECT_DOUBLE_EQ(meter.average().squares, 1.5625 - (3.25 - 1.5625));
}

TEST(NoiseMeterTest, OneContributionSaysNothing) {
  NoiseMeter meter;
  meter.Begin();

  meter.Add(std::vector<float>{3}, 2);
  meter.Add(std::vector<float>{9}, 0);  // of a worker without samples
  meter.Finish(std::vector<float>{3});

  EXPECT_EQ(meter.average(), GradientNoise{});
  EXPECT_FALSE(meter.average().scale());
}

TEST(NoiseMeterTest, OnlyStepsThatBeginAreMeasured) {
  NoiseMeter meter;
  meter.Begin();
  meter.Add(std::vector<float>{3}, 1);
  meter.Drop();

  meter.Add(std::vector<float>{5}, 1);
  meter.Add(std::vector<float>{7}, 1);
  meter.Finish(std::vector<float>{12});

  EXPECT_EQ(meter.average(), GradientNoise{});
}

TEST(NoiseMeterTest, ANumberThatIsNotFiniteIsLeftOut) {
  NoiseMeter meter;
  for (const float odd : {1.0F, INFINITY}) {
    meter.Begin();
    meter.Add(std::vector<float>{odd}, 1);
    meter.Add(std::vector<float>{3}, 1);
    meter.Finish(std::vector<float>{odd + 3});
  }

  EXPECT_DOUBLE_EQ(meter.average().variance, 2);
}

TEST(NoiseMeterTest, NewerStepsCountMore) {
  NoiseMeter meter;
  const auto measure = [&](float apart) {
    meter.Begin();
    meter.Add(std::vector<float>{apart}, 1);
    meter.Add(std::vector<float>{-apart}, 1);
    meter.Finish(std::vector<float>{0});
  };

  for (int i = 0; i < 300; ++i) measure(10);
  const double before = meter.average().variance;
  for (int i = 0; i < 300; ++i) measure(1);

  EXPECT_DOUBLE_EQ(before, 200);
  EXPECT_NEAR(meter.average().variance, 2, 0.5);
}

TEST(GradientNoiseTest, PartsAddUpBeforeTheirRatioIsTaken) {
  GradientNoise all{.squares = 1, .variance = 10};

  all += {.squares = 3, .variance = 2};

  EXPECT_EQ(all.scale(), 3);
  EXPECT_FALSE((GradientNoise{.squares = -1, .variance = 10}.scale()));
  EXPECT_FALSE((GradientNoise{.squares = 1, .variance = -10}.scale()));
}

}  // namespace
}  // namespace pushpull
