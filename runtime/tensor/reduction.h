// SPDX-License-Identifier: Apache-2.0
//
// How the contributions of a step become one gradient. The kernels are in reduce.h.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// The numbers travel in frames and stay what they are.
enum class Reduction : uint8_t {
  kMean = 1,  // weighted by samples: sum of weight x gradient over sum of weight
  kSum = 2,
  kMin = 3,  // element by element
  kMax = 4,
};

// Whether the number, as it came from a peer, is one of the above.
constexpr bool IsKnown(Reduction reduction) {
  return reduction >= Reduction::kMean && reduction <= Reduction::kMax;
}

// "mean", "sum", "min" or "max"; anything else is kInvalidArgument and quoted in the text.
absl::StatusOr<Reduction> ParseReduction(absl::string_view text);

// What ParseReduction reads; "reduction 7" for a number that is none.
std::string ToString(Reduction reduction);

}  // namespace pushpull
