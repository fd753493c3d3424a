// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/reduction.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr std::array<absl::string_view, 4> kReductionNames = {"mean", "sum", "min", "max"};
constexpr auto kFirstReduction = static_cast<size_t>(Reduction::kMean);

}  // namespace

std::string ToString(Reduction reduction) {
  if (!IsKnown(reduction)) return absl::StrCat("reduction ", static_cast<unsigned>(reduction));
  return std::string(kReductionNames[static_cast<size_t>(reduction) - kFirstReduction]);
}

}  // namespace pushpull
