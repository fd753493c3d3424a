// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/exit_codes.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "runtime/base/printable.h"

namespace pushpull {
namespace {

// A list of problems has a line for each; foreign names in them must not reach a terminal
// unescaped.
std::string PrintableLines(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) lines.push_back(Printable(line));
  return absl::StrJoin(lines, "\n");
}

}  // namespace

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
    std::fprintf(stderr, "%s: %s\n", program, PrintableLines(status.message()).c_str());
  return ExitCodeFor(status);
}

int Report(const absl::StatusOr<int>& exit_code) {
  return exit_code.ok() ? *exit_code : Report(exit_code.status());
}

}  // namespace pushpull
