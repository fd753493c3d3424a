// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/model.h"

#include "absl/strings/str_cat.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/utils.h>

#include "runtime/train/fashion_mnist.h"

namespace pushpull {
namespace {

namespace nn = torch::nn;

nn::Sequential MakeMlp() {
  nn::Sequential model;
  model->push_back("flatten", nn::Flatten());
  model->push_back("hidden", nn::Linear(kImageHeight * kImageWidth, 256));
  model->push_back("hidden_relu", nn::ReLU());
  model->push_back("scores", nn::Linear(256, kImageClasses));
  return model;
}

nn::Sequential MakeCnn() {
  nn::Sequential model;
  model->push_back("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
  model->push_back("conv1_relu", nn::ReLU());
  model->push_back("conv1_pool", nn::MaxPool2d(2));
  model->push_back("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
  model->push_back("conv2_relu", nn::ReLU());
  model->push_back("conv2_pool", nn::MaxPool2d(2));
  model->push_back("flatten", nn::Flatten());
  model->push_back("hidden", nn::Linear(32 * (kImageHeight / 4) * (kImageWidth / 4), 128));
  model->push_back("hidden_relu", nn::ReLU());
  model->push_back("scores", nn::Linear(128, kImageClasses));
  return model;
}

}  // namespace

absl::StatusOr<ModelKind> ParseModelKind(absl::string_view text) {
  if (text == "mlp") return ModelKind::kMlp;
  if (text == "cnn") return ModelKind::kCnn;
  return absl::InvalidArgumentError(absl::StrCat("must be mlp or cnn, is \"", text, "\""));
}

torch::nn::Sequential MakeModel(ModelKind kind, uint64_t seed) {
  torch::manual_seed(seed);
  return kind == ModelKind::kMlp ? MakeMlp() : MakeCnn();
}

}  // namespace pushpull
