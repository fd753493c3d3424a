// SPDX-License-Identifier: Apache-2.0
//
// The networks that pushpull-train can train.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <torch/nn/modules/container/sequential.h>

namespace pushpull {

enum class ModelKind {
  kMlp,  // 784 - 256 - 10, rectified: 203,530 parameters
  kCnn,  // two 3 x 3 convolutions of 16 and 32 channels, each halved by max pooling, then 128 - 10
};

// "mlp" or "cnn"; anything else is kInvalidArgument.
absl::StatusOr<ModelKind> ParseModelKind(absl::string_view text);

// A network from [batch, 1, 28, 28] float32 images to [batch, 10] float32 scores before softmax.
// Its parameters are in the order of their use in the forward pass and drawn from `seed` alone: two
// processes with the same seed get the same bits. Seeds the process's generator.
torch::nn::Sequential MakeModel(ModelKind kind, uint64_t seed);

}  // namespace pushpull
