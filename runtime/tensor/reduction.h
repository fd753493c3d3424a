// SPDX-License-Identifier: Apache-2.0
//
// Names of reductions. The kernels are in reduce.h.
#pragma once

#include <string>

#include "pushpull/tensor_spec.h"

namespace pushpull {

// Whether a value that a peer sent is a Reduction.
constexpr bool IsKnown(Reduction reduction) {
  return reduction >= Reduction::kMean && reduction <= Reduction::kMax;
}

// "mean", "sum", "min" or "max"; "reduction 7" for an unknown value.
std::string ToString(Reduction reduction);

}  // namespace pushpull
