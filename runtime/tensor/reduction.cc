// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/reduction.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<Reduction> ParseReduction(absl::string_view text) {
  for (const Reduction reduction :
       {Reduction::kMean, Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
    if (text == ToString(reduction)) return reduction;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("reduction: must be mean, sum, min or max, is \"", text, "\""));
}

std::string ToString(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return "mean";
    case Reduction::kSum:
      return "sum";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
  }
  return absl::StrCat("reduction ", static_cast<unsigned>(reduction));
}

}  // namespace pushpull
