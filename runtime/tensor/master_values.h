// SPDX-License-Identifier: Apache-2.0
//
// Converts between a tensor's values in the workers' type and the float32 that servers keep
// (docs/decisions/0082-half-precision-tensors.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/tensor/dtype.h"

namespace pushpull {

// `narrow` has DTypeBytes(dtype) bytes for each of `values`. Neither function allocates or blocks.
void Widen(DType dtype, std::span<const std::byte> narrow, std::span<float> values);

// To nearest, ties to even. Returns the number of finite values that became infinite.
uint64_t Narrow(DType dtype, std::span<const float> values, std::span<std::byte> narrow);

}  // namespace pushpull
