// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/fashion_mnist.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "runtime/base/status_macros.h"
#include "runtime/train/idx_file.h"

namespace pushpull {
namespace {

struct NamedArray {
  std::string path;
  IdxArray array;
};

// The file `name` of the data set, compressed or not.
absl::StatusOr<NamedArray> ReadMember(const std::string& directory,
                                      const std::string& name,
                                      size_t num_dims) {
  const std::string plain = absl::StrCat(directory, "/", name);
  for (const std::string& path : {plain, plain + ".gz"}) {
    absl::StatusOr<IdxArray> array = ReadIdxFile(path, num_dims);
    if (array.ok()) return NamedArray{path, *std::move(array)};
    if (!absl::IsNotFound(array.status())) return array.status();
  }
  return absl::NotFoundError(absl::StrCat(
      plain,
      ": not found, nor with .gz; install the package dataset-fashion-mnist, or name the folder "
      "that has the IDX files"));
}

absl::Status CheckImages(const NamedArray& images) {
  const std::vector<uint32_t>& dims = images.array.dims;
  if (dims[0] >= 1 && dims[1] == kImageHeight && dims[2] == kImageWidth) return absl::OkStatus();
  constexpr absl::string_view kText =
      "$0: holds $1 images of $2 x $3, expected at least one, of $4 x $5";
  return absl::DataLossError(
      absl::Substitute(kText, images.path, dims[0], dims[1], dims[2], kImageHeight, kImageWidth));
}

absl::Status CheckLabels(const NamedArray& labels, const NamedArray& images) {
  if (labels.array.dims[0] != images.array.dims[0]) {
    constexpr absl::string_view kText =
        "$0: holds $1 labels, expected $2, as many as there are images in $3";
    return absl::DataLossError(absl::Substitute(
        kText, labels.path, labels.array.dims[0], images.array.dims[0], images.path));
  }
  const std::vector<uint8_t>& values = labels.array.values;
  const auto wrong =
      std::ranges::find_if(values, [](uint8_t label) { return label >= kImageClasses; });
  if (wrong == values.end()) return absl::OkStatus();
  constexpr absl::string_view kText = "$0: label $1 is $2, expected less than $3";
  return absl::DataLossError(
      absl::Substitute(kText, labels.path, wrong - values.begin(), int{*wrong}, kImageClasses));
}

}  // namespace

absl::StatusOr<ImageSet> ReadFashionMnist(const std::string& directory, ImageSplit split) {
  const std::string prefix = split == ImageSplit::kTrain ? "train" : "t10k";
  PUSHPULL_ASSIGN_OR_RETURN(NamedArray labels,
                            ReadMember(directory, prefix + "-labels-idx1-ubyte", 1));
  PUSHPULL_ASSIGN_OR_RETURN(NamedArray images,
                            ReadMember(directory, prefix + "-images-idx3-ubyte", 3));
  PUSHPULL_RETURN_IF_ERROR(CheckImages(images));
  PUSHPULL_RETURN_IF_ERROR(CheckLabels(labels, images));
  return ImageSet{std::move(images.array.values), std::move(labels.array.values)};
}

}  // namespace pushpull
