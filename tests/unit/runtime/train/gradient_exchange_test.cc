// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/gradient_exchange.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "runtime/train/model.h"
#include "tests/unit/runtime/train/local_job.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 5;
constexpr double kLearningRate = 0.5;

class GradientExchangeTest : public testing::TestWithParam<ModelKind> {
 protected:
  GradientExchangeTest() {
    torch::manual_seed(1);
    images_ = torch::rand({4, 1, 28, 28});
    labels_ = torch::tensor({3, 1, 4, 1}, torch::kInt64);
  }

  torch::Tensor Loss(torch::nn::Sequential& model) {
    return torch::nn::functional::cross_entropy(model->forward(images_), labels_);
  }

  Deadline deadline_ = Deadline::After(std::chrono::seconds(5));
  torch::Tensor images_;
  torch::Tensor labels_;
  LocalJob::Record record_;
  LocalJob job_{{}, record_};
};

std::vector<float> ToVector(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

// The values change while backward still runs here, which must not change any gradient.
TEST_P(GradientExchangeTest, PushesGradientsFromTheLastLayer) {
  torch::nn::Sequential plain = MakeModel(GetParam(), kSeed);
  Loss(plain).backward();
  torch::nn::Sequential model = MakeModel(GetParam(), kSeed);
  GradientExchange exchange(job_, *model);

  exchange.BeginStep({.samples = 4, .learning_rate = kLearningRate});
  Loss(model).backward();
  const absl::Status finished = exchange.FinishStep(deadline_);

  ASSERT_TRUE(finished.ok()) << finished;
  const auto expected = plain->named_parameters();
  ASSERT_EQ(record_.pushes.size(), expected.size());
  for (size_t i = 0; i < record_.pushes.size(); ++i) {
    const LocalJob::Push& push = record_.pushes[i];
    const std::string layer = push.tensor.substr(0, push.tensor.find('.'));
    const std::string& last = expected[expected.size() - 1 - i].key();
    EXPECT_EQ(layer, last.substr(0, last.find('.'))) << "push " << i;
    EXPECT_EQ(push.gradient, ToVector(expected[push.tensor].grad())) << push.tensor;
    EXPECT_EQ(push.options.samples, 4);
  }
}

TEST_P(GradientExchangeTest, NewValuesAreInTheParametersAfterEachStep) {
  torch::nn::Sequential plain = MakeModel(GetParam(), kSeed);
  torch::nn::Sequential model = MakeModel(GetParam(), kSeed);
  GradientExchange exchange(job_, *model);

  for (int step = 0; step < 2; ++step) {
    plain->zero_grad();
    Loss(plain).backward();
    exchange.BeginStep({.samples = 4, .learning_rate = kLearningRate});
    Loss(model).backward();
    ASSERT_TRUE(exchange.FinishStep(deadline_).ok());
    const torch::NoGradGuard no_gradients;
    for (torch::Tensor& value : plain->parameters()) value.sub_(value.grad() * kLearningRate);
  }

  const auto values = model->named_parameters();
  for (const auto& expected : plain->named_parameters()) {
    EXPECT_TRUE(torch::allclose(values[expected.key()], expected.value(), 1e-6, 1e-7))
        << expected.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         GradientExchangeTest,
                         testing::Values(ModelKind::kMlp, ModelKind::kCnn),
                         [](const auto& model) {
                           return model.param == ModelKind::kMlp ? "Mlp" : "Cnn";
                         });

using MlpExchangeTest = GradientExchangeTest;

TEST_P(MlpExchangeTest, RegistersInTheOrderOfTheForwardPass) {
  torch::nn::Sequential model = MakeModel(GetParam(), kSeed);
  GradientExchange exchange(job_, *model);

  const absl::Status registered = exchange.Register(
      {.kind = OptimizerKind::kSgd, .learning_rate = 0.1}, Codec::kNone, deadline_);

  ASSERT_TRUE(registered.ok()) << registered;
  ASSERT_EQ(record_.specs.size(), 4U);
  EXPECT_EQ(record_.specs[0].name, "hidden.weight");
  EXPECT_THAT(record_.specs[0].dims, ElementsAre(256, 784));
  EXPECT_EQ(record_.specs[3].name, "scores.bias");
}

TEST_P(MlpExchangeTest, PoisonsOneGradientOnce) {
  torch::nn::Sequential model = MakeModel(GetParam(), kSeed);
  GradientExchange exchange(job_, *model);

  exchange.PoisonNextGradient();
  for (int step = 0; step < 2; ++step) {
    exchange.BeginStep({.samples = 4});
    Loss(model).backward();
    ASSERT_TRUE(exchange.FinishStep(deadline_).ok());
  }

  std::vector<std::string> poisoned;
  for (const LocalJob::Push& push : record_.pushes) {
    if (std::isnan(push.gradient[0])) poisoned.push_back(push.tensor);
  }
  EXPECT_THAT(poisoned, ElementsAre("hidden.weight"));
}

TEST_P(MlpExchangeTest, ParameterWithoutGradientIsNamed) {
  torch::nn::Sequential model = MakeModel(GetParam(), kSeed);
  GradientExchange exchange(job_, *model);

  exchange.BeginStep({.samples = 4});
  const absl::Status finished = exchange.FinishStep(deadline_);

  EXPECT_EQ(finished.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(finished.message(), HasSubstr("hidden.weight"));
}

INSTANTIATE_TEST_SUITE_P(Mlp, MlpExchangeTest, testing::Values(ModelKind::kMlp));

}  // namespace
}  // namespace pushpull
