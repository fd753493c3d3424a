// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/termination_message.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

// The message may also be the end of a log, which begins like this only on purpose.
constexpr absl::string_view kMark = "pushpull-final: ";
constexpr absl::string_view kRestartMark = "pushpull-restart: ";

}  // namespace

void WriteFinalMessage(const std::string& path, absl::string_view why) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::trunc);
  file << kMark << why.substr(0, kTerminationMessageMax - kMark.size()) << std::flush;
}

std::optional<ToldEnd> ToldEndOf(absl::string_view message) {
  const bool restarts_job = absl::ConsumePrefix(&message, kRestartMark);
  if (!restarts_job && !absl::ConsumePrefix(&message, kMark)) return std::nullopt;
  return ToldEnd{
      restarts_job,
      std::string(absl::StripAsciiWhitespace(message.substr(0, kTerminationMessageMax)))};
}

}  // namespace pushpull
