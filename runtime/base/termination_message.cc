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
constexpr absl::string_view kReleasedMark = "pushpull-released";

void Write(const std::string& path, absl::string_view mark, absl::string_view why) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::trunc);
  file << mark << why.substr(0, kTerminationMessageMax - mark.size()) << std::flush;
}

}  // namespace

void WriteFinalMessage(const std::string& path, absl::string_view why) {
  Write(path, kMark, why);
}

void WriteReleasedMessage(const std::string& path) {
  Write(path, kReleasedMark, "\n");
}

std::optional<ToldEnd> ToldEndOf(absl::string_view message) {
  if (absl::StripTrailingAsciiWhitespace(message) == kReleasedMark)
    return ToldEnd{.kind = ToldEnd::Kind::kReleased, .reason = ""};
  const bool restarts_job = absl::ConsumePrefix(&message, kRestartMark);
  if (!restarts_job && !absl::ConsumePrefix(&message, kMark)) return std::nullopt;
  return ToldEnd{
      .kind = restarts_job ? ToldEnd::Kind::kRestartsJob : ToldEnd::Kind::kFinal,
      .reason = std::string(absl::StripAsciiWhitespace(message.substr(0, kTerminationMessageMax)))};
}

}  // namespace pushpull
