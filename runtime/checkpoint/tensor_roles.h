// SPDX-License-Identifier: Apache-2.0
//
// Which tensors of a checkpoint are the program's, and which pushpull.torch has added: it keeps
// optimizers that run on the workers in tensors of the job
// (docs/decisions/0096-state-of-programs.md). Pure.
#pragma once

#include <span>
#include <vector>

#include "pushpull/checkpoint.h"
#include "pushpull/tensor_spec.h"

namespace pushpull {

// All tensors but those of the library itself, in the same order.
std::vector<CheckpointTensor> WithRoles(std::span<const TensorSpec> tensors);

// Whether some tensors have what only the workers' programs know, as it was when they pushed it
// last.
bool HoldProgramState(std::span<const TensorSpec> tensors);

}  // namespace pushpull
