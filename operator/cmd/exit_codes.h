// SPDX-License-Identifier: Apache-2.0
//
// What the program ends with (interfaces.md section 2); after a stop signal it is 128 and the
// signal's number (runtime/base/signals.h).
#pragma once

#include "absl/status/status.h"

namespace pushpull_operator {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;        // nothing of the below
constexpr int kExitUsage = 2;         // wrong usage, or a configuration that is not valid
constexpr int kExitNotReachable = 3;  // a file cannot be read, a port is taken

// Prints `pushpull-operator: TEXT` to standard error and returns the code.
int ReportError(const absl::Status& status);

}  // namespace pushpull_operator
