// SPDX-License-Identifier: Apache-2.0
//
// The numbers that come with a gradient. Worker, members of its group and server check them alike,
// in every mode. Pure.
#pragma once

#include "absl/status/status.h"

namespace pushpull {

// kInvalidArgument names the number that is out of range and the range: samples are 0, or such that
// the ratio of two is a float32, because a mean is computed from such ratios
// (docs/decisions/0005-mean-scaled-by-first-weight.md); a learning rate of 0 is the registered one.
absl::Status CheckPushNumbers(double samples, double learning_rate);

}  // namespace pushpull
