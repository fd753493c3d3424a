// SPDX-License-Identifier: Apache-2.0
//
// Checks options of benchmarks that are numbers within bounds.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace pushpull {

// `option`: without dashes. kInvalidArgument names it, the bounds and the value.
absl::Status CheckBetween(const char* option, uint64_t value, uint64_t least, uint64_t most);

}  // namespace pushpull
