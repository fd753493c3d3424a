// SPDX-License-Identifier: Apache-2.0
//
// Which jobs may have tensors of types other than float32, and reductions other than mean, sum,
// minimum and maximum. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/consistency/view.h"

namespace pushpull {

// For a job with servers in mode `consistency`, or about to switch to it. kInvalidArgument: names
// the tensor, the obstacle and what to register instead.
absl::Status CheckValueTypes(std::span<const TensorSpec> tensors, const Consistency& consistency);

}  // namespace pushpull
