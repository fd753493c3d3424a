// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps over spans: the update that turns one version of a chunk into the next. The
// formulas are in pushpull/tensor_spec.h. Pure: the caller owns values, state and step counts
// (runtime/store). Scalars are computed in float64, elements independently in float32, so the
// result has the same bits however a tensor is cut into chunks, in place or not, and on every
// replica (runtime/tensor/reduce.h has the details).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/optim/update_scalars.h"

namespace pushpull {

// Whether a value that a peer sent is an OptimizerKind.
constexpr bool IsKnown(OptimizerKind kind) {
  return kind >= OptimizerKind::kSum && kind <= OptimizerKind::kAdamW;
}

// kInvalidArgument names the first field that is invalid for the kind, e.g. "momentum: must be
// ...". Do not retry. A precondition of the functions below.
absl::Status Validate(const OptimizerSpec& spec);

// "sgd"; "optimizer 9" for an unknown value.
std::string ToString(OptimizerKind kind);

// "sgd(learning_rate=0.1, momentum=0.9)": the kind and the settings that apply to it.
std::string ToString(const OptimizerSpec& spec);

// The optimizer as applied to the rows that a step touches (RowSpec): Adam's epsilon is not
// bias-corrected, as in torch.optim.SparseAdam. `step`: that of the StepInput.
OptimizerSpec OptimizerOfRows(const OptimizerSpec& spec, uint64_t step);

struct StepInput {
  double learning_rate = 0;   // of this step; replaces the spec's
  uint64_t step = 1;          // 1 for the first update of this chunk, 2 for the second, ...
  double gradient_scale = 1;  // multiplies the gradient first; for means, 1 over the weights' sum
};

// The float32 scalars of one step with an optimizer of that kind: kSgd without and with momentum,
// kAdagrad; AdamScalarsOf for both kAdam and kAdamW.
SgdScalars SgdScalarsOf(const OptimizerSpec& spec, const StepInput& input);
MomentumScalars MomentumScalarsOf(const OptimizerSpec& spec, const StepInput& input);
AdagradScalars AdagradScalarsOf(const OptimizerSpec& spec, const StepInput& input);
AdamScalars AdamScalarsOf(const OptimizerSpec& spec, const StepInput& input);

// Applies one update.
//
// gradient:  [n] float32, read only; must not overlap the others.
// value_in:  [n] float32, the old value.
// value_out: [n] float32, the new value; the same memory as value_in, or disjoint from it.
// state:     [StateFloatsPerValue, n] float32, row-major, updated in place; zeros before step 1.
//            The caller keeps it with the chunk: it belongs to these n elements in this order.
//
// Different lengths are a broken invariant. A NaN in the gradient makes that element NaN. If g^2
// overflows float32 (|g| above 1.8e19), the squares that Adagrad and Adam keep become infinite and
// the element stops changing, as in PyTorch. Neither allocates nor blocks. Thread-compatible.
void ApplyOptimizer(const OptimizerSpec& spec,
                    const StepInput& input,
                    std::span<const float> gradient,
                    std::span<const float> value_in,
                    std::span<float> value_out,
                    std::span<float> state);

}  // namespace pushpull
