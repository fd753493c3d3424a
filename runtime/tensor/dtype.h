// SPDX-License-Identifier: Apache-2.0
//
// Properties of element types. A further DType is appended together with the code that sums it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/check.h"

namespace pushpull {

// Whether a value that a peer sent is a DType. Precondition of the other functions.
constexpr bool IsKnown(DType dtype) {
  return dtype >= DType::kFloat32 && dtype <= DType::kBFloat16;
}

// The type in which servers keep and add the values of tensors of `dtype`, and checkpoints store
// them (docs/decisions/0082-half-precision-tensors.md).
constexpr DType MasterOf(DType dtype) {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_half ? DType::kFloat32 : dtype;
}

// Whether servers keep values of this type as they are.
constexpr bool IsMaster(DType dtype) {
  return MasterOf(dtype) == dtype;
}

// Bytes of one element.
inline size_t DTypeBytes(DType dtype) {
  PUSHPULL_CHECK(IsKnown(dtype));
  return dtype == DType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
}

// Converts the size of master values to the size of the same values in `dtype`.
inline uint64_t NarrowBytes(DType dtype, uint64_t master_bytes) {
  return master_bytes / DTypeBytes(MasterOf(dtype)) * DTypeBytes(dtype);
}

// "float32", "float16", "bfloat16"; "dtype 77" for an unknown value.
inline std::string ToString(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return absl::StrCat("dtype ", static_cast<unsigned>(dtype));
}

}  // namespace pushpull
