// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on shapes. A shape is its dimensions, outermost first; without dimensions it is a
// scalar. Dimensions come from users and peers, so products are checked for overflow.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/tensor/dtype.h"

namespace pushpull {

// Elements of a row-major tensor: the product of `dims`; 1 for a scalar, 0 where a dimension is 0.
//
// kInvalidArgument: a dimension is negative, or the product does not fit into 63 bits. Do not
// retry.
absl::StatusOr<uint64_t> NumElements(std::span<const int64_t> dims);

// NumElements times the size of `dtype`.
//
// kInvalidArgument: as above, or the number of bytes does not fit into 63 bits.
absl::StatusOr<uint64_t> NumBytes(std::span<const int64_t> dims, DType dtype);

// "[784, 10]"; "[]" for a scalar.
std::string DimsToString(std::span<const int64_t> dims);

}  // namespace pushpull
