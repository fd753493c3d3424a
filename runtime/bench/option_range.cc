// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/option_range.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::Status CheckBetween(const char* option, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", option, ": must be between ", least, " and ", most, ", is ", value));
}

}  // namespace pushpull
