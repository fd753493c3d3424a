// SPDX-License-Identifier: Apache-2.0
//
// Which jobs may have row-sparse tensors: only those where every worker contributes to every chunk
// of a step (docs/decisions/0056-row-sparse-tensors.md). store/row_layout.h checks such a tensor by
// itself. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/consistency/view.h"

namespace pushpull {

// kInvalidArgument: names the first row-sparse tensor, the conflicting field of the manifest, and
// what to do.
absl::Status CheckRowMode(std::span<const TensorSpec> tensors, const Consistency& consistency);

}  // namespace pushpull
