// SPDX-License-Identifier: Apache-2.0
//
// Images of a data set as input tensors of a network.
#pragma once

#include <cstdint>
#include <span>

#include <torch/types.h>

#include "runtime/train/fashion_mnist.h"

namespace pushpull {

struct ImageBatch {
  torch::Tensor images;  // [batch, 1, kImageHeight, kImageWidth] float32, about mean 0, variance 1
  torch::Tensor labels;  // [batch] int64
};

// Copies the images numbered `indices`, each below images.num_images(), in that order.
ImageBatch MakeImageBatch(const ImageSet& images, std::span<const uint32_t> indices);

}  // namespace pushpull
