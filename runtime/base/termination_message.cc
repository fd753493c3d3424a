// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/termination_message.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

// The message may also be the end of a log, which begins like this only on purpose.
constexpr absl::string_view kMark = "pushpull-final: ";

}  // namespace

void WriteFinalMessage(const std::string& path, absl::string_view why) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::trunc);
  file << kMark << why.substr(0, kTerminationMessageMax - kMark.size()) << std::flush;
}

std::optional<std::string> FinalReasonOf(absl::string_view message) {
  if (!absl::ConsumePrefix(&message, kMark)) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(message.substr(0, kTerminationMessageMax)));
}

}  // namespace pushpull
