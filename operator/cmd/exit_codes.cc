// SPDX-License-Identifier: Apache-2.0
#include "operator/cmd/exit_codes.h"

#include <cstdio>
#include <string>

namespace pushpull_operator {

int ReportError(const absl::Status& status) {
  std::fprintf(stderr, "pushpull-operator: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnavailable:
      return kExitNotReachable;
    default:
      return kExitFailed;
  }
}

}  // namespace pushpull_operator
