// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/fashion_mnist.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/train/idx_file.h"

namespace pushpull {
namespace {

struct NamedArray {
  std::string path;
  IdxArray array;
};

// The file `name` of the data set, or the same compressed.
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
      ": not found, nor with .gz; install the package dataset-fashion-mnist, or name the "
      "folder that has the IDX files"));
}

absl::Status CheckImages(const NamedArray& images) {
  const std::vector<uint32_t>& dims = images.array.dims;
  if (dims[0] >= 1 && dims[1] == kImageHeight && dims[2] == kImageWidth) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(images.path,
                                          ": holds ",
                                          dims[0],
                                          " images of ",
                                          dims[1],
                                          " x ",
                                          dims[2],
                                          ", expected at least one, of ",
                                          kImageHeight,
                                          " x ",
                                          kImageWidth));
}

absl::Status CheckLabels(const NamedArray& labels, const NamedArray& images) {
  if (labels.array.dims[0] != images.array.dims[0]) {
    return absl::DataLossError(absl::StrCat(labels.path,
                                            ": holds ",
                                            labels.array.dims[0],
                                            " labels, expected ",
                                            images.array.dims[0],
                                            ", as many as there are images in ",
                                            images.path));
  }
  const std::vector<uint8_t>& values = labels.array.values;
  const auto wrong =
      std::ranges::find_if(values, [](uint8_t label) { return label >= kImageClasses; });
  if (wrong == values.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(labels.path,
                                          ": label ",
                                          wrong - values.begin(),
                                          " is ",
                                          *wrong,
                                          ", expected less than ",
                                          kImageClasses));
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
