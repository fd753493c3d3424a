// SPDX-License-Identifier: Apache-2.0
//
// Which jobs may have tensors of which a worker keeps something back (HasMemory in tensor/codec.h;
// decisions/0038-error-feedback.md): those that count every gradient once, and in which the step
// before a checkpoint is known. Pure.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "runtime/consistency/view.h"
#include "runtime/store/tensor_spec.h"

namespace pushpull {

// What of the job matters to codecs.
struct CodecRules {
  Consistency consistency;
  bool is_deterministic = false;
  bool has_checkpoints = false;
};

// kInvalidArgument names the first tensor whose codec cannot be right, the field of the manifest
// that is in its way, and what to do.
absl::Status CheckCodecs(std::span<const TensorSpec> tensors, const CodecRules& rules);

}  // namespace pushpull
