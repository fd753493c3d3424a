// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/exit_codes.h"

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

int Report(const absl::Status& status, const char* program) {
  if (!status.ok())
    std::fprintf(stderr, "%s: %s\n", program, std::string(status.message()).c_str());
  return ExitCodeFor(status);
}

int Report(const absl::StatusOr<int>& exit_code) {
  return exit_code.ok() ? *exit_code : Report(exit_code.status());
}

}  // namespace pushpull
