// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/dtype.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {

size_t DTypeBytes(DType dtype) {
  PUSHPULL_CHECK(IsKnown(dtype));
  return sizeof(float);
}

std::string ToString(DType dtype) {
  if (IsKnown(dtype)) return "float32";
  return absl::StrCat("dtype ", static_cast<unsigned>(dtype));
}

}  // namespace pushpull
