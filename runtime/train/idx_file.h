// SPDX-License-Identifier: Apache-2.0
//
// Reads one IDX file of unsigned bytes, the format of MNIST and its successors: a magic number, the
// dimensions, the values, all big-endian (described on the MNIST page of LeCun, Cortes and Burges).
// fashion_mnist.h combines the files of a data set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

struct IdxArray {
  std::vector<uint32_t> dims;   // outermost first
  std::vector<uint8_t> values;  // row-major, as many as dims say
};

// The maximum number of values; EMNIST, the largest set in this format, has 638 million.
inline constexpr uint64_t kIdxValuesMax = uint64_t{1} << 30;

// Reads the file at `path`, gzip-compressed or not (by its contents, not its name), which must
// contain exactly one array of `num_dims` dimensions (1 to 255). Blocks on the disk only. Allocates
// in proportion to what it has read, not to the size in the header.
//
// clang-format off
//   kNotFound          there is no such file.
//   kPermissionDenied  and other codes of the system: the file cannot be read.
//   kInvalidArgument   it is not a regular file.
//   kDataLoss          wrong magic, too short, too long, too large or not decompressible. Names what
//                      was expected and found. Get the file again.
// clang-format on
absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, size_t num_dims);

}  // namespace pushpull
