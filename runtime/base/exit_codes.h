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

// A missing file, a port in use and a peer that does not answer are 3, a wrong argument is 2,
// everything else is 1.
int ExitCodeFor(const absl::Status& status);

// Prints `PROGRAM: TEXT` to standard error, unless it is OK, and returns ExitCodeFor(status). Each
// line of TEXT is made Printable.
int Report(const absl::Status& status, const char* program = "pushpull");
// The exit code, or Report of what kept a command from having one.
int Report(const absl::StatusOr<int>& exit_code);

}  // namespace pushpull
