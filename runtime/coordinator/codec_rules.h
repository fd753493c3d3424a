// SPDX-License-Identifier: Apache-2.0
//
// Which jobs may use codecs whose residual stays on the worker (HasMemory in tensor/codec.h;
// docs/decisions/0038-error-feedback.md): those that count every gradient once, and where the step
// before a checkpoint is known. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/consistency/view.h"

namespace pushpull {

// The job's settings that restrict codecs.
struct CodecRules {
  Consistency consistency;
  bool is_deterministic = false;
  bool has_checkpoints = false;
};

// kInvalidArgument: names the first tensor whose codec does not fit, the conflicting field of the
// manifest, and what to do.
absl::Status CheckCodecs(std::span<const TensorSpec> tensors, const CodecRules& rules);

}  // namespace pushpull
