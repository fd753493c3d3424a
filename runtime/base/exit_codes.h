// SPDX-License-Identifier: Apache-2.0
//
// The exit codes that scripts rely on (docs/interfaces.md section 2).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pushpull {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;        // the job or check failed
inline constexpr int kExitUsage = 2;         // wrong usage, or a manifest that is not valid
inline constexpr int kExitNotReachable = 3;  // a peer or file cannot be reached

// 3 for a missing file, a port in use and a peer that does not answer, 2 for a wrong argument, 1
// for everything else.
int ExitCodeFor(const absl::Status& status);

// Unless the status is OK, prints `PROGRAM: TEXT` to standard error, each line of TEXT made
// Printable. Returns ExitCodeFor(status).
int Report(const absl::Status& status, const char* program = "pushpull");
// The exit code, or Report of the error.
int Report(const absl::StatusOr<int>& exit_code);

}  // namespace pushpull
