// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/master_values.h"

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/tensor/half_float.h"

namespace pushpull {

void Widen(DType dtype, std::span<const std::byte> narrow, std::span<float> values) {
  PUSHPULL_CHECK(narrow.size() == NarrowBytes(dtype, values.size_bytes()));
  switch (dtype) {
    case DType::kFloat16:
      return DecodeFloat16(narrow, values);
    case DType::kBFloat16:
      return DecodeBFloat16(narrow, values);
    case DType::kFloat32:
      if (!values.empty()) std::memcpy(values.data(), narrow.data(), narrow.size());
  }
}

uint64_t Narrow(DType dtype, std::span<const float> values, std::span<std::byte> narrow) {
  PUSHPULL_CHECK(narrow.size() == NarrowBytes(dtype, values.size_bytes()));
  switch (dtype) {
    case DType::kFloat16:
      return EncodeFloat16(values, narrow);
    case DType::kBFloat16:
      return EncodeBFloat16(values, narrow);
    case DType::kFloat32:
      if (!values.empty()) std::memcpy(narrow.data(), values.data(), narrow.size());
  }
  return 0;
}

}  // namespace pushpull
