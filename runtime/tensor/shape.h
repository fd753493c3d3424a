// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on shapes. A shape is its dimensions, outermost first; a shape without dimensions is a
// scalar. Dimensions come from users and peers, so products are checked for overflow.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/tensor/dtype.h"

namespace pushpull {

// Bytes of a row-major tensor: the product of `dims`, which is 1 for a scalar and 0 if a dimension
// is 0, times the size of `dtype`.
//
// kInvalidArgument: a dimension is negative, or the bytes do not fit into 63 bits. Do not retry.
absl::StatusOr<uint64_t> NumBytes(std::span<const int64_t> dims, DType dtype);

// "[784, 10]"; "[]" for a scalar.
std::string DimsToString(std::span<const int64_t> dims);

}  // namespace pushpull
