// SPDX-License-Identifier: Apache-2.0
//
// The Fashion-MNIST data set (Xiao, Rasul, Vollgraf, 2017, arXiv:1708.07747): 60,000 images for
// training and 10,000 for testing, of ten kinds of clothes. Any set with the same files and shapes
// works, for example MNIST.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

// Where Debian's package dataset-fashion-mnist installs it.
inline constexpr char kFashionMnistDirectory[] = "/usr/share/datasets/fashion-mnist";

inline constexpr uint32_t kImageHeight = 28;
inline constexpr uint32_t kImageWidth = 28;
inline constexpr uint32_t kImageClasses = 10;

enum class ImageSplit { kTrain, kTest };

struct ImageSet {
  std::vector<uint8_t> pixels;  // [num_images, kImageHeight, kImageWidth], 0 black to 255 white
  std::vector<uint8_t> labels;  // [num_images], below kImageClasses

  uint32_t num_images() const { return static_cast<uint32_t>(labels.size()); }
};

// Reads images and labels of a split from the IDX files in `directory`, with or without .gz.
// Blocks on the disk only; 47 MB of memory for the training split.
//
// clang-format off
//   kNotFound  a file is missing. Names its path and the package to install.
//   kDataLoss  a file is damaged, or images and labels do not match. Names the path, what was
//              expected and what was found.
//   others     as in ReadIdxFile.
// clang-format on
absl::StatusOr<ImageSet> ReadFashionMnist(const std::string& directory, ImageSplit split);

}  // namespace pushpull
