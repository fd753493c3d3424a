// SPDX-License-Identifier: Apache-2.0
//
// Exit codes (docs/interfaces.md section 2); after a stop signal 128 plus its number
// (runtime/base/signals.h).
#pragma once

#include "absl/status/status.h"

namespace pushpull_operator {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;        // any other error
constexpr int kExitUsage = 2;         // wrong usage or invalid configuration
constexpr int kExitNotReachable = 3;  // a file cannot be read or a port is taken

// Prints `pushpull-operator: TEXT` to standard error and returns the code.
int ReportError(const absl::Status& status);

}  // namespace pushpull_operator
