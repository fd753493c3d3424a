// SPDX-License-Identifier: Apache-2.0
//
// Where tensors of other types than float32 and other reductions than mean, sum, minimum and
// maximum may be. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/consistency/view.h"

namespace pushpull {

// Of a job with servers whose mode is, or is to become, `consistency`. kInvalidArgument: names the
// tensor, what is in the way and what to register instead.
absl::Status CheckValueTypes(std::span<const TensorSpec> tensors, const Consistency& consistency);

}  // namespace pushpull
