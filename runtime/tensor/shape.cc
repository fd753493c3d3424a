// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/shape.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

constexpr uint64_t kProductMax = std::numeric_limits<int64_t>::max();

}  // namespace

absl::StatusOr<uint64_t> NumBytes(std::span<const int64_t> dims, DType dtype) {
  for (const int64_t dim : dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", DimsToString(dims), ": a dimension must be at least 0, is ", dim));
    }
  }
  // Before the loop, so that whether a shape is too large does not depend on the order of its
  // dimensions.
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  const uint64_t unit = DTypeBytes(dtype);
  uint64_t product = unit;
  for (const int64_t dim : dims) {
    const uint64_t factor = static_cast<uint64_t>(dim);
    if (factor > kProductMax / product) {
      return absl::InvalidArgumentError(absl::StrCat("shape ",
                                                     DimsToString(dims),
                                                     ": is too large, elements of ",
                                                     unit,
                                                     " bytes must make less than 2^63 bytes"));
    }
    product *= factor;
  }
  return product;
}

std::string DimsToString(std::span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

}  // namespace pushpull
