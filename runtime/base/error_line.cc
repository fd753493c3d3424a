// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/error_line.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

#include "runtime/base/printable.h"

namespace pushpull {
namespace {

constexpr absl::string_view kTraceback = "Traceback (most recent call last):";

// "2026-11-27T00:10:34.595 info worker-1 joined", as of Log.
bool IsOfLog(absl::string_view line) {
  constexpr absl::string_view kTime = "0000-00-00T00:00:00.000 ";
  if (line.size() < kTime.size()) return false;
  for (size_t i = 0; i < kTime.size(); ++i) {
    const bool is_digit = absl::ascii_isdigit(static_cast<unsigned char>(line[i]));
    if (kTime[i] == '0' ? !is_digit : line[i] != kTime[i]) return false;
  }
  return true;
}

// torchrun puts the rank before each line of a traceback: "[rank0]: ".
absl::string_view WithoutRank(absl::string_view line) {
  const size_t end = line.find("]: ");
  return absl::StartsWith(line, "[rank") && end != absl::string_view::npos ? line.substr(end + 3)
                                                                           : line;
}

}  // namespace

// The lines of a traceback are indented, up to the one that names the exception.
void ErrorLine::Add(absl::string_view line) {
  line = WithoutRank(absl::StripTrailingAsciiWhitespace(line));
  if (line.empty() || IsOfLog(line)) return;
  if (line == kTraceback) {
    is_in_traceback_ = true;
  } else if (is_in_traceback_ && line.front() != ' ') {
    is_in_traceback_ = false;
    from_traceback_ = Printable(line, kBytesMax);
  }
  last_ = Printable(line, kBytesMax);
}

std::string ErrorLineOf(absl::string_view output) {
  ErrorLine error;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) error.Add(line);
  return error.text();
}

}  // namespace pushpull
