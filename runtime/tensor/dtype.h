// SPDX-License-Identifier: Apache-2.0
//
// Properties of element types. A further DType is appended together with the code that sums it.
#pragma once

#include <cstddef>
#include <string>

#include "pushpull/tensor_spec.h"

namespace pushpull {

// Whether a value that a peer sent is a DType. Precondition of the other functions.
constexpr bool IsKnown(DType dtype) {
  return dtype == DType::kFloat32;
}

// Bytes of one element.
size_t DTypeBytes(DType dtype);

// "float32"; "dtype 7" for an unknown value.
std::string ToString(DType dtype);

}  // namespace pushpull
