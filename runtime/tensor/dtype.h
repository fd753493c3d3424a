// SPDX-License-Identifier: Apache-2.0
//
// Properties of element types. A further DType is appended together with the code that sums it.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/check.h"

namespace pushpull {

// Whether a value that a peer sent is a DType. Precondition of the other functions.
constexpr bool IsKnown(DType dtype) {
  return dtype == DType::kFloat32;
}

// Bytes of one element.
inline size_t DTypeBytes(DType dtype) {
  PUSHPULL_CHECK(IsKnown(dtype));
  return sizeof(float);
}

// "float32"; "dtype 7" for an unknown value.
inline std::string ToString(DType dtype) {
  return IsKnown(dtype) ? "float32" : absl::StrCat("dtype ", static_cast<unsigned>(dtype));
}

}  // namespace pushpull
