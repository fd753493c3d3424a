// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/reduction.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr std::array<absl::string_view, 7> kReductionNames = {
    "mean", "sum", "min", "max", "prod", "and", "or"};
constexpr auto kFirstReduction = static_cast<size_t>(Reduction::kMean);

}  // namespace

std::string ToString(Reduction reduction) {
  if (!IsKnown(reduction)) return absl::StrCat("reduction ", static_cast<unsigned>(reduction));
  return std::string(kReductionNames[static_cast<size_t>(reduction) - kFirstReduction]);
}

ElementOp OpOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return ElementOp::kMean;
    case Reduction::kMin:
      return ElementOp::kMin;
    case Reduction::kMax:
      return ElementOp::kMax;
    case Reduction::kProd:
      return ElementOp::kProduct;
    case Reduction::kAnd:
      return ElementOp::kAnd;
    case Reduction::kOr:
      return ElementOp::kOr;
    case Reduction::kSum:
      break;
  }
  return ElementOp::kSum;
}

}  // namespace pushpull
