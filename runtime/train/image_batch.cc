// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/image_batch.h"

#include <cstddef>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

// Mean and standard deviation of all pixels of Fashion-MNIST's training images, of 255.
constexpr float kPixelMean = 72.9F;
constexpr float kPixelDeviation = 90.0F;

constexpr size_t kImagePixels = size_t{kImageHeight} * kImageWidth;

}  // namespace

ImageBatch MakeImageBatch(const ImageSet& images, std::span<const uint32_t> indices) {
  const auto batch = static_cast<int64_t>(indices.size());
  ImageBatch result{.images = torch::empty({batch, 1, kImageHeight, kImageWidth}),
                    .labels = torch::empty({batch}, torch::kInt64)};
  auto* pixel = result.images.data_ptr<float>();
  auto* label = result.labels.data_ptr<int64_t>();
  for (const uint32_t index : indices) {
    PUSHPULL_CHECK(index < images.num_images());
    const uint8_t* from = images.pixels.data() + index * kImagePixels;
    for (size_t i = 0; i < kImagePixels; ++i) {
      *pixel++ = (static_cast<float>(from[i]) - kPixelMean) / kPixelDeviation;
    }
    *label++ = images.labels[index];
  }
  return result;
}

}  // namespace pushpull
