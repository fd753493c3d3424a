// SPDX-License-Identifier: Apache-2.0
//
// The noise scale of gradients (store/gradient_noise.h), measured by whole jobs of the product's
// own code over a fake clock: workers differentiate a quadratic whose gradient and covariance are
// known.
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status_macros.h"
#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// With 65,536 values a chunk: one and two chunks.
constexpr std::array<int64_t, 2> kTensors = {20'000, 70'000};
constexpr std::array<double, 3> kSamples = {4000, 1000, 7000};
constexpr uint64_t kSteps = 88;  // of which 11 are measured
constexpr double kFirstDistance = 0.02;
// So small that both numbers stay what they are.
constexpr double kLearningRate = 1e-9;

// Of value i: the gradient of one sample of 1/2 (w - w*)^2 + noise w has this deviation.
double DeviationOf(size_t i) {
  return i % 4 == 0 ? 1.5 : 0.5;
}

// Three workers with batches of their own, and servers whose chunks are on several lanes.
class QuadraticJob {
 public:
  explicit QuadraticJob(bool measures)
      : job_({.settings = {
                  .job = "j", .workers = kSamples.size(), .servers = 2, .noise_scale = measures}}) {
    for (const int64_t values : kTensors) {
      TensorSpec spec{.name = absl::StrCat("t", values), .dims = {values}};
      spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = kLearningRate};
      specs_.push_back(spec);
    }
    for (Worker& worker : workers_) {
      for (const int64_t values : kTensors) {
        worker.values.emplace_back(static_cast<size_t>(values), 0.0F);
        worker.gradients.emplace_back(static_cast<size_t>(values), 0.0F);
      }
    }
  }

  absl::Status Start() {
    std::vector<std::shared_ptr<PendingOperation>> all;
    for (uint32_t i = 0; i < kSamples.size(); ++i) all.push_back(job_.StartWorker(i).Join());
    PUSHPULL_RETURN_IF_ERROR(job_.WaitAll(all));
    all.clear();
    for (uint32_t i = 0; i < kSamples.size(); ++i) {
      std::vector<TensorRegistration> registrations;
      for (size_t t = 0; t < specs_.size(); ++t)
        registrations.push_back({.spec = specs_[t], .value = workers_[i].values[t]});
      all.push_back(job_.worker(i).Register(registrations));
    }
    return job_.WaitAll(all);
  }

  absl::Status Step() {
    std::vector<std::shared_ptr<PendingOperation>> all;
    for (uint32_t i = 0; i < kSamples.size(); ++i) {
      for (size_t t = 0; t < specs_.size(); ++t) {
        Differentiate(workers_[i].values[t], kSamples[i], workers_[i].gradients[t]);
        PUSHPULL_ASSIGN_OR_RETURN(auto pushed,
                                  job_.worker(i).PushPull(specs_[t].name,
                                                          workers_[i].gradients[t],
                                                          workers_[i].values[t],
                                                          {.samples = kSamples[i]}));
        all.push_back(std::move(pushed));
      }
    }
    return job_.WaitAll(all);
  }

  // Heartbeats with the last step have come.
  JobStatus Status() {
    job_.scheduler().RunFor(std::chrono::seconds(3));
    return job_.Status();
  }
  SimJob& job() { return job_; }

 private:
  struct Worker {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
  };

  // The mean gradient over so many samples at `at`, whose distance to the minimum is kFirstDistance
  // where it is 0.
  void Differentiate(const std::vector<float>& at, double samples, std::vector<float>& gradient) {
    for (size_t i = 0; i < at.size(); ++i) {
      const double noise = DeviationOf(i) * normal_(random_) / std::sqrt(samples);
      gradient[i] = static_cast<float>(at[i] + kFirstDistance + noise);
    }
  }

  SimJob job_;
  std::vector<TensorSpec> specs_;
  std::array<Worker, kSamples.size()> workers_;
  std::mt19937_64 random_{11};
  std::normal_distribution<double> normal_;
};

double KnownScale() {
  double squares = 0;
  double variance = 0;
  for (const int64_t values : kTensors) {
    for (size_t i = 0; i < static_cast<size_t>(values); ++i) {
      squares += kFirstDistance * kFirstDistance;
      variance += DeviationOf(i) * DeviationOf(i);
    }
  }
  return variance / squares;
}

TEST(SimNoiseTest, TheNoiseScaleOfAQuadraticIsFound) {
  QuadraticJob quadratic(true);
  ASSERT_TRUE(quadratic.Start().ok());

  for (uint64_t step = 0; step < kSteps; ++step) ASSERT_TRUE(quadratic.Step().ok());

  EXPECT_NEAR(quadratic.Status().noise_scale / KnownScale(), 1, 0.05);
}

TEST(SimNoiseTest, ShardsThatMoveTakeNoPartAway) {
  QuadraticJob quadratic(true);
  ASSERT_TRUE(quadratic.Start().ok());
  for (uint64_t step = 0; step < kSteps / 2; ++step) ASSERT_TRUE(quadratic.Step().ok());

  quadratic.job().StartServer(2);
  ASSERT_TRUE(quadratic.job().Resize(3).ok());
  for (uint64_t step = 0; step < kSteps / 2; ++step) ASSERT_TRUE(quadratic.Step().ok());

  EXPECT_NEAR(quadratic.Status().noise_scale / KnownScale(), 1, 0.05);
}

TEST(SimNoiseTest, NothingIsMeasuredUnlessTheManifestSaysSo) {
  QuadraticJob quadratic(false);
  ASSERT_TRUE(quadratic.Start().ok());

  for (int step = 0; step < 9; ++step) ASSERT_TRUE(quadratic.Step().ok());

  EXPECT_EQ(quadratic.Status().noise_scale, 0);
}

TEST(SimNoiseTest, MeasuredJobsStayInSync) {
  QuadraticJob quadratic(true);
  ASSERT_TRUE(quadratic.Start().ok());
  ASSERT_TRUE(quadratic.Step().ok());

  const absl::Status refused = quadratic.job().SetMode({.mode = SyncMode::kAsync});

  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("spec.sync.noiseScale: needs"));
}

}  // namespace
}  // namespace pushpull
