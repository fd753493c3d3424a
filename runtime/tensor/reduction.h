// SPDX-License-Identifier: Apache-2.0
//
// Names of reductions. The kernels are in reduce.h.
#pragma once

#include <string>

#include "pushpull/tensor_spec.h"

#include "runtime/tensor/element_reduce.h"

namespace pushpull {

// Whether a value that a peer sent is a Reduction.
constexpr bool IsKnown(Reduction reduction) {
  return reduction >= Reduction::kMean && reduction <= Reduction::kOr;
}

// "mean", "sum", "min", "max", "prod", "and" or "or"; "reduction 77" for an unknown value.
std::string ToString(Reduction reduction);

// Whether a push without a gradient counts as zeros. With the other reductions it does not count.
constexpr bool CountsAsZeros(Reduction reduction) {
  return reduction == Reduction::kMean || reduction == Reduction::kSum;
}

// The same operation on elements (element_reduce.h).
ElementOp OpOf(Reduction reduction);

}  // namespace pushpull
