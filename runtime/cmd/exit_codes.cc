// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/exit_codes.h"

#include <cstdio>
#include <string>

namespace pushpull {

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitNotReachable;
    default:
      return kExitFailed;
  }
}

int ReportError(const absl::Status& status) {
  std::fprintf(stderr, "pushpull: %s\n", std::string(status.message()).c_str());
  return ExitCodeFor(status);
}

}  // namespace pushpull
