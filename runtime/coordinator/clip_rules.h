// SPDX-License-Identifier: Apache-2.0
//
// Which jobs may clip gradients by their global norm: only those where every worker contributes to
// every chunk of a step (docs/decisions/0053-clipping-by-the-global-norm.md). Pure.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/consistency/view.h"

namespace pushpull {

// kInvalidArgument: a clip_norm is negative or not finite, differs from another tensor's, or does
// not fit the mode. The text names the tensor, the conflicting field of the manifest, and what to
// do.
absl::Status CheckClipping(std::span<const TensorSpec> tensors, const Consistency& consistency);

}  // namespace pushpull
